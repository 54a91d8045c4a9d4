"""``python -m trainers ALGORITHM ...``: train and write a run directory.

``ALGORITHM`` is a name of ours, or ``package.module:Class``, an algorithm of the user's own.
``list`` lists the algorithms, ``report`` compares runs, ``partition`` shows how a data set is divided over clients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import tyro

from landscape.errors import FedscapeError
from landscape.registry import unknown_name
from landscape.storage.outputs import ForceFlag
from landscape.terminal.command import EXIT_DIVERGED, parse, run
from landscape.terminal.stopping import continuing
from trainers.algorithm import Algorithm
from trainers.algorithms import ALGORITHMS, algorithm_name
from trainers.commands import listing, partition, report
from trainers.flags import PartFlags, part_flags
from trainers.own import own_algorithm
from trainers.parts.parts import Parts
from trainers.runs.run import Run, train
from trainers.settings import Settings

PROGRAM = "python -m trainers"
CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
RECORDED = frozenset({"name", "parts", "training"})
"""What checkpoints record of a run's algorithm beside its hyper-parameters."""
COMMANDS = {"list": listing.main, "report": report.main, "partition": partition.main}


@dataclass(frozen=True)
class Output:
    """Where the run goes."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: runs/ALGORITHM)")] = None
    """run directory"""
    resume: bool = False
    """continue the run in --out after a kill, or add rounds to it; starts it where there is none"""
    force: ForceFlag = False
    quiet: bool = False
    """no progress bar"""


@dataclass(frozen=True)
class Command:
    """A parsed command line."""

    algorithm: Algorithm
    parts: Parts
    settings: Settings
    output: Output


def _subcommand(kind: type[Algorithm]) -> Callable[..., Command]:
    def command(algorithm: Algorithm, parts: PartFlags, settings: Settings, output: Output) -> Command:
        return Command(algorithm, parts.parts(), settings, output)

    types = {"algorithm": kind, "parts": part_flags(kind), "settings": Settings, "output": Output, "return": Command}
    command.__annotations__ = types
    paper = getattr(kind, "paper", "")  # one's own need not have a paper
    command.__doc__ = (kind.__doc__ or "").partition("\n")[0] + (f" ({paper})" if paper else "")
    return command


def read(arguments: Sequence[str]) -> Command:
    """Parse a command line.

    Raises:
        FedscapeError: an option is unknown or has a wrong value; SystemExit after ``--help``.
    """
    names = list(ALGORITHMS)
    if not arguments:
        raise FedscapeError(
            f"give an algorithm, one of {', '.join(names)}, your own as package.module:Class, "
            f"or list, report or partition (see {PROGRAM} --help)"
        )
    if ":" in arguments[0] and not arguments[0].startswith("-"):
        return _read_own(arguments[0], arguments[1:])
    if not arguments[0].startswith("-") and arguments[0] not in names:
        raise unknown_name("algorithm", arguments[0], [*names, *COMMANDS])
    subcommands = {name: _subcommand(kind) for name, kind in ALGORITHMS.items()}
    return parse(
        lambda: tyro.extras.subcommand_cli_from_dict(
            subcommands,
            prog=PROGRAM,
            description="Train a model with a federated algorithm and write checkpoints to a run directory.\n\n"
            f"{PROGRAM} ALGORITHM --help shows the algorithm's own hyper-parameters, parts and all settings.\n\n"
            f"{PROGRAM} package.module:Class trains with an algorithm of your own, a subclass of trainers.Algorithm in "
            "a module of the current folder or an installed one.\n\n"
            f"{PROGRAM} list tells what each algorithm keeps, sends and combines with; "
            f"{PROGRAM} report RUN [RUN ...] compares runs; "
            f"{PROGRAM} partition shows how a data set is divided over clients.",
            args=arguments,
            config=CONFIG,
        ),
        PROGRAM,
    )


def _read_own(name: str, arguments: Sequence[str]) -> Command:
    """Parse the options of an algorithm of the user's own."""
    settings = {each.name for kind in (Settings, Output) for each in fields(kind)}
    kind = own_algorithm(name, RECORDED | settings)
    program = f"{PROGRAM} {name}"
    return parse(lambda: tyro.cli(_subcommand(kind), prog=program, args=arguments, config=CONFIG), program)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as the command line says and print the path of the checkpoint; return 0, or 3 if the run diverged.

    ``list``, ``report`` and ``partition`` have their own options.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in COMMANDS:
        return COMMANDS[given[0]](given[1:])
    command = read(given)
    name = algorithm_name(command.algorithm)
    out = command.output.out or Path("runs") / name.replace(":", ".")  # Windows has no colons in names of files
    options = {"resume": command.output.resume, "force": command.output.force, "progress": not command.output.quiet}
    with continuing(f"the rounds done so far are in {out}: the same command with --resume continues"):
        result = train(command.algorithm, command.settings, command.parts, out=out, **options)
    print(_summary(name, result, command.settings.rounds))
    return EXIT_DIVERGED if result.status == "diverged" else 0


def _summary(name: str, result: Run, rounds: int) -> str:
    if result.status == "diverged":
        return (
            f"{name} diverged in round {len(result.metrics) + 1}: {result.reason}; "
            f"the last good model is {result.checkpoint} (try a smaller --lr)"
        )
    if not result.metrics:
        return f"initial model of {name}: {result.checkpoint}"
    last = result.metrics[-1]
    miou = f", test mIoU {last['test_miou']:.2%}" if "test_miou" in last else ""
    return (
        f"{name}, {last['round']} rounds: train loss {last['train_loss']:.4f}, test loss {last['test_loss']:.4f}, "
        f"test accuracy {last['test_accuracy']:.2%}{miou}\ncheckpoint: {result.checkpoint}"
    )


def command_line() -> int:
    """The console script."""
    return run(main)


if __name__ == "__main__":
    sys.exit(command_line())
