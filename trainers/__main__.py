"""``python -m trainers ALGORITHM ...``: train and write a run directory.

``ALGORITHM`` is a name of ours, or ``package.module:Class``, an algorithm of the user's own; a
``--config FILE`` may name it.
``list`` lists the algorithms, ``report`` compares runs, ``partition`` shows how a data set is divided over clients.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from landscape.errors import FedscapeError
from landscape.profiling import profile_outputs, told
from landscape.storage.outputs import ForceFlag, check_outputs
from landscape.terminal.command import EXIT_DIVERGED, chosen, run
from landscape.terminal.command import read as parsed
from landscape.terminal.guides import GUIDES, Guide
from landscape.terminal.notices import notice
from landscape.terminal.options import Option
from landscape.terminal.options import options as every_option
from landscape.terminal.stopping import continuing
from trainers.algorithm import Algorithm
from trainers.algorithms import ALGORITHMS, algorithm_name
from trainers.commands import listing, partition, report
from trainers.config import with_config
from trainers.flags import PartFlags, part_flags
from trainers.own import own_algorithm, own_running
from trainers.parts.parts import Parts
from trainers.protocols import Expanded, expanded
from trainers.ranks import launch, obey_launcher, to_launch
from trainers.runs.run import Run, train
from trainers.settings import Settings, optional

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
    profile: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: none)")] = None
    """look where the time of three rounds after the first goes: tables on the screen, profile.json and trace.json.gz
    there; the model is the same, bit for bit; of several ranks the first is looked at, and how long it waits"""
    config: Annotated[Path | None, optional("FILE", "none")] = None
    """options from a TOML file (rounds = 200, by their names; algorithm = "fedsam", too), or from a run directory's
    config.json; those of the command line go first, and --no-NAME takes back a switch"""
    log: Annotated[Literal["tensorboard"] | None, optional("{tensorboard}", "none")] = None
    """write the metrics as TensorBoard's events, too (DIR/tensorboard); needs pip install 'fedscape[tensorboard]'"""
    force: ForceFlag = False
    ranks: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """so many processes on this machine share the local work of a round, with one CPU thread each unless
    OMP_NUM_THREADS says more (torchrun starts them on several machines: docs/cluster.md)"""
    quiet: bool = False
    """no progress bar"""
    protocol: Annotated[str | None, optional("NAME", "none")] = None
    """do what a repository's code does, but for the options given: fl-simulator, feddyn, feddc, fedsam, fedman,
    fedlesam, fedgloss or adabest; its options go into config.json"""
    show: bool = False
    """print the options that --protocol stands for, with their sources, and train nothing"""


@dataclass(frozen=True)
class Command:
    """A parsed command line."""

    algorithm: Algorithm
    parts: Parts
    settings: Settings
    output: Output
    protocol: Expanded | None = None


def _subcommand(kind: type[Algorithm]) -> Callable[..., Command]:
    def command(algorithm: Algorithm, parts: PartFlags, settings: Settings, output: Output) -> Command:
        return Command(algorithm, parts.parts(), settings, output)

    types = {"algorithm": kind, "parts": part_flags(kind), "settings": Settings, "output": Output, "return": Command}
    command.__annotations__ = types
    command.__doc__ = _does(kind)
    return command


def read(arguments: Sequence[str]) -> Command:
    """Parse a command line.

    Raises:
        FedscapeError: an option is unknown or has a wrong value; SystemExit after ``--help``.
    """
    arguments = with_config(arguments, kind_of, options_of)
    if arguments and ":" in arguments[0] and not arguments[0].startswith("-"):
        kind = kind_of(arguments[0])
        with own_running(kind):  # its __post_init__
            return _read(arguments[0], kind, arguments[1:])
    there = {name: _does(kind) for name, kind in ALGORITHMS.items()}
    there["package.module:Class"] = "an algorithm of your own, a subclass of trainers.Algorithm in this folder"
    there |= {name: GUIDES[f"{PROGRAM} {name}"].does for name in COMMANDS}
    name = chosen(PROGRAM, there, arguments, "algorithm")
    return _read(name, ALGORITHMS.get(name), arguments[1:])


def kind_of(name: str) -> type[Algorithm]:
    """The class of an algorithm, by its name or the user's own.

    Raises:
        FedscapeError: there is no such algorithm.
    """
    if ":" not in name:
        return ALGORITHMS.get(name)
    settings = {each.name for kind in (Settings, Output) for each in fields(kind)}
    return own_algorithm(name, RECORDED | settings)


def options_of(name: str) -> list[Option]:
    """The options of an algorithm, as :func:`kind_of` takes it."""
    return every_option(_subcommand(kind_of(name)), CONFIG)


def _does(kind: type[Algorithm]) -> str:
    paper = getattr(kind, "paper", "")  # one's own need not have a paper
    return (kind.__doc__ or "").partition("\n")[0] + (f" ({paper})" if paper else "")


def _read(name: str, kind: type[Algorithm], arguments: Sequence[str]) -> Command:
    """Parse the options of an algorithm, by its name or the user's own."""
    program = f"{PROGRAM} {name}"
    run_directory = f"runs/{name.replace(':', '.')}"
    examples = (
        ("", f"on the embedded digits, into {run_directory}"),
        ("--rounds 200 --lr 0.05 --out runs/mine", "with other settings"),
        ("--rounds 200 --lr 0.05 --out runs/mine --resume", "go on after a kill"),
    )
    own = tuple(f"--{each.name.replace('_', '-')}" for each in fields(kind))
    guide = Guide(program, _does(kind), examples, (*own, *GUIDES[PROGRAM].common))
    taken = expanded(name, list(arguments))
    words = [*([] if taken is None else taken.arguments()), *arguments]
    return replace(parsed(_subcommand(kind), program, words, CONFIG, guide=guide), protocol=taken)


def kinds() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """What the options are made of, by program, with tyro's configuration."""
    algorithms = {f"{PROGRAM} {name}": (_subcommand(kind), CONFIG) for name, kind in ALGORITHMS.items()}
    return algorithms | {
        listing.PROGRAM: (listing.Command, ()),
        report.PROGRAM: (report.Command, ()),
        partition.PROGRAM: (partition.Command, partition.CONFIG),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as the command line says and print the path of the checkpoint; return 0, or 3 if the run diverged.

    ``list``, ``report`` and ``partition`` have their own options.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in COMMANDS:
        return COMMANDS[given[0]](given[1:])
    command = read(given)
    if command.output.show:
        if command.protocol is None:
            raise FedscapeError("--show is of --protocol: give that too")
        print(command.protocol)
        return 0
    if command.protocol is not None and not command.protocol.known:
        notice(command.protocol.note)
    _check_profile(command)
    if to_launch(command.output.ranks):
        return launch(command.output.ranks, "trainers", given)
    obey_launcher()
    name = algorithm_name(command.algorithm)
    out = command.output.out or Path("runs") / name.replace(":", ".")  # Windows has no colons in names of files
    first = os.environ.get("RANK", "0") == "0"
    options: dict[str, Any] = {
        "resume": command.output.resume,
        "force": command.output.force,
        "progress": not command.output.quiet,
        "protocol": "" if command.protocol is None else command.protocol.protocol.name,
        "log": command.output.log,
    }
    going_on = continuing(f"the rounds done so far are in {out}: the same command with --resume continues")
    with own_running(type(command.algorithm)), going_on, told("round", command.output.profile if first else None):
        result = train(command.algorithm, command.settings, command.parts, out=out, **options)
    if first:
        print(_summary(name, result, command.settings.rounds))
    if first and command.parts.dp is not None and result.metrics:
        share = command.settings.per_round / command.settings.clients
        print(command.parts.dp.told(result.metrics[-1]["round"], share))
    return EXIT_DIVERGED if result.status == "diverged" else 0


def _check_profile(command: Command) -> None:
    """Refuse, before the first round, a profile of too few rounds or over something else.

    Raises:
        FedscapeError: that is asked for.
    """
    if command.output.profile is not None and command.settings.rounds < 2:
        raise FedscapeError("--profile leaves out the first round: give --rounds 2 or more")
    check_outputs(profile_outputs(command.output.profile), force=command.output.force)


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


def command_line(arguments: Sequence[str] | None = None) -> int:
    """The console script."""
    return run(lambda: main(arguments))


if __name__ == "__main__":
    sys.exit(command_line())
