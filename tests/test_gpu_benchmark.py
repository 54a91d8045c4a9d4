"""benchmarks/gpu.py runs whole without a GPU and without tyro, and one error, crash or hang does not stop the rest."""

import importlib
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from trainers.__main__ import read

ROOT = Path(__file__).parent.parent


@pytest.fixture
def gpu(monkeypatch):
    """A module of the benchmark by name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=ROOT / "benchmarks", timeout=600,
        env={"OMP_NUM_THREADS": "1", "PATH": "", "PYTHONPATH": str(ROOT / "benchmarks")},
    )  # fmt: skip


WITHOUT = """
import runpy, sys
for name in ("tyro", "sklearn", "plotly", "matplotlib", "pandas", "xarray", "rich"):
    sys.modules[name] = None  # an import of it raises, as where it is not installed
sys.path.insert(0, ".")
sys.argv = ["gpu.py", *sys.argv[1:]]
runpy.run_path("gpu.py", run_name="__main__")
"""


@pytest.mark.slow
def test_it_runs_whole_on_the_cpu_without_what_reads_commands_and_draws(tmp_path):
    done = run("-c", WITHOUT, "--device", "cpu", "--quick", "--json", str(tmp_path / "record.json"))
    record = json.loads((tmp_path / "record.json").read_text())
    assert done.returncode == 0, done.stderr
    assert record["tyro"] == "missing"
    assert not any(found["fault"] or found["failures"] or found["left"] for found in record["sections"].values())
    assert len(record["sections"]["float64"]["checks"]) > 20
    assert all(found["checks"] or found["figures"] for found in record["sections"].values())


@pytest.mark.slow
def test_sections_in_processes_of_their_own_find_the_same(tmp_path):
    words = ("gpu.py", "--device", "cpu", "--quick", "--sections", "hessians", "surfaces")
    found = []
    for more in ((), ("--apart",)):
        assert run(*words, *more, "--json", str(tmp_path / "record.json")).returncode == 0
        sections = json.loads((tmp_path / "record.json").read_text())["sections"]
        found.append({name: section["checks"] for name, section in sections.items()})
    assert found[0] == found[1]
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


@pytest.mark.slow
def test_its_own_reading_of_lines_is_that_of_the_command(gpu):
    lines = gpu("gpu_lines")
    for line in lines.LINES:
        command = read(line.split())
        assert lines.read(line) == (command.algorithm, command.parts), line


FAULTY = """
import gpu, os, sys, time
from pathlib import Path

def broken(report):
    report.check("before", 1.0, 1.0, 0.0)
    with report.trial("first"):
        raise ValueError("on purpose")
    report.check("after", 1.0, 2.0, 0.1)
    report.until = 0.0
    report.over("last")

def crashes(report):
    report.check("before", 1.0, 1.0, 0.0)
    os._exit(7)

def hangs(report):
    report.check("before", 1.0, 1.0, 0.0)
    time.sleep(60)

gpu._START = 20.0
gpu.SECTIONS = {
    "broken": gpu.Section(broken, 5.0), "crashes": gpu.Section(crashes, 5.0), "hangs": gpu.Section(hangs, 1.0),
    "alone": gpu.Section(lambda report: report.over("figure"), 0.0, alone=True),
}
gpu.__file__ = __file__
sys.exit(gpu.main(gpu.read([*sys.argv[1:], *["--device", "cpu", "--quick", "--apart"]])))
"""


@pytest.mark.slow
def test_errors_crashes_and_hangs_are_recorded_and_the_others_go_on(tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY)
    done = run(str(tmp_path / "faulty.py"), "--json", str(tmp_path / "record.json"))
    sections = json.loads((tmp_path / "record.json").read_text())["sections"]
    assert done.returncode == 1
    assert [found["checks"][0] for found in list(sections.values())[:3]] == 3 * [["before", 0.0, 0.0]]
    assert sections["broken"]["checks"][1][0] == "after"
    assert "ValueError: on purpose" in sections["broken"]["failures"][0][1]
    assert sections["broken"]["fault"] is None
    assert "exit code 7" in sections["crashes"]["fault"]
    assert "did not end" in sections["hangs"]["fault"]
    told = [line.removeprefix("WRONG: ") for line in done.stderr.splitlines() if line.startswith("WRONG")]
    assert told == [
        "broken: after differs", "broken: first failed", "broken: no time was left for last",
        "crashes: it did not end as it should", "hangs: it did not end as it should",
    ]  # fmt: skip


def test_an_error_that_spoils_cuda_ends_the_section(gpu, monkeypatch):
    report = gpu("gpu_report").Report("cpu", quick=True, until=time.perf_counter())
    with report.trial("first"):
        raise ValueError("an error of Python's")

    def spoilt(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(gpu("gpu_report"), "waited", spoilt)
    with pytest.raises(RuntimeError, match="illegal memory access"), report.trial("second"):
        raise ValueError("an error of CUDA's")
    assert [what for what, _ in report.failures] == ["first", "second"]


@pytest.mark.parametrize(("device", "index"), [("cuda", 2), ("cuda:1", 1)])
def test_little_memory_is_set_for_the_device_and_all_of_it_again(gpu, monkeypatch, device, index):
    """PyTorch's own function, with what it asks the driver for: it refuses ``cuda`` without a number."""
    asked = []
    driver = torch.cuda.memory
    monkeypatch.setattr(driver, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 150)
    monkeypatch.setattr(torch._C, "_cuda_setMemoryFraction", lambda *given: asked.append(given), raising=False)
    report = gpu("gpu_report").Report(device, quick=True, until=time.perf_counter())
    with gpu("gpu_checks")._little_memory(report, 100) as told:
        assert asked == [(0.25, index)]
        warnings.warn("halved", stacklevel=1)
    assert asked == [(0.25, index), (1.0, index)]
    assert [str(each.message) for each in told] == ["halved"]
