"""Labelled arrays of what a table shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from figures.contents.operations import Counts
from figures.contents.table import Cells, Value, marked
from figures.labels.arrays import Variables, tree

if TYPE_CHECKING:
    from xarray import DataTree


def labelled_cells(cells: Cells) -> DataTree:
    """A table by row and column: ``value`` is the mean, ``cell`` its text, ``seed_value`` each seed's.

    Not-a-number and an empty text are where there is no number, or no cell.  The unit of each column is the coordinate
    ``unit``; the arrays have one of their own where all columns have the same.

    Raises:
        FedscapeError: xarray is not installed.
    """
    rows, columns = (list(dict.fromkeys(place[i] for place in cells.measured)) for i in (0, 1))
    seeds = max((len(cell.values) for cell in cells.measured.values()), default=1)
    shape = len(rows), len(columns)
    numbers = {name: np.full(shape, np.nan) for name in ("value", "deviation", "paper", "paper_deviation")}
    each, texts = np.full((*shape, seeds), np.nan), np.full(shape, "", dtype=object)
    for (row, column), cell in cells.measured.items():
        at = rows.index(row), columns.index(column)
        numbers["value"][at], numbers["deviation"][at] = _number(cell.mean), _number(cell.deviation)
        each[at][: len(cell.values)] = [_number(value) for value in cell.values]
        texts[at] = marked(cell, cells.of.decimals(column))
        if (theirs := cells.printed.get((row, column))) is not None:
            numbers["paper"][at], numbers["paper_deviation"][at] = _number(theirs.value), _number(theirs.deviation)
    units = [cells.of.unit_of(column) for column in columns]
    about: dict[str, Any] = {"units": units[0]} if len(set(units)) == 1 else {"units": "as the coordinate unit"}
    of = ("row", "column")
    if not cells.printed:
        del numbers["paper"], numbers["paper_deviation"]
    variables: Variables = {name: (of, found, about) for name, found in numbers.items()}
    variables |= {"seed_value": ((*of, "seed"), each, about), "cell": (of, texts.astype(str))}
    coordinates = {"row": rows, "column": columns, "seed": np.arange(1, seeds + 1), "unit": ("column", units)}
    over = {cell.over for cell in cells.measured.values() if cell.deviation is not None}
    attributes = {"quantity": cells.of.unit or None, "deviation_over": ", ".join(sorted(over)) or None}
    return tree(variables, coordinates, attributes)


def labelled_counts(counts: Counts) -> dict[str, DataTree]:
    """Multiplications by layer, a node a network.

    Raises:
        FedscapeError: xarray is not installed.
    """
    unit = {"units": "multiplication / image"}
    found = {}
    for network, layers in counts.networks.items():
        forward, added = (np.array([getattr(one, of) for one in layers.values()]) for of in ("forward", "regulariser"))
        variables: Variables = {
            "forward": ("layer", forward, unit),
            "penalty": ("layer", added, {**unit, "long_name": "of MAN's penalty"}),
            "together": ("layer", forward + added, unit),
        }
        found[network] = tree(variables, {"layer": list(layers)}, {"title": network})
    return found


def _number(value: Value) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")
