"""Source archive and wheel are whole: installed away from the sources, every command of it works."""

import configparser
import importlib
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.imports import PACKAGES, tracked

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of a source archive, made of a copy of the sources because building writes beside them."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in tracked():
        if not name.startswith("tests/"):
            (folder / "sources" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "sources" / name).write_bytes((REPOSITORY / name).read_bytes())
    pack = [sys.executable, "-c", "from setuptools import build_meta; build_meta.build_sdist('..')"]
    subprocess.run(pack, cwd=folder / "sources", check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        beside = {name.partition("/")[2] for name in packed.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "constraints.txt"} <= beside
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, archive]
    subprocess.run(build, cwd=folder, check=True)
    (found,) = folder.glob("*.whl")
    return found


def test_it_holds_every_file_of_the_packages_and_no_other(wheel):
    held = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert sorted(held) == sorted(name for name in tracked() if name.split("/")[0] in (*PACKAGES, "fedscape.py"))


def test_its_commands_are_functions_that_exist(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    scripts = configparser.ConfigParser()
    scripts.read_string(archive.read(name).decode())
    assert len(scripts["console_scripts"]) == 6
    for target in scripts["console_scripts"].values():
        module, function = target.split(":")
        assert callable(getattr(importlib.import_module(module), function)), target


def call(installed: Path, cwd: Path, *command: object) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_every_command_runs_from_it(wheel, tmp_path):
    installed = tmp_path / "site"
    subprocess.run([*PIP, "install", "--no-deps", "--target", installed, wheel], check=True)
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
    (tmp_path / "analysis.py").write_text("raise SystemExit('the wrong module')")
    fedscape = scripts.pop("fedscape")
    assert "λ1" in call(installed, tmp_path, fedscape, "hessian", "run", *more[1:], "--top", "1", "--no-trace")
    assert "fedavg" in call(installed, tmp_path, fedscape, "runs", "run")
    assert scripts == {}
    for written in ("hessian/hessian.png", "page.html", "surface.png", "surface.vtk", "c/corruptions.png"):
        assert (tmp_path / written).stat().st_size > 1000, written
