"""``python -m figures make``: runs, measurements, pictures and tables of recipes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from figures.commands.options import Ids, Selection, none
from figures.contents.content import Results
from figures.graph import Node, Outcome, Place, Store, execute
from figures.graph.nodes import with_runs
from figures.recipes import Asked, Recipe
from figures.recipes.writing import write_recipe
from landscape import FedscapeError
from landscape.storage.style import PictureStyle
from trainers.runs.planned import told


@dataclass(frozen=True)
class Make:
    """Make figures and tables of the papers: flat-minima/F1, man/F4 (F4a and F4b), flat-minima (all of it), all.

    Runs and measurements are shared between figures, kept in DIR/store by what decides their result, and continued
    where they were interrupted. What fails is told at the end (exit code 1); all that does not depend on it is made.
    """

    ids: Ids
    """figures and tables"""
    selection: Selection = field(default_factory=Selection)
    device: str = "auto"
    """auto (CUDA where there is one), cpu, cuda or cuda:N"""
    data_dir: Annotated[Path | None, none("DIR", "digits need none")] = None
    """folder that holds the data sets' own folders (cifar-10-batches-py, ...)"""
    jobs: int = 1
    """runs and measurements side by side, each in a process of its own; results do not depend on it"""
    ray: Annotated[str | None, none("ADDRESS", "none")] = None
    """make them as tasks of this Ray cluster; local starts one here"""
    gpus: float = 0.0
    """with --ray: the share of a GPU that each takes, such as 0.25"""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """tell what would be made and what it costs, and make nothing"""
    style: PictureStyle = field(default_factory=PictureStyle)
    quiet: bool = False
    """no progress bar"""

    def run(self) -> int:
        """Make; the exit code."""
        asked, store = self.selection.asked, self.selection.store
        recipes = self.selection.recipes(self.ids)
        needed = with_runs(node for recipe in recipes for node in recipe.content(asked).nodes())
        if self.dry_run:
            print(f"{len(recipes)} figures and tables, {len(needed)} runs and measurements")
            return 0
        place = Place(self.device, self.data_dir, gpus=self.gpus)
        outcome = execute(needed, store, place, jobs=self.jobs, ray=self.ray, progress=not self.quiet)
        broken = write_all(recipes, asked, store, outcome, self.selection.out, self.style)
        for node, reason in outcome.failed.items():
            print(f"failed: {node.name}: {reason}", file=sys.stderr)
        for name, reason in broken.items():
            print(f"not made: {name}: {reason}", file=sys.stderr)
        return 1 if outcome.failed or broken else 0


def write_all(
    recipes: Sequence[Recipe], asked: Asked, store: Store, outcome: Outcome, out: Path, style: PictureStyle
) -> dict[str, str]:
    """Write what can be written; the reasons of what cannot, by id."""
    failed: dict[Node, str] = dict(outcome.failed)
    failed |= {node: f"it needs {run.name}, which failed" for node, run in outcome.blocked.items()}
    broken = {}
    for recipe in recipes:
        nodes = recipe.content(asked).nodes()
        values = {node: store.result(node) for node in nodes if node not in failed}
        try:
            written = write_recipe(recipe, asked, Results(values, failed), out, style)
        except FedscapeError as error:
            broken[recipe.id] = told(error)
        else:
            print("\n".join(f"written: {file}" for file in written))
    return broken
