"""``python -m figures list``, ``status`` and ``show``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from figures.commands.options import Ids, Selection
from figures.graph import Store
from figures.graph.nodes import with_runs
from figures.recipes import PAPERS, Asked, Recipe
from figures.recipes.recipe import SCALES
from landscape.terminal.table import Table


@dataclass(frozen=True)
class List:
    """List every figure and table: what it shows, what it needs, how far it is."""

    selection: Selection = field(default_factory=Selection)

    def run(self) -> int:
        """Print the table; the exit code."""
        asked, store = self.selection.asked, self.selection.store
        recipes = [recipe for paper in PAPERS for recipe in paper.recipes.values()]
        rows = [(recipe.id, recipe.shows, *_counted(recipe, asked), state(recipe, asked, store)) for recipe in recipes]
        print(Table(("id", "shows", "runs", "measurements", "state"), tuple(rows)))
        print(f"{len(recipes)} figures and tables")
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
    nodes = with_runs(recipe.content(asked).nodes())
    found = Counter(store.state(node) for node in nodes)
    if not nodes or found["done"] == len(nodes):
        return "done"
    if len(found) == 1 and "missing" in found:
        return "missing"
    others = [f"{found[name]} {name}" for name in ("partial", "failed") if found[name]]
    return ", ".join([f"{found['done']} of {len(nodes)} done", *others])


def _counted(recipe: Recipe, asked: Asked) -> tuple[int, int]:
    """How many runs and measurements."""
    from trainers.runs import PlannedRun

    nodes = with_runs(recipe.content(asked).nodes())
    runs = sum(isinstance(node, PlannedRun) for node in nodes)
    return runs, len(nodes) - runs


def _told(recipe: Recipe, asked: Asked, store: Store) -> str:
    lines = [f"{recipe.id}: {recipe.shows}", f"state: {state(recipe, asked, store)}"]
    for scale in SCALES:
        runs, measures = _counted(recipe, Asked(scale))
        lines.append(f"{scale}: {runs} runs, {measures} measurements. {recipe.stand_ins.get(scale, '')}".rstrip())
    for name, choice in recipe.choices.items():
        lines.append(f"--choose {name}={choice.text(asked.scale)}: {choice.why}")
    lines += [f"not reproduced, as only the authors' code has it: {hole}" for hole in recipe.holes]
    lines += [f"in the paper: {slip}" for slip in recipe.slips]
    if printed := recipe.printed():
        rows = tuple((row, column, str(number), number.unit) for (row, column), number in printed.items())
        lines += ["the paper prints:", str(Table(("row", "column", "value", "unit"), rows))]
    return "\n".join(lines) + "\n"
