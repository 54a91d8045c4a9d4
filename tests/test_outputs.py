"""Every command's every output is attacked: nothing that is not its own is changed, and no work is begun."""

import ast
import hashlib
import os
import typing
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

import pytest

import analysis.alignment.__main__ as alignment
import analysis.corruptions.__main__ as corruptions
import analysis.hessian.__main__ as hessian
import analysis.surface.__main__ as surface
import figures.__main__ as figures
import landscape.data.__main__ as data
import trainers.__main__ as trainers
from analysis.hessian.command import Command as HessianCommand
from figures.commands.curves import Curves
from figures.commands.gallery import Gallery
from figures.commands.listing import List, Show, Status
from figures.commands.make import Make
from figures.commands.numbers import Numbers
from figures.commands.sweep import Sweep
from landscape import Landscape
from landscape.terminal.command import run
from tests.conftest import REPOSITORY
from trainers import FedAvg, Settings, train
from trainers.commands import partition, report

SHORT = Settings(rounds=1, clients=4, per_round=2, local_steps=1, device="cpu")


@dataclass(frozen=True)
class Case:
    """A command and its files.

    Attributes:
        main: the command.
        words: what it is given beside the output; CKPT and RUN are the checkpoint and its run.
        command: the class of its options.
        files: options that name a file to write, with a name that fits.
        folders: options that name a folder to write into, with the names of files in it that are checked.
        read: options that name what is read.
    """

    main: typing.Callable[[list[str]], object]
    words: tuple[str, ...]
    command: type
    files: dict[str, str]
    folders: dict[str, tuple[str, ...]]
    read: tuple[str, ...] = ()


DRAWN = ("hessian.png", "hessian.json", "hessian.npz")
TABLES = ("corruptions.jsonl", "corruptions.json", "corruptions.csv", "corruptions.md", "corruptions.tex")
PROFILED = ("profile.json", "trace.json.gz")
CASES = {
    "hessian": Case(
        hessian.main, ("CKPT",), HessianCommand, {"json": "x.json", "csv": "x.csv", "state": "x.state"},
        {"out": (*DRAWN, "clients.png"), "profile": PROFILED}, ("checkpoints", "data_dir"),
    ),
    "surface": Case(
        surface.main, ("CKPT", "--workers", "1"), surface.Command,
        {"out": "x.h5", "plot": "x.png", "html": "x.html", "vtk": "x.vts", "json": "x.json", "directions": "x.pt"},
        {"profile": PROFILED},
        ("checkpoints", "data_dir"),
    ),
    "corruptions": Case(
        corruptions.main, ("CKPT", "--generate"), corruptions.Command, {}, {"out": (*TABLES, "corruptions.png")},
        ("checkpoints", "data_dir"),
    ),
    "alignment": Case(
        alignment.main, ("RUN",), alignment.Command, {},
        {"out": (*(f"alignment.{kind}" for kind in ("jsonl", "json", "csv", "png")), "matrices_1.png")},
        ("runs", "data_dir"),
    ),
    "report": Case(
        report.main, ("RUN",), report.Command,
        {"csv": "x.csv", "json": "x.json", "latex": "x.tex", "markdown": "x.md"}, {}, ("runs",),
    ),
    "partition": Case(partition.main, (), partition.Command, {"out": "x.png", "json": "x.json"}, {}),
    "compare": Case(
        figures.main, ("compare", "CKPT", "CKPT"), figures.Compare, {},
        {"out": tuple(f"compare.{kind}" for kind in ("png", "pdf", "svg", "txt", "csv"))}, ("checkpoints", "data_dir"),
    ),
    "page": Case(
        figures.main, ("report", "CKPT"), figures.Report, {"out": "x.html"}, {},
        ("checkpoints", "data_dir", "alignment"),
    ),
    "demo": Case(figures.main, ("demo",), figures.Demo, {}, {"out": ("compare/compare.png",)}),
    "contact-sheet": Case(
        figures.main, ("contact-sheet", "digits"), figures.ContactSheet, {"out": "x.png"}, {}, ("data_dir",)
    ),
    "make": Case(figures.main, ("make", "man/F1"), Make, {}, {"out": ("notes.txt",)}, ("data_dir",)),
    "numbers": Case(
        figures.main, ("numbers", "man/F1"), Numbers, {"to": "x.json"}, {"out": ("notes.txt",)}, ("data_dir",)
    ),
    "sweep": Case(
        figures.main, ("sweep", "GRID"), Sweep, {}, {"out": ("grid.json", "notes.txt")}, ("grid", "data_dir")
    ),
    "curves": Case(figures.main, ("curves", "RUN"), Curves, {"out": "x.png", "csv": "x.csv"}, {}, ("runs",)),
    "gallery": Case(
        figures.main, ("gallery", "man/F1"), Gallery, {}, {"out": ("gallery.html", "notes.txt")}, ("data_dir",)
    ),
    "train": Case(
        trainers.main, ("fedavg", "--quiet"), trainers.Output, {},
        {"out": ("ckpt.pt", "metrics.jsonl", "notes.txt"), "profile": PROFILED}, ("config",),
    ),
}  # fmt: skip
READ_ONLY = {List, Status, Show, data.List, data.Verify}
"""Commands that write nothing; ``landscape.data fetch`` writes only what is not there."""


def options(kind):
    """The fields of a class of options, and of those in it, with their types."""
    hints = typing.get_type_hints(kind)
    for each in fields(kind):
        if is_dataclass(hints[each.name]):
            yield from options(hints[each.name])
        else:
            yield each.name, hints[each.name]


def paths(kind):
    """The options that are paths."""

    def holds(hint):
        return hint is Path or any(map(holds, typing.get_args(hint)))

    return {name for name, hint in options(kind) if holds(hint)}


@pytest.mark.parametrize("name", CASES)
def test_no_path_of_a_command_is_forgotten_here(name):
    case = CASES[name]
    known = {*case.files, *case.folders, *case.read}
    assert paths(case.command) <= known
    assert {*case.files, *case.folders} <= {option for option, _ in options(case.command)}
    assert "force" in {option for option, _ in options(case.command)}


def test_no_command_is_forgotten_here():
    written = {case.command for case in CASES.values()}
    assert {kind for kind, _ in figures.kinds().values()} <= written | READ_ONLY
    mains = {case.main for case in CASES.values()} | {trainers.COMMANDS["list"]}
    assert set(trainers.COMMANDS.values()) <= mains


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    made = train(FedAvg(), SHORT, out=tmp_path_factory.mktemp("trained") / "run").checkpoint
    (made.parent.parent / "grid.toml").write_text('algorithm = "fedavg"')
    return made


def given_words(case, checkpoint):
    """What a command is given beside the output."""
    there = {"CKPT": checkpoint, "RUN": checkpoint.parent, "GRID": checkpoint.parent.parent / "grid.toml"}
    return [str(there.get(word, word)) for word in case.words]


def digest(folder):
    """All that is in a folder: names, links, contents."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = f"mode {path.stat().st_mode}"
    return found


def attacks(place, name, checkpoint):
    """Put something of the user's at a name, one after the other; yield the name to give, and what is done to it."""
    target = place / name

    def cleared():
        if target.is_symlink() or target.is_file() or target.is_fifo():
            target.unlink()
        elif target.is_dir():
            target.rmdir()
        target.parent.mkdir(parents=True, exist_ok=True)

    for what in ("a checkpoint", "a link to the input", "the input", "a text", "a pipe", "a folder", "a device"):
        cleared()
        if what == "a checkpoint":
            target.write_bytes(checkpoint.read_bytes())
        elif what == "a link to the input":
            target.symlink_to(checkpoint)
        elif what == "the input":
            os.link(checkpoint, target)
        elif what == "a text":
            target.write_text("my own notes, which nothing can bring back\n")
        elif what == "a pipe":
            os.mkfifo(target)
        elif what == "a folder":
            target.mkdir()
        else:
            target.symlink_to("/dev/null")
        yield what
    cleared()


@pytest.mark.parametrize(
    ("name", "option", "file"),
    [(name, option, file) for name, case in CASES.items() for option, file in case.files.items()]
    + [
        (name, option, file) for name, case in CASES.items() for option, files in case.folders.items() for file in files
    ],
)
def test_what_is_not_ours_is_refused_before_the_work_and_stays(
    name, option, file, checkpoint, tmp_path, monkeypatch, capsys
):
    def begun(*_, **__):
        raise AssertionError("work has begun")

    for module in ("trainers.runs.objects", "trainers.commands.partition", "figures.__main__"):
        monkeypatch.setattr(f"{module}.load_dataset", begun)
    monkeypatch.setattr("figures.commands.work.execute", begun)
    monkeypatch.setattr("trainers.commands.report.read_runs", begun)
    monkeypatch.setattr("figures.commands.curves.read_runs", begun)
    monkeypatch.setattr(Landscape, "from_checkpoint", begun)
    monkeypatch.setattr("landscape.checkpoints.checkpoint.load_torch", begun)
    case = CASES[name]
    place = tmp_path / "place"
    words = given_words(case, checkpoint)
    words += ["--per-client"] * (file == "clients.png")
    whole = option in case.folders
    given = place if whole else place / file
    # A folder that is refused as a whole is taken with --force, with what is in it.
    with_force = case.command not in (Make, Sweep) and file != "notes.txt" and name != "train"
    for what in attacks(place, file, checkpoint):
        never = what in ("a pipe", "a folder", "a device")
        before, source = digest(tmp_path), digest(checkpoint.parent)
        for force in [[], ["--force"]] if never and with_force else [[]]:
            assert run(lambda force=force: case.main([*words, f"--{option}", str(given), *force])) == 2, what
            said = capsys.readouterr()
            assert said.err.startswith("error: "), what
            assert said.err.count("\n") == 1, what
            assert (digest(tmp_path), digest(checkpoint.parent)) == (before, source), what


@pytest.mark.parametrize(("name", "option"), [(name, option) for name, case in CASES.items() for option in case.files])
def test_a_forgotten_name_does_not_cost_the_checkpoint(name, option, checkpoint, tmp_path, monkeypatch, capsys):
    """As ``--csv a.pt b.pt``: the next word is taken for the file to write."""
    case = CASES[name]
    mine = tmp_path / "a.pt"
    mine.write_bytes(checkpoint.read_bytes())
    words = given_words(case, checkpoint)
    before = digest(tmp_path)
    monkeypatch.setattr(Landscape, "from_checkpoint", lambda *_, **__: pytest.fail("work has begun"))
    assert run(lambda: case.main([*words, f"--{option}", str(mine)])) == 2
    said = capsys.readouterr().err
    assert "was a name forgotten?" in said or "is not a file of" in said or "no kind of" in said or "no name of" in said
    assert digest(tmp_path) == before


WRITERS = {"write_text", "write_bytes", "savefig", "rename", "replace", "savez", "savez_compressed"}
"""Methods that write files past :mod:`landscape.storage.files`; ``replace`` and ``rename`` of ``os``."""
ALLOWED = {
    "landscape/storage/files.py": "the layer itself",
    "landscape/storage/pictures.py": "into memory",
    "landscape/storage/canvas.py": "Matplotlib's savefig, to what its caller names",
    "landscape/storage/hdf5.py": "into the pipe of a process",
    "landscape/storage/display.py": "into memory",
    "landscape/data/fetch.py": "moves what was downloaded to names that are free; arrays through atomic_write",
    "landscape/data/formats/images.py": "the memory-mapped copy of a folder of images, in a folder of its own",
    "landscape/partitions/partition.py": "arrays through atomic_write",
    "analysis/hessian/writing.py": "arrays through atomic_write",
}


def direct_writes(file):
    """The calls in a module that write a file without the storage layer, by line."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = []
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            modes = [word.value for word in [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "mode")]
                     if isinstance(word, ast.Constant)]  # fmt: skip
            if any(set(str(mode)) & set("wax+") for mode in modes):
                found.append((node.lineno, "open"))
        elif isinstance(called, ast.Attribute) and called.attr in WRITERS:
            owner = called.value.id if isinstance(called.value, ast.Name) else ""
            if called.attr in ("replace", "rename") and owner != "os":
                continue  # of texts and dataclasses
            found.append((node.lineno, called.attr))
    return found


def test_every_file_is_written_by_the_storage_layer():
    files = [file for package in ("landscape", "trainers", "analysis", "figures")
             for file in sorted((REPOSITORY / package).rglob("*.py"))]  # fmt: skip
    allowed = {*ALLOWED, "landscape/storage/lock.py"}
    writing = {file.relative_to(REPOSITORY).as_posix(): found for file in files if (found := direct_writes(file))}
    past = {name: found for name, found in writing.items() if name not in allowed}
    assert past == {}
    assert allowed <= writing.keys(), "what writes nothing any more needs no exception"
