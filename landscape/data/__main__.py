"""``python -m landscape.data list | fetch NAME --data-dir DIR | verify NAME --data-dir DIR``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from landscape.data.checksums import verify
from landscape.data.fetch import fetch
from landscape.data.sources import PROGRAM, SOURCES
from landscape.datasets import DATASETS
from landscape.errors import FedscapeError
from landscape.terminal.command import chosen, read, run
from landscape.terminal.guides import GUIDES

Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
Folder = Annotated[Path, tyro.conf.arg(metavar="DIR")]


@dataclass(frozen=True)
class List:
    """What there is: each data set's name and what it holds."""

    def run(self) -> None:
        """Print one line per data set."""
        for name, loader in sorted(DATASETS.items()):
            print(f"{name:14} {(loader.__doc__ or '').splitlines()[0]}")


@dataclass(frozen=True)
class Fetch:
    """Download a data set, check it against its published checksum, unpack it."""

    name: Name
    """the data set"""
    data_dir: Folder
    """the folder that will hold the data set's own folder"""

    def run(self) -> None:
        """Download, and print the folder and what to do by hand."""
        name = self.name.replace("-", "_")
        print(f"{name} is in {fetch(name, self.data_dir)}")
        if SOURCES[name].by_hand:
            print(SOURCES[name].by_hand)


@dataclass(frozen=True)
class Verify:
    """Compare a data set's files with their published checksums; exit code 2 where one differs."""

    name: Name
    """the data set"""
    data_dir: Folder
    """the folder that holds the data set's own folder"""

    def run(self) -> None:
        """Print the table."""
        table = verify(self.name.replace("-", "_"), self.data_dir)
        print(table)
        if differing := [str(file) for file, content in table.rows if content == "differs"]:
            raise FedscapeError(f"not as published: {', '.join(differing)}")


CONFIG = (tyro.conf.OmitArgPrefixes,)
COMMANDS = {"list": List, "fetch": Fetch, "verify": Verify}


def kinds() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """What the options are made of, by program, with tyro's configuration."""
    return {f"{PROGRAM} {name}": (kind, CONFIG) for name, kind in COMMANDS.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse and run one of the commands."""
    given = sys.argv[1:] if arguments is None else arguments
    name = chosen(PROGRAM, {name: GUIDES[f"{PROGRAM} {name}"].does for name in COMMANDS}, given)
    command: List | Fetch | Verify = read(COMMANDS[name], f"{PROGRAM} {name}", given[1:], CONFIG)
    command.run()


def command_line(arguments: Sequence[str] | None = None) -> int:
    """The console script."""
    return run(lambda: main(arguments))


if __name__ == "__main__":
    sys.exit(command_line())
