"""The wheel is whole: installed away from the sources, every command of it works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder a wheel built from the sources is installed in, without what it depends on."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, "."]
    sources = folder / "sources"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for name in names.split("\0")[:-1]:
        if not name.startswith("tests/") and (REPOSITORY / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            (sources / name).write_bytes((REPOSITORY / name).read_bytes())
    subprocess.run(build, cwd=sources, check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", folder / "site", wheel], check=True)
    return folder / "site"


def call(installed: Path, cwd: Path, *command: object) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def test_every_command_runs_from_it(installed, tmp_path):
    where = "import landscape, trainers, analysis, figures as f; print(landscape, trainers, analysis, f)"
    assert call(installed, tmp_path, sys.executable, "-c", where).count(str(installed)) == 4
    scripts = {script.name: installed / "bin" / script.name for script in (installed / "bin").iterdir()}
    small = ["--device", "cpu", "--quiet"]
    call(installed, tmp_path, scripts.pop("fedscape-train"), "fedavg", "--rounds", "1", *small, "--out", "run")
    more = ["run/ckpt.pt", "--samples", "50", *small]
    call(installed, tmp_path, scripts.pop("fedscape-hessian"), *more, "--top", "1", "--no-trace", "--out", "hessian")
    page = ["--points", "3", "--html", "page.html", "--plot", "surface.png", "--vtk", "surface.vtk"]
    call(installed, tmp_path, scripts.pop("fedscape-surface"), *more, *page)
    mild = ["--generate", "--severities", "1", "--out", "c"]
    call(installed, tmp_path, scripts.pop("fedscape-corruptions"), *more, *mild)
    assert "compare" in call(installed, tmp_path, scripts.pop("fedscape-figures"), "--help")
    assert scripts == {}
    for written in ("hessian/hessian.png", "page.html", "surface.png", "surface.vtk", "c/corruptions.png"):
        assert (tmp_path / written).stat().st_size > 1000, written
