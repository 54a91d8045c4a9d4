"""Wheel and source archive as a release makes them, each installed and used in an environment of its own."""

import json
import os
import re
import subprocess
import venv
from pathlib import Path

import pytest

from landscape.version import __version__
from tests.conftest import REPOSITORY
from tests.imports import PACKAGES, tracked

pytestmark = pytest.mark.slow
PIP = ["-m", "pip", "--disable-pip-version-check", "-q"]
SMALL = ["--samples", "40", "--device", "cpu", "--quiet"]
IMPORTED = """
import importlib.metadata, json, analysis, figures, landscape, trainers
said = {"version": importlib.metadata.version("fedscape"), "extras": importlib.metadata.metadata("fedscape").get_all(
    "Provides-Extra"), "files": [module.__file__ for module in (analysis, figures, landscape, trainers)]}
print(json.dumps(said))
"""


class Environment:
    """A fresh virtual environment, and a folder away from the sources in which its commands run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "venv"
        venv.create(self.home, with_pip=True)
        self.bin = self.home / ("Scripts" if os.name == "nt" else "bin")
        hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_REQUIRE_VIRTUALENV"}
        self.told = {name: value for name, value in os.environ.items() if name not in hidden}
        self.told |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}

    def run(self, program: str, *words: object, where: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(self.bin / program), *map(str, words)]
        return subprocess.run(command, cwd=where or self.folder, env=self.told, capture_output=True, text=True)

    def call(self, program: str, *words: object, where: Path | None = None) -> str:
        done = self.run(program, *words, where=where)
        assert done.returncode == 0, f"{program} {words}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    def pip(self, *words: object) -> None:
        self.call("python", *PIP, *words)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """One with the package index; skips where there is none."""
    made = Environment(tmp_path_factory.mktemp("installed"))
    probe = [*PIP, "download", "--no-deps", "--retries", "0", "--timeout", "20", "--dest", "probe", "threadpoolctl"]
    asked = made.run("python", *probe)
    if asked.returncode:
        pytest.skip(f"pip finds no package index here: {asked.stderr.strip().splitlines()[-1]}")
    return made


@pytest.fixture(scope="module")
def archives(environment):
    """The source archive, and the wheel that is built of it, by ``python -m build``, of the files that git knows."""
    sources = environment.folder / "sources"
    for name in tracked():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_bytes((REPOSITORY / name).read_bytes())
    environment.pip("install", "build")
    environment.call("python", "-m", "build", "--outdir", environment.folder / "dist", where=sources)
    (archive,), (wheel,) = (list((environment.folder / "dist").glob(kind)) for kind in ("*.tar.gz", "*.whl"))
    assert archive.name == f"fedscape-{__version__}.tar.gz"
    assert wheel.name == f"fedscape-{__version__}-py3-none-any.whl"
    return {"wheel": wheel, "source archive": archive}


@pytest.mark.parametrize("kind", ["wheel", "source archive"])
def test_what_a_release_has_works_where_nothing_else_is(environment, archives, kind, tmp_path):
    pinned = ["-c", REPOSITORY / "constraints.txt"]
    again = ["--force-reinstall", "--no-deps"] if kind == "source archive" else []  # its dependencies are there by then
    environment.pip("install", *(again or pinned), archives[kind])
    environment.call("python", *PIP, "check")
    said = json.loads(environment.call("python", "-c", IMPORTED))
    assert said["version"] == __version__
    assert {"arrays", "html", "docs", "test"} <= set(said["extras"])
    (site,) = {Path(file).parents[1] for file in said["files"]}
    assert site.is_relative_to(environment.home)
    shipped = [name for name in tracked() if name.split("/")[0] in PACKAGES]
    data = [name for name in shipped if not name.endswith(".py")]
    assert {Path(name).suffix for name in data} == {".html", ".css", ".js", ".csv"}
    for name in shipped:
        assert (site / name).read_bytes() == (REPOSITORY / name).read_bytes(), name
    assert environment.call("fedscape", "--version") == f"fedscape {__version__}\n"
    work_through(environment, tmp_path, kind)


def work_through(environment, folder, kind):
    """Train, measure, compare, report: a stranger's first commands, one of them by ``python -m``."""

    def call(program, *words):
        return environment.call(program, *words, where=folder)

    for name in ("fedavg", "fedsam"):
        call("fedscape", "train", name, "--rounds", "1", "--device", "cpu", "--quiet", "--out", f"runs/{name}")
    few = ["--top", "2", *SMALL]
    call("python", "-m", "analysis.hessian", "runs/fedavg", *few, "--no-trace", "--json", "hessian.json")
    assert len(json.loads((folder / "hessian.json").read_text())["eigenvalues"]) == 2
    call("fedscape", "compare", "runs/fedavg", "runs/fedsam", "--points", "3", *few, "--out", "compare")
    if kind == "wheel":  # without extras a page is refused, and what the refusal says helps
        refused = environment.run("fedscape", "report", "runs/fedavg", "-o", "report.html", where=folder)
        (needed,) = re.findall(r"pip install '(.+)'$", refused.stderr.strip())
        assert (refused.returncode, needed) == (2, "fedscape[html]")
        environment.pip("install", "-c", REPOSITORY / "constraints.txt", needed)
    call("fedscape", "report", "runs/fedavg", "runs/fedsam", "--points", "3", *few, "-o", "report.html")
    call("fedscape", "surface", "runs/fedavg", "--points", "3", *SMALL, "--html", "surface.html")
    for written in ("compare/compare.png", "report.html", "surface.html"):
        assert (folder / written).stat().st_size > 10_000, written
    assert "fedsmoo" in call("fedscape", "figures", "list")  # its recipes
    read = "from figures.printed import printed_numbers; print(len(printed_numbers('fedsmoo')))"
    assert int(call("python", "-c", read)) > 10
