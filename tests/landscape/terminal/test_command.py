"""What every command line shares: one sentence on stderr, exit codes."""

import io
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
import torch
import tyro

from landscape import FedscapeError
from landscape.terminal.command import EXIT_BROKEN_PIPE, parse, run
from tests.conftest import REPOSITORY


@dataclass
class Settings:
    """Values that know what they may be."""

    rounds: int = 3
    rate: float = 0.1
    samples: int | None = None
    clients: tuple[int, ...] | None = None
    size: int | Literal["full"] = "full"
    kind: Literal["one", "two"] = "one"

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise FedscapeError(f"{self.rounds} rounds: give 0 or more")


@dataclass
class Command:
    """A command with a positional argument and nested settings."""

    size: Annotated[tyro.conf.Positional[int], tyro.conf.arg(metavar="SIZE")]
    settings: Settings


def read(kind: type, *arguments: str):
    return parse(lambda: tyro.cli(kind, args=arguments, config=(tyro.conf.OmitArgPrefixes,)), "python -m command")


def test_arguments_become_values():
    assert read(Settings, "--rounds", "5") == Settings(5, 0.1)
    assert read(Command, "7", "--rate", "0.5") == Command(7, Settings(3, 0.5))


HELP = r" \(see python -m command --help\)$"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(
    ("kind", "arguments", "reason"),
    [
        (Settings, ["--rounds", "many"], "^Error parsing --rounds: invalid literal .*'many'" + HELP),
        (Settings, ["--round", "3"], "^Unrecognized options: --round, 3" + HELP),
        (Settings, ["--samples", "1.5"], "^--samples cannot be '1.5': give INT" + HELP),
        (Settings, ["--clients", "a"], r"^--clients cannot be 'a': give INT \[INT \.\.\.\]" + HELP),
        (Settings, ["--size", "half"], "^--size cannot be 'half': give INT or full" + HELP),
        (Settings, ["--kind", "three"], r"^invalid choice 'three' for argument '--kind'.* \('one', 'two'\)" + HELP),
        (Settings, ["--rate"], "^Missing value for argument '--rate'"),
        (Settings, ["--rounds", "-1"], "^-1 rounds: give 0 or more$"),
        (Command, ["3", "--rounds", "-1"], "^-1 rounds: give 0 or more$"),
        (Command, ["much"], "^Error parsing SIZE: invalid literal .*'much'" + HELP),
        (Command, [], "SIZE.*" + HELP),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_argument(monkeypatch, capfd, encoding, kind, arguments, reason):
    """Tyro draws its error boxes differently where stdout is not UTF-8."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    with pytest.raises(FedscapeError, match=reason) as mistake:
        read(kind, *arguments)
    sentence = str(mistake.value)
    assert "\n" not in sentence
    assert "full helptext" not in sentence
    assert "──" not in sentence
    assert capfd.readouterr().err == ""


def test_help_goes_to_stdout_and_exits_with_0(capsys):
    with pytest.raises(SystemExit) as end:
        read(Settings, "--help")
    assert end.value.code == 0
    assert "--rounds" in capsys.readouterr().out


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("main", "code", "stderr"),
    [
        (lambda: None, 0, ""),
        (lambda: 3, 3, ""),
        (lambda: fail(FedscapeError("the file is missing")), 2, "error: the file is missing\n"),
        (lambda: fail(KeyboardInterrupt()), 130, "interrupted\n"),
        (
            lambda: fail(torch.OutOfMemoryError("40 GiB")),
            2,
            "error: out of device memory, give a smaller --batch-size or --device cpu (40 GiB)\n",
        ),
        (
            lambda: fail(RuntimeError("FIND was unable to find an engine")),  # for a convolution
            2,
            "error: out of device memory, give a smaller --batch-size or --device cpu "
            "(FIND was unable to find an engine)\n",
        ),
    ],
)
def test_exit_codes(capsys, main, code, stderr):
    assert run(main) == code
    assert capsys.readouterr().err == stderr


def test_an_error_of_the_program_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        run(lambda: 1 / 0)


PRINTS = """
import sys
from landscape.terminal.command import run
sys.stdin.readline()  # until the other end is closed
sys.exit(run(lambda: print("x" * 100_000)))
"""


def test_a_reader_that_has_ended_is_no_error_to_tell():
    """As ``--help | head -1``."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", PRINTS], cwd=REPOSITORY, **pipes) as process:
        process.stdout.close()
        process.stdin.write("go\n")
        process.stdin.close()
        assert process.stderr.read() == ""
    assert process.returncode == EXIT_BROKEN_PIPE
