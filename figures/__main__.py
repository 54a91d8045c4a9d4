"""``python -m figures list``, ``make ID ...``, ``numbers ID ...``, ``gallery``, ``status``, ``show ID``,
``sweep GRID.toml``, ``curves RUN ...``, ``compare CKPT CKPT ...``, ``report CKPT ...``, ``demo`` and
``contact-sheet DATA``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import tyro

from analysis.source import Source
from figures.alike import Panels, Recipe
from landscape.checkpoints.foreign import checkpoint_file
from landscape.datasets import load_dataset
from landscape.storage.outputs import ForceFlag, Output, check_outputs, pictures
from landscape.storage.style import PictureStyle
from landscape.terminal import command
from landscape.terminal.guides import GUIDES
from landscape.terminal.stopping import continuing

PROGRAM = "python -m figures"


@dataclass(frozen=True)
class Compare:
    """Compare checkpoints on one sheet (training curves, eigenvalues, densities, loss surfaces) and in a table.

    Where the runs differ in client weights, aggregation, evaluated model, batches, local work or gradients a step,
    a warning says so. Measurements are kept in DIR/cache: the same command reads them, and continues what was
    interrupted.
    """

    checkpoints: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="CKPT [CKPT ...]")]
    """two to seven checkpoint files of the same data set, or run directories for their ckpt.pt"""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("compare")
    """folder for compare.png, .pdf, .svg, .txt and .csv"""
    recipe: Recipe = field(default_factory=Recipe)
    force: ForceFlag = False
    quiet: bool = False
    """no progress bars"""
    source: Source = field(default_factory=Source)
    style: PictureStyle = field(default_factory=PictureStyle)

    def run(self) -> None:
        """Measure, draw, print."""
        from figures.comparison import compare, written

        options = {**vars(self.recipe), "source": self.source, "style": self.style}
        read = [checkpoint_file(file) for file in self.checkpoints]
        check_outputs(written("--out", self.out, paper=self.style.paper), read, force=self.force)
        with continuing(f"the measurements so far are in {self.out / 'cache'}: the same command continues"):
            result = compare(self.checkpoints, self.out, **options, progress=not self.quiet)
        print("\n".join([result.table().on_screen(), *result.notes()]))
        print("\n".join(f"written: {file}" for file in result.files))


@dataclass(frozen=True)
class Report:
    """Write one page of all models, to pass around: verdict, what to trust, curves, spectra, surfaces, clients, layers.

    Runs that differ in their seed alone are one group; the verdict compares each group with the first, with intervals
    over the seeds. The page needs no network. Measurements are kept in a folder named as the page: the same command
    reads them, and continues what was interrupted.
    """

    checkpoints: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="CKPT [CKPT ...]")]
    """checkpoint files of one data set, or run directories for their ckpt.pt"""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE", aliases=("-o",))] = Path("report.html")
    """the page; measurements go to a folder of its name without .html"""
    recipe: Recipe = field(default_factory=Recipe)
    panels: Panels = field(default_factory=Panels)
    force: ForceFlag = False
    quiet: bool = False
    """no progress bars"""
    source: Source = field(default_factory=Source)

    def run(self) -> None:
        """Measure, write, print the verdict."""
        from figures.report import verdict
        from figures.reporting import write_report

        read = [*(checkpoint_file(file) for file in self.checkpoints), *self.panels.alignment]
        check_outputs([Output("--out", self.out, "page")], read, force=self.force)
        with continuing(f"the measurements so far are in {self.out.with_suffix('')}: the same command continues"):
            subjects = write_report(
                self.checkpoints, self.out, self.recipe, source=self.source, panels=self.panels,
                command=self._command(), progress=not self.quiet,
            )  # fmt: skip
        print("\n".join(verdict(subjects)))
        print(f"written: {self.out}")

    def _command(self) -> str:
        """The command line that makes the page again: what differs from the defaults."""
        words = ["fedscape", "report", *map(str, self.checkpoints)]
        for options, usual in (
            (self, type(self)(())),
            (self.recipe, Recipe()),
            (self.panels, Panels()),
            (self.source, Source()),
        ):
            for name, value in vars(options).items():
                if is_dataclass(value) or name in ("checkpoints", "force", "quiet") or value == getattr(usual, name):
                    continue
                several = isinstance(value, (tuple, list))
                texts = [] if value is True else [str(each) for each in (value if several else [value])]
                words += [f"--{name.replace('_', '-')}", *texts]
        return shlex.join(words)


@dataclass(frozen=True)
class Demo:
    """Train FedAvg and FedASAM on the embedded digits, measure both, draw the comparison (a minute or two)."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("demo")
    """folder for the runs and the sheet"""
    force: ForceFlag = False
    quiet: bool = False
    """no progress bars"""

    def run(self) -> None:
        """Train, measure, draw, print."""
        from figures.comparison import written
        from figures.demo import demo

        check_outputs(written("--out", self.out / "compare"), force=self.force)
        with continuing(f"the work so far is in {self.out}: the same command continues"):
            demo(self.out, force=self.force, progress=not self.quiet)


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
    force: ForceFlag = False
    style: PictureStyle = field(default_factory=PictureStyle)

    def run(self) -> None:
        """Load, draw, write."""
        from figures.images import contact_sheet
        from landscape.storage.pictures import check_picture, draw_picture

        check_picture(self.out)
        check_outputs(pictures("--out", self.out, paper=self.style.paper), force=self.force)
        dataset = load_dataset(self.data, self.data_dir)
        draw_picture(lambda: contact_sheet(dataset, self.images, self.split), self.out, self.style)
        print(f"written: {self.out}")


class Command(Protocol):
    """What the arguments ask for."""

    def run(self) -> int | None:
        """Do it; the exit code."""


_OWN: dict[str, type[Command]] = {
    "compare": Compare,
    "contact-sheet": ContactSheet,
    "demo": Demo,
    "report": Report,
}


def _of_papers() -> dict[str, type[Command]]:
    """The commands that make the papers' figures: what draws is loaded with them, not for the others."""
    from figures.commands.curves import Curves
    from figures.commands.gallery import Gallery
    from figures.commands.listing import List, Show, Status
    from figures.commands.make import Make
    from figures.commands.numbers import Numbers

    return {
        "list": List,
        "make": Make,
        "numbers": Numbers,
        "gallery": Gallery,
        "status": Status,
        "show": Show,
        "curves": Curves,
    }


def _of_grids() -> dict[str, type[Command]]:
    """The command that trains: what draws is not loaded with it."""
    from figures.commands.sweep import Sweep

    return {"sweep": Sweep}


CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)


def read(arguments: Sequence[str] | None = None) -> Command:
    """The command that the arguments ask for."""
    given = sys.argv[1:] if arguments is None else arguments
    there = {program.split()[-1]: guide.does for program, guide in GUIDES.items() if program.startswith(f"{PROGRAM} ")}
    name = command.chosen(PROGRAM, there, given)
    kind: Callable[..., Command] = (
        _OWN[name] if name in _OWN else (_of_grids if name == "sweep" else _of_papers)()[name]
    )
    return command.read(kind, f"{PROGRAM} {name}", given[1:], CONFIG)


def kinds() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """What the options are made of, by program, with tyro's configuration."""
    return {f"{PROGRAM} {name}": (kind, CONFIG) for name, kind in (_of_papers() | _of_grids() | _OWN).items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse and run one of the commands; the exit code."""
    return read(arguments).run() or 0


def command_line(arguments: Sequence[str] | None = None) -> int:
    """The console script."""
    return command.run(lambda: main(arguments))


if __name__ == "__main__":
    sys.exit(command_line())
