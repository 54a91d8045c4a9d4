"""The units of tables' columns are those that the papers print, and labelled cells are the cells."""

import numpy as np
import pytest

from figures.contents.content import Product, Results, Together
from figures.contents.table import Entry, TableOf
from figures.labels.tables import labelled_cells
from figures.printed import Printed
from figures.recipes import PAPERS, Asked
from trainers import FedAvg
from trainers.runs import PlannedRun

pytest.importorskip("xarray")
CURVATURE = "loss / parameter²"
PRINTED = {
    "% accuracy": "%", "% test accuracy": "%", "accuracy %": "%", "mIoU %": "%", "% of reference": "%",
    "accuracy points": "%", "points": "%", "rounds": "round", "s": "s", "x": "1", "V": "1", "clients": "client",
    "samples": "sample", "eigenvalue": CURVATURE, "trace": CURVATURE,
}  # fmt: skip
"""The unit that each of the papers' words means."""


def tables(content):
    parts = content.parts.values() if isinstance(content, Together) else [content]
    return [part for part in parts if isinstance(part, TableOf)]


def test_columns_have_the_units_of_the_numbers_that_the_papers_print():
    checked = set()
    for paper in PAPERS:
        for recipe in paper.recipes.values():
            printed = recipe.printed()
            for table in tables(recipe.content(Asked("paper"))) if printed else ():
                for place in table.entries:
                    word = printed[place].unit.split(" (")[0] if place in printed else None
                    if word in PRINTED and (word, place[1].endswith("lambda_5")) != ("eigenvalue", True):
                        assert table.unit_of(place[1]) == PRINTED[word], (recipe.id, place)
                        checked.add(word)
    assert checked >= {"% accuracy", "accuracy %", "rounds", "s", "x", "samples", "eigenvalue", "trace", "mIoU %"}


def test_cells_are_at_their_rows_and_columns_with_every_seed_and_the_papers_number():
    runs = {(row, seed): PlannedRun(FedAvg()).seeded(10 * row + seed) for row in (0, 1) for seed in (0, 1)}
    value = {runs[0, 0]: 1.0, runs[0, 1]: 3.0, runs[1, 0]: 5.0, runs[1, 1]: "diverged"}
    entries = {
        (f"r{row}", column): Entry(tuple(runs[row, seed] for seed in (0, 1)), lambda found: found)
        for row in (0, 1)
        for column in ("a", "b/c")
        if (row, column) != (1, "b/c")
    }
    table = TableOf(entries, digits=1, units={"a": "s", "b/c": "%"})
    printed = {("r0", "a"): Printed("4.5", 0.5, "s")}
    (product,) = table.products(Results(value), printed)
    assert isinstance(product, Product)
    found = labelled_cells(product.shows)
    here = found.sel(row="r0", column="a")
    assert (here["value"], here["deviation"], here["paper"], here["paper_deviation"]) == (2, np.sqrt(2), 4.5, 0.5)
    assert here["seed_value"].values.tolist() == [1, 3]
    assert (here["cell"].item(), here["unit"].item()) == ("2.0 ± 1.4", "s")
    failed = found.sel(row="r1", column="a")
    assert np.isnan(failed["value"])
    assert failed["seed_value"].values[0] == 5
    assert failed["cell"].item() == "5.0, diverged"
    assert found["cell"].sel(row="r1", column="b/c").item() == "", "no such cell"
    assert found["value"].attrs["units"] == "as the coordinate unit"
    (plain,) = TableOf(entries, units="s").products(Results(value), {})
    alone = labelled_cells(plain.shows)
    assert alone["value"].attrs["units"] == "s"
    assert "paper" not in alone.dataset
