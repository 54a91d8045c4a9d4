"""The options that the commands share: which figures and tables, at which scale, kept where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from figures.graph import Store
from figures.recipes import PAPERS, Asked, Recipe, chosen
from figures.recipes.recipe import ScaleName
from landscape import FedscapeError


def none(metavar: str, default: str) -> object:
    """How ``--help`` shows an option whose default is no plain value."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


Ids = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="ID [ID ...]")]


@dataclass(frozen=True)
class Selection:
    """Which, and at which scale."""

    scale: ScaleName = "smoke"
    """smoke: the embedded digits, minutes on two cores; small: real CIFAR-10 with lenet_fed, hours on two cores; paper:
    the papers' own protocol, model and rounds"""
    data: Annotated[str | None, none("NAME", "the scale's")] = None
    """data set in place of the scale's, as training takes it with --data"""
    model: Annotated[str | None, none("NAME", "the scale's")] = None
    """network in place of the scale's"""
    seeds: Annotated[str | None, none("N,N,...", "the paper's, or the scale's")] = None
    """seeds of the runs, such as 0,1,2"""
    rounds: Annotated[int | None, none("N", "the scale's")] = None
    """communication rounds in place of the scale's"""
    choose: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, none("NAME=VALUE", "as `show` says")] = ()
    """something that a paper leaves open (`show ID` lists them); may be given several times"""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("paper-figures")
    """folder of pictures, tables and captions; runs and measurements are kept in DIR/store"""

    @property
    def asked(self) -> Asked:
        """What recipes are asked for.

        Raises:
            FedscapeError: seeds that are no numbers, a choice without a value.
        """
        try:
            seeds = None if self.seeds is None else tuple(int(word) for word in self.seeds.split(","))
        except ValueError:
            raise FedscapeError(f"--seeds is '{self.seeds}': give numbers with commas, such as 0,1,2") from None
        if bad := [word for word in self.choose if "=" not in word]:
            raise FedscapeError(f"--choose is '{bad[0]}': give NAME=VALUE, such as points=51")
        choices = dict(word.split("=", 1) for word in self.choose)
        return Asked(self.scale, self.data, self.model, seeds, self.rounds, choices)

    @property
    def store(self) -> Store:
        """Where runs and measurements are kept."""
        return Store(self.out / "store")

    def recipes(self, ids: tuple[str, ...]) -> list[Recipe]:
        """Those that ids name.

        Raises:
            FedscapeError: an id that names none, or a choice that none of them leaves.
        """
        found = chosen(PAPERS, ids)
        known = sorted({name for recipe in found for name in recipe.choices})
        if unknown := [name for name in self.asked.choices if name not in known]:
            there = f"there are {', '.join(known)}" if known else "there are none"
            raise FedscapeError(f"nothing called '{unknown[0]}' is left open in {', '.join(ids)}: {there}")
        return found
