"""A kill, a full disk or a wrong folder never spoils the file that was there before, nor leaves another."""

import errno
import json
import os
from pathlib import Path

import pytest

from landscape import Checkpoint, FedscapeError
from landscape.storage.files import append_line, atomic_write, make_directory, write_json, write_text
from tests.landscape.checkpoints.checkpoints import checkpoint, partition
from tests.processes import python, run_process


@pytest.fixture
def path(tmp_path) -> Path:
    """Round 7's checkpoint, to be replaced by round 8's."""
    checkpoint().save(tmp_path / "ckpt.pt")
    return tmp_path / "ckpt.pt"


def assert_untouched(path: Path) -> None:
    assert Checkpoint.verify(path).round == 7
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), FedscapeError, r"cannot write .*: No space left on device"),
        (OSError(errno.EIO, "Input/output error"), FedscapeError, r"cannot write .*: Input/output error"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
)
def test_a_failure_while_writing_leaves_the_earlier_file(monkeypatch, path, function, error, raised, message):
    def fail(*_):
        raise error

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(raised, match=message):
        checkpoint(round=8).save(path)
    monkeypatch.undo()
    assert_untouched(path)


def test_a_disk_that_fills_up_at_any_point_leaves_the_earlier_file(path):
    """A process that may write no file above a limit gets EFBIG from the kernel, as it would get ENOSPC."""
    text = """
import resource, signal, sys
from landscape import Checkpoint, FedscapeError
from tests.landscape.checkpoints.checkpoints import checkpoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = len(open(sys.argv[1], "rb").read())
later = checkpoint(round=8)
for limit in (0, 1, 100, 4096, 10_000, size // 2, size - 1):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        later.save(sys.argv[1])
    except FedscapeError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert Checkpoint.verify(sys.argv[1]).round == 7, limit
"""
    status, printed = run_process(python, text, path)
    assert status == 0, printed
    assert printed.splitlines() == [f"cannot write {path}: File too large"] * 7
    assert_untouched(path)


WRITERS = {
    "checkpoint": lambda path: checkpoint().save(path),
    "partition": lambda path: partition().save(path),
    "text": lambda path: write_text(path, "x"),
    "json": lambda path: write_json(path, {}),
    "line": lambda path: append_line(path, "x"),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_place_where_no_file_can_be_is_told_in_one_sentence(tmp_path, writer):
    (tmp_path / "file").touch()
    with pytest.raises(FedscapeError, match=r"cannot write .*file/x: Not a directory$"):
        WRITERS[writer](tmp_path / "file" / "x")
    with pytest.raises(FedscapeError, match=r"cannot write .*none/x: No such file or directory$"):
        WRITERS[writer](tmp_path / "none" / "x")
    with pytest.raises(
        FedscapeError, match=r"cannot write .*(Is a directory|it is a directory, a file name is needed)$"
    ):
        WRITERS[writer](tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_directory_is_made_with_its_parents_or_refused(tmp_path):
    assert make_directory(tmp_path / "a" / "b").is_dir()
    make_directory(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    for place in ("file", "file/below"):
        with pytest.raises(FedscapeError, match=f"cannot create the directory .*{place}: "):
            make_directory(tmp_path / place)


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"

    def write(error: type[Exception] | None) -> None:
        with atomic_write(path) as file:
            file.write(b"half")
            assert not path.exists()
            if error:
                raise error

    with pytest.raises(ZeroDivisionError):
        write(ZeroDivisionError)
    assert not list(tmp_path.iterdir())
    write(None)
    assert path.read_bytes() == b"half"
    assert list(tmp_path.iterdir()) == [path]


def test_json_has_no_numbers_that_json_does_not_know(tmp_path):
    value = {"a": float("nan"), 3: (1, float("inf")), "p": Path("x"), "α": [True, None, 0.1]}
    write_json(tmp_path / "x.json", value)
    text = (tmp_path / "x.json").read_text()
    expected = {"a": None, "3": [1, None], "p": "x", "α": [True, None, 0.1]}
    assert json.loads(text, parse_constant=pytest.fail) == expected


def test_lines_are_appended(tmp_path):
    for line in ("one", "zwei …"):
        append_line(tmp_path / "log", line)
    assert (tmp_path / "log").read_text(encoding="utf-8") == "one\nzwei …\n"
