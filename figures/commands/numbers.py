"""``python -m figures numbers``: what figures and tables show, as labelled arrays or one CSV table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from figures.commands.listing import needed
from figures.commands.options import Ids, Selection
from figures.commands.work import Work
from figures.contents.content import Picture, Product, Results
from figures.contents.operations import Counts
from figures.graph import Node, Outcome, Store
from figures.graph.nodes import with_runs
from figures.labels.arrays import grown, require_xarray
from figures.labels.files import FIRST, check_ending, lines, write_tree
from figures.labels.pictures import panels_of
from figures.labels.tables import labelled_cells, labelled_counts
from figures.recipes import Asked, Recipe
from figures.recipes.recipe import ScaleName
from figures.recipes.writing import caption, version
from landscape import FedscapeError
from landscape.storage.files import make_directory
from landscape.storage.outputs import Output, check_folder, check_outputs
from trainers.runs.planned import PlannedRun, told
from trainers.settings import optional

if TYPE_CHECKING:
    from xarray import DataTree

_KINDS = {".nc": ("netcdf", ()), ".json": ("json", ("attrs", "children")), ".csv": ("csv", FIRST)}


@dataclass(frozen=True)
class Numbers:
    """Give what figures and tables show as numbers: lines point by point with their spread, bars, surfaces,
    spectra, and the cells of tables. What is missing is made as by `make`; nothing is drawn.

    What fails is told at the end (exit code 1); the numbers of the others are written.
    """

    ids: Ids
    """figures and tables"""
    to: Annotated[Path | None, optional("FILE", "CSV on the screen")] = None
    """file to write: .csv (a line a number, with its coordinates), .json, or .nc (netCDF, which xarray opens)"""
    selection: Selection = field(default_factory=Selection)
    work: Work = field(default_factory=Work)

    def run(self) -> int:
        """Make, write; the exit code."""
        require_xarray()
        recipes, asked = self.selection.recipes(self.ids), self.selection.asked
        if self.to is not None:
            check_ending(self.to)
            check_outputs([Output("--to", self.to, *_KINDS[self.to.suffix])], force=self.work.force)
        outcome, failed = made(recipes, self.selection, self.work)
        trees, broken = {}, {}
        for recipe in recipes:
            try:
                trees[recipe.id] = numbers_of(
                    recipe, asked, self.selection.store, failed, command(recipe, self.selection)
                )
            except Exception as error:  # as of `make`: it is this figure's own
                broken[recipe.id] = told(error)
        tree = grown(trees)
        if self.to is None:
            print(lines(tree).csv(), end="")
        else:
            write_tree(tree, self.to)
            print(f"written: {self.to}")
        for name, reason in ({node.name: why for node, why in outcome.failed.items()} | broken).items():
            print(f"failed: {name}: {reason}", file=sys.stderr)
        for node in outcome.busy:
            print(f"not made: {node.name}: another process is making it", file=sys.stderr)
        return 1 if outcome.failed or outcome.busy or broken else 0


def command(recipe: Recipe, selection: Selection) -> str:
    """What gives the numbers of one figure or table again."""
    return shlex.join(["fedscape", "figures", "numbers", recipe.id, *selection.words(recipe.id)])


def made(recipes: Sequence[Recipe], selection: Selection, work: Work) -> tuple[Outcome, dict[Node, str]]:
    """Make what recipes need; how that ended, and the reasons of what has no result."""
    check_folder("--out", selection.out, (f"store/{name}" for name in ("runs", "measurements")), force=work.force)
    make_directory(selection.store.runs.folder)
    failed: dict[Node, str] = {}

    def ended(node: Node, reason: str | None) -> None:
        if reason is not None:
            failed[node] = reason

    nodes = list(dict.fromkeys(node for recipe in recipes for node in needed(recipe, selection.asked)))
    return work.execute(nodes, selection.store, ended), failed


def numbers_of(recipe: Recipe, asked: Asked, store: Store, failed: Mapping[Node, str], command: str = "") -> DataTree:
    """What a figure or table shows, of results that are there.

    Args:
        recipe, asked: which.
        store: of the results.
        failed: the reasons of nodes that have none.
        command: what makes it, for the attributes.

    Raises:
        FedscapeError: a node without which it cannot be drawn has no result; xarray is not installed.
    """
    content = recipe.content(asked)
    nodes = content.nodes()
    values = {node: store.result(node) for node in nodes if node not in failed}
    products = content.products(Results(values, failed), recipe.printed() if asked.scale == "paper" else {})
    children: dict[str, DataTree] = {}
    for product in products:
        children |= _labelled(product, caption(recipe, asked, nodes, product))
    every = with_runs(nodes)
    attributes = {
        "figure": recipe.id,
        "shows": recipe.shows,
        "scale": asked.scale,
        "command": command or None,
        "version": version(),
        "runs": ", ".join(node.name for node in every if isinstance(node, PlannedRun)),
        "measurements": ", ".join(node.name for node in every if not isinstance(node, PlannedRun)),
        "seeds": ", ".join(map(str, sorted({node.seed for node in every if isinstance(node, PlannedRun)}))),
        "failed": "; ".join(f"{node.name}: {why}" for node, why in failed.items() if node in every) or None,
    }
    return grown(children, attributes)


def _labelled(product: Product, caption: str) -> dict[str, DataTree]:
    """A product's nodes by path: its panels', or that of a table, below its name."""
    shows = product.shows
    if isinstance(shows, Picture):
        nodes = panels_of(shows)
    elif isinstance(shows, Counts):
        nodes = labelled_counts(shows)
    else:
        nodes = {"table": labelled_cells(shows)}
    for node in nodes.values():
        node.attrs["caption"] = caption
    return {f"{product.name}/{name}".strip("/"): node for name, node in nodes.items()}


def _word(value: Any) -> str:
    """A choice as ``--choose`` takes it."""
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def numbers(
    figure: str,
    *,
    scale: ScaleName = "smoke",
    data: str | None = None,
    model: str | None = None,
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    choices: Mapping[str, Any] | None = None,
    out: str | Path = "paper-figures",
    device: str = "auto",
    data_dir: str | Path | None = None,
    jobs: int = 1,
    progress: bool = False,
) -> DataTree:
    """What a figure or table of a paper shows, as labelled arrays: the same numbers that its picture is drawn from.

    Runs and measurements are read from ``out``, and made where they are missing, as ``fedscape figures make`` does.

    Args:
        figure: such as ``fedsmoo/F3`` (``fedscape figures list`` has all).
        scale, data, model, seeds, rounds: as its options (``--scale`` and so on).
        choices: what the paper leaves open, by name, as ``--choose`` takes them.
        out: the folder of pictures, whose ``store`` has runs and measurements.
        device, data_dir, jobs: where and how what is missing is made; a script gives several ``jobs`` below
            ``if __name__ == "__main__":``, because each process reads it again.
        progress: show progress on stderr.

    Returns:
        An ``xarray.DataTree``: a node for each panel by its title (below one for each picture, where there are
        several), with the coordinates ``curve``, ``round``, ``rank``, ``client``, ``x``, ``y``, and so on; a table is
        the node ``table``, with ``row`` and ``column``.  Arrays have ``units``, nodes the caption, and the root says
        where the numbers come from.

    Raises:
        FedscapeError: no such figure, or a name of several; something that it needs cannot be made, or no process
            can start; xarray is not installed.
    """
    require_xarray()
    given = tuple(f"{name}={_word(value)}" for name, value in (choices or {}).items())
    listed = None if seeds is None else ",".join(map(str, seeds))
    selection = Selection(scale, data, model, listed, rounds, given, Path(out))
    recipes = selection.recipes((figure,))
    if len(recipes) > 1:
        several = ", ".join(recipe.id for recipe in recipes)
        raise FedscapeError(f"'{figure}' is several figures and tables: give one of {several}")
    folder = None if data_dir is None else Path(data_dir)
    outcome, failed = made(recipes, selection, Work(device, folder, jobs, quiet=not progress))
    if busy := list(outcome.busy):
        raise FedscapeError(f"{busy[0].name} is being made by another process: ask again later")
    return numbers_of(recipes[0], selection.asked, selection.store, failed, command(recipes[0], selection))
