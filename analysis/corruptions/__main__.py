"""Loss and accuracy on corrupted test images: ``python -m analysis.corruptions CKPT [CKPT ...] --out DIR``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from analysis.corruptions.measure import measure_corruptions
from analysis.corruptions.robustness import Robustness
from analysis.source import Place, option
from landscape import FedscapeError
from landscape.checkpoints.foreign import checkpoint_file
from landscape.data.corruptions import SEVERITIES
from landscape.storage.files import write_json, write_text
from landscape.storage.outputs import PRODUCER, ForceFlag, Output, check_outputs, pictures
from landscape.storage.style import PictureStyle, StyleName
from landscape.terminal.command import read, run
from landscape.terminal.stopping import continuing
from landscape.version import versions

PROGRAM = "python -m analysis.corruptions"
CONFIG = (tyro.conf.OmitArgPrefixes,)


@dataclass(frozen=True)
class Command:
    """Loss and accuracy on corrupted test images, of one checkpoint or of several side by side.

    Read are the files of CIFAR-10-C and CIFAR-100-C (Hendrycks & Dietterich, ICLR 2019); with --generate fourteen of
    their nineteen corruptions are generated instead, of any images. mCE is relative to the first checkpoint's errors.
    Killed or interrupted, the same command continues where it was.
    """

    checkpoints: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(metavar="CKPT [CKPT ...]", help_behavior_hint=""),
    ]
    """checkpoint files, run directories for their ckpt.pt, or state dicts from elsewhere (with --model and --data)"""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """write corruptions.json, .csv, .md, .tex and .png there, and what a resumed command reads (corruptions.jsonl)"""
    corruptions: Annotated[tuple[str, ...], option("NAME [NAME ...]", "all there are")] = ()
    """which, such as gaussian_noise fog jpeg_compression"""
    severities: Annotated[tuple[int, ...], option("N [N ...]", "1 2 3 4 5")] = SEVERITIES
    """which, of 1 to 5"""
    generate: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """generate the corruptions instead of reading published files; tables and pictures say so"""
    seed: int = 0
    """of generated corruptions"""
    place: Place = field(default_factory=Place)
    style: PictureStyle = field(default_factory=PictureStyle)
    force: ForceFlag = False
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """no progress bar"""

    def outputs(self) -> list[Output]:
        """All files that the command writes."""
        at, columns = self.out, ("model", "corruption", "images")
        return [
            Output("--out", at / "corruptions.jsonl", "lines", continued=True),
            Output("--out", at / "corruptions.json", "json", ("checkpoints", "corruptions", "severities")),
            Output("--out", at / "corruptions.csv", "csv", columns),
            Output("--out", at / "corruptions.md", "markdown"),
            Output("--out", at / "corruptions.tex", "latex"),
            *pictures("--out", at / "corruptions.png", paper=self.style.paper),
        ]


def kinds() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """What the options are made of, by program, with tyro's configuration."""
    return {PROGRAM: (Command, CONFIG)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure, print, write."""
    given = sys.argv[1:] if arguments is None else arguments
    command = read(Command, PROGRAM, given, CONFIG)
    if not command.checkpoints:
        raise FedscapeError(f"give at least one checkpoint file (see {PROGRAM} --help)")
    check_outputs(command.outputs(), [checkpoint_file(file) for file in command.checkpoints], force=command.force)
    out, state = command.out, command.out / "corruptions.jsonl"
    with continuing(f"what was measured so far is in {state}: the same command continues"):
        found = measure_corruptions(
            command.checkpoints,
            command.corruptions,
            command.severities,
            generate=command.generate,
            seed=command.seed,
            place=command.place,
            state=state,
            progress=not command.quiet,
        )
    print(found.on_screen())
    save(found, [str(path) for path in command.checkpoints], out, command.style)
    return 0


def save(found: Robustness, paths: Sequence[str], out: Path, style: PictureStyle | StyleName = "screen") -> None:
    """Write all numbers, the tables and the picture.

    Raises:
        FedscapeError: a file cannot be written.
    """
    numbers = {"checkpoints": list(paths), **found.to_dict(), "versions": versions()}
    write_json(out / "corruptions.json", numbers)
    details, summary = found.details(), found.summary()
    write_text(out / "corruptions.csv", details.csv())
    told = (found.title, *found.notes)
    above = "\n\n".join((f"<!-- {PRODUCER} -->", *told))
    write_text(out / "corruptions.md", f"{above}\n\n{summary.markdown()}\n{details.markdown()}")
    above = "\n".join(f"% {line}" for line in (PRODUCER, *told))
    write_text(out / "corruptions.tex", f"{above}\n{summary.latex()}\n{details.latex()}")
    found.plot(out / "corruptions.png", style)
    print(f"\nnumbers: {out / 'corruptions.json'}\ntables: {out / 'corruptions.csv'}, .md, .tex")
    print(f"plot: {out / 'corruptions.png'}")


def command_line(arguments: Sequence[str] | None = None) -> int:
    """The console script."""
    return run(lambda: main(arguments))


if __name__ == "__main__":
    sys.exit(command_line())
