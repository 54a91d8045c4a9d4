"""``python -m figures list``, ``status`` and ``show``."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from figures.commands.options import Ids, Selection
from figures.graph import Node, Store
from figures.graph.cost import Costs
from figures.graph.nodes import with_runs
from figures.recipes import Asked, Recipe
from figures.recipes.recipe import SCALES
from landscape.terminal.table import Table
from trainers.runs.planned import PlannedRun

_WIDTH = 40
"""Of what a figure shows, in the list; ``show ID`` has all of it."""


@dataclass(frozen=True)
class List:
    """List figures and tables: what each shows, how many runs and measurements it needs, how far it is, and what it
    costs at each scale, in hours:minutes on one core.

    Costs are from nothing, by measured speeds (finished runs in DIR/store correct them); what figures share is counted
    for each of them, and once in the total.
    """

    ids: Ids = ("all",)
    """figures and tables (default: all)"""
    selection: Selection = field(default_factory=Selection)

    def run(self) -> int:
        """Print the table; the exit code."""
        asked, store = self.selection.asked, self.selection.store
        recipes = self.selection.recipes(self.ids)
        at = {scale: [needed(recipe, replace(asked, scale=scale)) for recipe in recipes] for scale in SCALES}
        costs = Costs(store, (node for scale in SCALES for nodes in at[scale] for node in nodes))
        rows: list[tuple[str | float | None, ...]] = []
        for i, recipe in enumerate(recipes):
            shown = textwrap.shorten(recipe.shows, _WIDTH, placeholder=" …").ljust(_WIDTH)
            cost = (costs.text(at[scale][i]) for scale in SCALES)
            rows.append((recipe.id, shown, *counted(at[asked.scale][i]), _briefly(at[asked.scale][i], store), *cost))
        together = {scale: list(dict.fromkeys(node for nodes in at[scale] for node in nodes)) for scale in SCALES}
        cost = (costs.text(together[scale]) for scale in SCALES)
        mine = together[asked.scale]
        rows.append(
            ("total", f"{len(recipes)} figures and tables".ljust(_WIDTH), *counted(mine), _briefly(mine, store), *cost)
        )
        print(Table(("id", "shows".ljust(_WIDTH), "runs", "meas.", "state", *SCALES), tuple(rows)))
        print(f"runs, measurements (meas.) and state: {asked.scale}; the last columns: h:min on one core, from nothing")
        if any(">" in str(cell) or cell == "?" for row in rows for cell in row[-len(SCALES) :]):
            print(">, ?: the speed of some or all of the networks, or the size of the data, is not known before")
        return 0


@dataclass(frozen=True)
class Status:
    """Tell how far figures and tables are, and what failed and why."""

    ids: Ids = ("all",)
    """figures and tables (default: all)"""
    selection: Selection = field(default_factory=Selection)

    def run(self) -> int:
        """Print the table and the failures; the exit code."""
        asked, store = self.selection.asked, self.selection.store
        recipes = self.selection.recipes(self.ids)
        print(Table(("id", "state"), tuple((recipe.id, state(recipe, asked, store)) for recipe in recipes)))
        nodes = with_runs(node for recipe in recipes for node in recipe.content(asked).nodes())
        for node in nodes:
            if (reason := store.failure(node)) is not None:
                print(f"failed: {node.name}: {reason}")
        return 0


@dataclass(frozen=True)
class Show:
    """Tell all of figures and tables: what they show, what is chosen where the paper leaves it open, what is not
    reproduced, the paper's slips and its numbers."""

    ids: Ids
    """figures and tables"""
    selection: Selection = field(default_factory=Selection)

    def run(self) -> int:
        """Print; the exit code."""
        asked, store = self.selection.asked, self.selection.store
        for recipe in self.selection.recipes(self.ids):
            print(_told(recipe, asked, store))
        return 0


def state(recipe: Recipe, asked: Asked, store: Store) -> str:
    """How far the nodes of a recipe are, such as ``3 of 5 done, 1 failed``."""
    nodes = needed(recipe, asked)
    found = Counter(store.state(node) for node in nodes)
    if not nodes or found["done"] == len(nodes):
        return "done"
    if len(found) == 1 and "missing" in found:
        return "missing"
    others = [f"{found[name]} {name}" for name in ("partial", "failed") if found[name]]
    return ", ".join([f"{found['done']} of {len(nodes)} done", *others])


def needed(recipe: Recipe, asked: Asked) -> list[Node]:
    """The runs and measurements of a recipe."""
    return with_runs(recipe.content(asked).nodes())


def counted(nodes: Iterable[Node]) -> tuple[int, int]:
    """How many runs and measurements."""
    kinds = [isinstance(node, PlannedRun) for node in nodes]
    return kinds.count(True), kinds.count(False)


def _briefly(nodes: list[Node], store: Store) -> str:
    """How far they are, such as ``3/5, 1 failed``."""
    found = Counter(store.state(node) for node in nodes)
    if found["done"] == len(nodes):
        return "done"
    if found["missing"] == len(nodes):
        return "missing"
    return f"{found['done']}/{len(nodes)}" + (f", {found['failed']} failed" if found["failed"] else "")


def _told(recipe: Recipe, asked: Asked, store: Store) -> str:
    lines = [f"{recipe.id}: {recipe.shows}", f"state: {state(recipe, asked, store)}"]
    for scale in SCALES:
        nodes = needed(recipe, replace(asked, scale=scale))
        (runs, measures), cost = counted(nodes), Costs(store, nodes).text(nodes)
        told = f"{scale}: {runs} runs, {measures} measurements, {cost} (h:min on one core)."
        lines.append(f"{told} {recipe.stand_ins.get(scale, '')}".rstrip())
    for name, choice in recipe.choices.items():
        lines.append(f"--choose {name}={choice.text(asked.scale)}: {choice.why}")
    lines += [f"not reproduced, as only the authors' code has it: {hole}" for hole in recipe.holes]
    lines += [f"in the paper: {slip}" for slip in recipe.slips]
    if printed := recipe.printed():
        rows = tuple((row, column, str(number), number.unit) for (row, column), number in printed.items())
        lines += ["the paper prints:", str(Table(("row", "column", "value", "unit"), rows))]
    return "\n".join(lines) + "\n"
