"""The versions that are promised: README, setup.py, constraints.txt and start.py agree, and no Python lacks a pin."""

import importlib.util
import re
import runpy
import sys
from collections import namedtuple

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from landscape.version import __version__
from tests.conftest import REPOSITORY
from tests.imports import tracked

Version = namedtuple("Version", "major minor micro releaselevel serial")


def text(name):
    return (REPOSITORY / name).read_text(encoding="utf-8")


def promised():
    (first, last) = re.findall(r"Python 3\.(\d+)–3\.(\d+), pip", text("README.md"))[0]
    return [f"3.{minor}" for minor in range(int(first), int(last) + 1)]


def packaged(monkeypatch):
    """What setup.py says."""
    said = {}
    monkeypatch.setattr("setuptools.setup", lambda **words: said.update(words))
    runpy.run_path(str(REPOSITORY / "setup.py"))
    return said


def pins(python):
    """constraints.txt as pip reads it on that Python: {name: [versions]}."""
    environment = {**default_environment(), "python_version": python, "python_full_version": f"{python}.0"}
    found = {}
    for line in text("constraints.txt").splitlines():
        if not line.startswith("#"):
            pin = Requirement(line)
            (specifier,) = pin.specifier
            assert specifier.operator == "=="
            versions = found.setdefault(pin.name.lower(), [])
            if pin.marker is None or pin.marker.evaluate(environment):
                versions.append(specifier.version)
    return found


@pytest.mark.parametrize("python", promised())
def test_one_pin_for_everything_that_is_installed_on_each_python(python, monkeypatch):
    said, pinned = packaged(monkeypatch), pins(python)
    assert all(len(versions) == 1 for versions in pinned.values()), pinned
    needed = [Requirement(line) for line in (*said["install_requires"], *said["extras_require"]["test"])]
    assert pinned.keys() == {requirement.name.lower() for requirement in needed}
    for requirement in needed:
        assert requirement.specifier.contains(pinned[requirement.name.lower()][0]), requirement


def test_the_promise_is_the_same_everywhere(monkeypatch):
    said, pythons = packaged(monkeypatch), promised()
    assert said["python_requires"] == f">={pythons[0]}"
    assert SpecifierSet(said["python_requires"]).contains(pythons[-1])
    assert said["classifiers"] == [f"Programming Language :: Python :: {python}" for python in pythons]
    assert f'target-version = "py{pythons[0].replace(".", "")}"' in text("pyproject.toml")


@pytest.fixture
def start(monkeypatch, tmp_path):
    """start.py's ``main`` as a user runs it, in an empty folder, where it must start nothing."""
    names = runpy.run_path(str(REPOSITORY / "start.py"))
    main = names["main"]

    def refuse(*command, **_):
        raise AssertionError(f"it went on and ran {command}")

    monkeypatch.setattr("subprocess.run", refuse)
    monkeypatch.setitem(main.__globals__, "HOME", tmp_path)
    monkeypatch.setitem(main.__globals__, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(sys, "argv", ["start.py", "setup"])
    return main


def test_too_old_a_python_is_refused_in_one_sentence(start, monkeypatch):
    minor = int(promised()[0].split(".")[1]) - 1
    monkeypatch.setattr(sys, "version_info", Version(3, minor, 18, "final", 0))
    with pytest.raises(SystemExit, match=rf"^Fedscape needs Python 3\.{minor + 1} or newer, this is .*$"):
        start()
    monkeypatch.setattr(sys, "version_info", Version(3, minor + 1, 0, "final", 0))
    with pytest.raises(AssertionError, match="went on"):
        start()


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_without_venv_is_told_what_to_install(start, monkeypatch, module):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == module else find(name))
    with pytest.raises(SystemExit, match=r"^\S+ has no venv module: install it \(.* apt install python3\.\d+-venv\)$"):
        start()


@pytest.mark.parametrize(("minor", "cleared"), [(0, False), (1, True)])
def test_an_environment_of_another_python_is_made_anew(start, tmp_path, minor, cleared):
    """The stamp names the Python too, so that one that was set up with another is not taken for done."""
    python = f"{sys.version_info.major}.{sys.version_info.minor + minor}.7"
    (tmp_path / "pyvenv.cfg").write_text(f"home = bin\nversion = {python}\n")
    with pytest.raises(AssertionError, match="'venv'") as told:
        start()
    assert ("--clear" in str(told.value)) == cleared


def test_the_citation_names_the_version_that_is_there():
    (cited,) = re.findall(r"^version: (\S+)$", text("CITATION.cff"), re.MULTILINE)
    assert cited == __version__


def test_the_change_log_and_the_citation_say_of_one_release(monkeypatch):
    """The newest heading is of the version that is there, and has a date where the citation has it."""
    headings = re.findall(r"^## (.+)$", text("CHANGELOG.md"), re.MULTILINE)
    version, date = re.fullmatch(r"(\d+\.\d+\.\d+) \((unreleased|\d{4}-\d\d-\d\d)\)", headings[0]).groups()
    assert version == __version__ == packaged(monkeypatch)["version"]
    assert re.findall(r"^date-released: (\S+)$", text("CITATION.cff"), re.MULTILINE) == [date] * (date != "unreleased")


def test_the_version_is_said_in_one_place():
    """Elsewhere it is read from there, or held against it by the tests above."""
    said = [name for name in tracked() if name.endswith((".py", ".toml")) and f'"{__version__}"' in text(name)]
    assert said == ["landscape/version.py"]


def test_every_extra_is_documented_with_its_packages(monkeypatch):
    table = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", text("docs/install.md"), re.MULTILINE)
    told = {extra: packages.split(", ") for extra, packages in table}
    extras = packaged(monkeypatch)["extras_require"]
    named = {extra: sorted(Requirement(line).name for line in lines) for extra, lines in extras.items()}
    assert told.keys() == named.keys()
    assert all(sorted(packages) == named[extra] for extra, packages in told.items() if extra != "test")
