"""benchmarks/gpu.py runs whole without a GPU, and a section's error does not stop the others."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=ROOT / "benchmarks", timeout=600,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": ""},
    )  # fmt: skip


@pytest.mark.slow
def test_it_runs_whole_on_the_cpu(tmp_path):
    done = run("gpu.py", "--device", "cpu", "--quick", "--json", str(tmp_path / "record.json"))
    record = json.loads((tmp_path / "record.json").read_text())
    assert done.returncode == 0, done.stderr
    assert not any(found["fault"] for found in record["sections"].values())
    assert len(record["sections"]["executors"]["checks"]) > 50


FAULTY = """
import gpu, sys
from pathlib import Path

def broken(report):
    report.check("before", 1.0, 1.0, 0.0)
    raise ValueError("on purpose")

gpu.SECTIONS = {"broken": gpu.Section(broken, 5.0), "surfaces": gpu.SECTIONS["surfaces"]}
sys.exit(gpu.main(gpu.Settings(device="cpu", quick=True, sections=tuple(gpu.SECTIONS), json=Path(sys.argv[1]))))
"""


@pytest.mark.slow
def test_a_section_that_fails_is_recorded_and_the_others_go_on(tmp_path):
    done = run("-c", FAULTY, str(tmp_path / "record.json"))
    sections = json.loads((tmp_path / "record.json").read_text())["sections"]
    assert done.returncode == 1
    assert "ValueError: on purpose" in sections["broken"]["fault"]
    assert sections["broken"]["checks"] == [["before", 0.0, 0.0]]
    assert sections["surfaces"]["checks"]
    assert sections["surfaces"]["fault"] is None
