"""``python -m figures make``: runs, measurements, pictures and tables of recipes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TextIO

import tyro

from figures.commands.listing import counted, needed
from figures.commands.options import Ids, Selection
from figures.commands.work import Work
from figures.contents.content import Results
from figures.graph import Node, Outcome, Store
from figures.graph.cost import Costs
from figures.recipes import Asked, Recipe
from figures.recipes.writing import write_recipe
from landscape.storage.files import make_directory
from landscape.storage.outputs import check_folder
from landscape.storage.style import PictureStyle
from landscape.terminal.table import Table
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
    work: Work = field(default_factory=Work)
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """tell what would be made and what it costs, and make nothing"""
    style: PictureStyle = field(default_factory=PictureStyle)

    def run(self) -> int:
        """Make; the exit code."""
        recipes = self.selection.recipes(self.ids)
        if self.dry_run:
            print(planned_work(recipes, self.selection.asked, self.selection.store))
            return 0
        return make_recipes(recipes, self.selection, self.work, self.style).report(sys.stderr)


@dataclass(frozen=True)
class Made:
    """What became of recipes.

    Attributes:
        outcome: of their nodes.
        written: the files of each, by id.
        broken: why those were not drawn that could not be, by id.
    """

    outcome: Outcome
    written: dict[str, list[Path]]
    broken: dict[str, str]

    def report(self, stream: TextIO) -> int:
        """Tell what failed; the exit code."""
        for node, reason in self.outcome.failed.items():
            print(f"failed: {node.name}: {reason}", file=stream)
        for node in self.outcome.busy:
            print(f"not made: {node.name}: another process is making it; give the command again later", file=stream)
        for name, reason in self.broken.items():
            print(f"not made: {name}: {reason}", file=stream)
        return 1 if self.outcome.failed or self.outcome.busy or self.broken else 0


def make_recipes(recipes: Sequence[Recipe], selection: Selection, work: Work, style: PictureStyle) -> Made:
    """Make what recipes need, and write each as soon as it has that."""
    asked, store = selection.asked, selection.store
    check_folder("--out", selection.out, (f"store/{name}" for name in ("runs", "measurements")), force=work.force)
    make_directory(store.runs.folder)
    missing = {recipe.id: set(needed(recipe, asked)) for recipe in recipes}
    written: dict[str, list[Path]] = {}
    failed: dict[Node, str] = {}
    broken: dict[str, str] = {}

    def write(recipe: Recipe) -> None:
        values = {node: store.result(node) for node in recipe.content(asked).nodes() if node not in failed}
        try:
            written[recipe.id] = write_recipe(recipe, asked, Results(values, failed), selection.out, style)
        except Exception as error:  # as of a node: it is this figure's own, and the others are drawn
            broken[recipe.id] = told(error)
        else:
            print("\n".join(f"written: {file}" for file in written[recipe.id]), flush=True)

    def ended(node: Node, reason: str | None) -> None:
        if reason is not None:
            failed[node] = reason
        for recipe in recipes:
            if node in missing[recipe.id]:
                missing[recipe.id].remove(node)
                if not missing[recipe.id]:
                    write(recipe)

    for recipe in recipes:
        if not missing[recipe.id]:  # it needs nothing
            write(recipe)
    nodes = list(dict.fromkeys(node for recipe in recipes for node in needed(recipe, asked)))
    return Made(work.execute(nodes, store, ended), written, broken)


def planned_work(recipes: Sequence[Recipe], asked: Asked, store: Store) -> Table:
    """What is to be made for each recipe and for all of them, and what that costs."""
    needs = {recipe.id: needed(recipe, asked) for recipe in recipes}
    needs["together"] = list(dict.fromkeys(node for nodes in needs.values() for node in nodes))
    costs = Costs(store, needs["together"])
    left = {name: [node for node in nodes if store.state(node) != "done"] for name, nodes in needs.items()}
    rows = [(name, *counted(nodes), costs.text(nodes)) for name, nodes in left.items()]
    return Table(("to make", "runs", "measurements", "h:min on one core"), tuple(rows))
