"""Clients' losses beside the federation's: ``python -m analysis.alignment RUN [RUN ...] --out DIR``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from analysis.alignment.measure import measure_alignment
from analysis.alignment.opening import Who
from analysis.alignment.options import Asked
from analysis.alignment.results import Alignment
from analysis.source import Place, option
from landscape import FedscapeError
from landscape.checkpoints.foreign import checkpoint_file
from landscape.compute.devices import cpu_threads
from landscape.compute.distributed import joined, rank_and_world
from landscape.storage.files import write_json, write_text
from landscape.storage.outputs import ForceFlag, Output, check_outputs, pictures
from landscape.storage.style import PictureStyle, StyleName
from landscape.terminal.command import read, run
from landscape.terminal.stopping import continuing
from landscape.version import versions

PROGRAM = "python -m analysis.alignment"
CONFIG = (tyro.conf.OmitArgPrefixes,)
_COLUMNS = ("run", "round", "quantity", "mean")


@dataclass(frozen=True)
class Command:
    """How the losses of a federation's clients lie to one another and to their weighted mean f, run by run.

    Gradients, ascent steps and the Hessians' largest eigenspaces are compared at a run's global model; the local models
    that it saved (--save-clients) beside the model received and the aggregate. Every number has its errors: residuals,
    probes, and the sampling of clients where not all are measured. Killed or interrupted, the same command continues.
    Under torchrun the ranks divide the clients.
    """

    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint=""),
    ]
    """run directories, or checkpoints in them (ckpt.pt, rounds/NNNNN.pt)"""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """write alignment.json, .csv and .png and matrices_N.png of run N there, and what a resumed command reads
    (alignment.jsonl)"""
    rounds: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """measure every rounds/NNNNN.pt of the runs (--save-every), and draw curves"""
    clients: Annotated[tuple[str, ...], option("{sampled,all,ID} [ID ...]", "sampled")] = ("sampled",)
    """who is looked at one by one: those whose models a round saved, all, or these; f is always over all clients"""
    asked: Asked = field(default_factory=Asked)
    place: Place = field(default_factory=Place)
    threads: Annotated[int | None, option("N", "OMP_NUM_THREADS; else 1 for small work, or PyTorch's")] = None
    """CPU threads"""
    style: PictureStyle = field(default_factory=PictureStyle)
    force: ForceFlag = False
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """no progress bar"""

    def who(self) -> Who:
        """The clients.

        Raises:
            FedscapeError: a word that is none.
        """
        if self.clients == ("sampled",):
            return "sampled"
        if self.clients == ("all",):
            return "all"
        if not self.clients or not all(word.isdecimal() for word in self.clients):
            raise FedscapeError(f"--clients {' '.join(self.clients)}: give sampled, all, or clients' numbers")
        return tuple(map(int, self.clients))

    def outputs(self) -> list[Output]:
        """All files that the command writes."""
        at, paper = self.out, self.style.paper
        return [
            Output("--out", at / "alignment.jsonl", "parts", continued=True),
            Output("--out", at / "alignment.json", "json", ("asked", "device", "dtype", "runs")),
            Output("--out", at / "alignment.csv", "csv", _COLUMNS),
            *pictures("--out", at / "alignment.png", paper=paper),
            *(each for i in range(len(self.runs)) for each in pictures("--out", _matrices(at, i), paper=paper)),
        ]


def kinds() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """What the options are made of, by program, with tyro's configuration."""
    return {PROGRAM: (Command, CONFIG)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure, print, write."""
    given = sys.argv[1:] if arguments is None else arguments
    command = read(Command, PROGRAM, given, CONFIG)
    if not command.runs:
        raise FedscapeError(f"give at least one run directory (see {PROGRAM} --help)")
    who = command.who()
    check_outputs(command.outputs(), [checkpoint_file(path) for path in command.runs], force=command.force)
    with cpu_threads(command.threads), joined(command.place.device) as device:
        here = replace(command, place=replace(command.place, device=str(device)))
        if rank_and_world()[0] == 0:
            found = _measure(here, who)
            print(found.on_screen())
            save(found, command.out, command.style)
        else:  # the other ranks measure their share
            _measure(replace(here, quiet=True), who)
    return 0


def _measure(command: Command, who: Who) -> Alignment:
    state = command.out / "alignment.jsonl"
    with continuing(f"what was measured so far is in {state}: the same command continues"):
        return measure_alignment(
            command.runs,
            who,
            rounds=command.rounds,
            asked=command.asked,
            place=command.place,
            state=state,
            progress=not command.quiet,
        )


def save(found: Alignment, out: Path, style: PictureStyle | StyleName = "screen") -> None:
    """Write all numbers, the table and the pictures.

    Raises:
        FedscapeError: a file cannot be written.
    """
    from analysis.alignment.plots import panels_of

    write_json(out / "alignment.json", {**found.to_dict(), "versions": versions()})
    write_text(out / "alignment.csv", found.details().csv())
    print(f"\nnumbers: {out / 'alignment.json'}\ntable: {out / 'alignment.csv'}")
    if panels_of(found):
        found.plot(out / "alignment.png", style)
        print(f"plot: {out / 'alignment.png'}")
    if set(found.asked.parts) - {"local", "used"}:
        for i in range(len(found.runs)):
            found.plot_matrices(i, _matrices(out, i), style)
            print(f"plot: {_matrices(out, i)}")


def _matrices(out: Path, run: int) -> Path:
    return out / f"matrices_{run + 1}.png"


def command_line(arguments: Sequence[str] | None = None) -> int:
    """The console script."""
    return run(lambda: main(arguments))


if __name__ == "__main__":
    sys.exit(command_line())
