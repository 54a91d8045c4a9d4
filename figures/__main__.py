"""``python -m figures list``, ``make ID ...``, ``gallery``, ``status``, ``show ID``, ``compare CKPT CKPT ...``,
``demo`` and ``contact-sheet DATA``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from analysis.source import Source
from figures.commands.gallery import Gallery
from figures.commands.listing import List, Show, Status
from figures.commands.make import Make
from figures.comparison import compare
from figures.demo import demo
from figures.images import contact_sheet
from landscape import load_dataset
from landscape.storage.pictures import check_picture, draw_picture
from landscape.storage.style import PictureStyle
from landscape.terminal.command import parse, run

PROGRAM = "python -m figures"


@dataclass(frozen=True)
class Compare:
    """Compare checkpoints on one sheet (training curves, eigenvalues, densities, loss surfaces) and in a table.

    Where the runs differ in client weights, aggregation, evaluated model, batches, local work or gradients a step,
    a warning says so. Measurements are kept in DIR/cache: the same command reads them, and continues what was
    interrupted.
    """

    checkpoints: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="CKPT [CKPT ...]")]
    """two to seven checkpoint files of the same data set"""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("compare")
    """folder for compare.png, .pdf, .svg, .txt and .csv"""
    top: int = 10
    """how many of the largest eigenvalues"""
    points: int = 21
    """points along each axis of the surfaces"""
    span: float = 1.0
    """farthest step along a direction of the surfaces; at 1 each filter has moved by its own length"""
    trace_tolerance: float = 0.02
    """standard error wanted of the trace, as a share of it"""
    trace_probes: int = 100
    """at most so many random probes of the trace"""
    probes: int = 8
    """random probes of the density: more narrow its error"""
    steps: int = 40
    """Lanczos steps of each probe of the density"""
    seed: int = 0
    """of all random vectors; the surfaces share their random numbers"""
    quiet: bool = False
    """no progress bars"""
    source: Source = field(default_factory=Source)
    style: PictureStyle = field(default_factory=PictureStyle)

    def run(self) -> None:
        """Measure, draw, print."""
        options = {name: value for name, value in vars(self).items() if name not in ("checkpoints", "out", "quiet")}
        result = compare(self.checkpoints, self.out, **options, progress=not self.quiet)
        print("\n".join([str(result.table()), *result.notes()]))
        print("\n".join(f"written: {file}" for file in result.files))


@dataclass(frozen=True)
class Demo:
    """Train FedAvg and FedASAM on the embedded digits, measure both, draw the comparison (a minute or two)."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("demo")
    """folder for the runs and the sheet"""
    quiet: bool = False
    """no progress bars"""

    def run(self) -> None:
        """Train, measure, draw, print."""
        demo(self.out, progress=not self.quiet)


@dataclass(frozen=True)
class ContactSheet:
    """Draw images of a data set with their classes, to see whether it is what it should be."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """the data set, as training takes it with --data"""
    data_dir: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(where it lies on disk)")] = None
    """folder that holds the data set's own folder"""
    split: Literal["train", "test"] = "train"
    """which of its images"""
    images: int = 25
    """how many, at random"""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("contact-sheet.png")
    """picture to write"""
    style: PictureStyle = field(default_factory=PictureStyle)

    def run(self) -> None:
        """Load, draw, write."""
        check_picture(self.out)
        dataset = load_dataset(self.data, self.data_dir)
        draw_picture(lambda: contact_sheet(dataset, self.images, self.split), self.out, self.style)
        print(f"written: {self.out}")


Command = Compare | ContactSheet | Demo | Gallery | List | Make | Show | Status


def read(arguments: Sequence[str] | None = None) -> Command:
    """The command that the arguments ask for."""
    given = sys.argv[1:] if arguments is None else arguments
    command: Command = parse(
        lambda: tyro.extras.subcommand_cli_from_dict(
            {
                "list": List,
                "make": Make,
                "gallery": Gallery,
                "status": Status,
                "show": Show,
                "compare": Compare,
                "contact-sheet": ContactSheet,
                "demo": Demo,
            },
            prog=PROGRAM,
            description="Make the figures and tables of the papers, and compare checkpoints.",
            args=given,
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
        ),
        PROGRAM,
    )
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse and run one of the commands; the exit code."""
    return read(arguments).run() or 0


def command_line() -> int:
    """The console script."""
    return run(main)


if __name__ == "__main__":
    sys.exit(command_line())
