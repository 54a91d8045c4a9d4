"""Trees of labelled arrays as files: netCDF, JSON, and CSV with a line for each number."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from landscape import FedscapeError
from landscape.storage.files import atomic_write, write_json, write_text
from landscape.terminal.table import Table

if TYPE_CHECKING:
    from xarray import DataTree

FIRST = ("node", "quantity", "unit")
"""The first columns of CSV; then come the coordinates, and last the value."""


def lines(tree: DataTree) -> Table:
    """A line for each number or text of a tree: its node, quantity, unit, coordinates, and the value.

    Places without a number (not-a-number, and empty texts) have no line.  Coordinates have a column each, empty where
    an array has not got it.

    Example:
        >>> import xarray
        >>> from figures.labels.files import lines
        >>> data = xarray.Dataset({"loss": ("round", [0.5, 0.25], {"units": "nat"})}, {"round": [1, 2]})
        >>> print(lines(xarray.DataTree.from_dict({"iid": data})).csv(), end="")
        node,quantity,unit,round,value
        iid,loss,nat,1,0.5
        iid,loss,nat,2,0.25
    """
    rows: list[tuple[str, str, str, dict[str, Any], Any]] = []
    for node in tree.subtree:
        path = str(node.path).strip("/")
        for name, array in node.dataset.data_vars.items():
            along = {
                str(key): here.broadcast_like(array).transpose(*array.dims).values for key, here in array.coords.items()
            }
            units = along.pop("unit", np.full(array.shape, array.attrs.get("units", "")))  # a table's, by column
            for place in np.ndindex(array.shape):
                value = array.values[place].item()
                if value != "" and value == value:
                    unit = str(units[place]) if "units" in array.attrs else ""
                    rows.append((path, str(name), unit, {key: at[place].item() for key, at in along.items()}, value))
    coordinates = list(dict.fromkeys(name for *_, at, _ in rows for name in at))
    found = ((node, name, unit, *(at.get(key) for key in coordinates), value) for node, name, unit, at, value in rows)
    return Table((*FIRST, *coordinates, "value"), tuple(found))


def nested(tree: DataTree) -> dict[str, Any]:
    """For JSON: ``attrs``, ``coords`` and ``data_vars`` (``dims``, ``attrs``, ``data`` of each), ``children``."""
    found: dict[str, Any] = tree.to_dataset(inherit=False).to_dict()
    return {
        "attrs": dict(tree.attrs),
        "coords": found["coords"],
        "data_vars": found["data_vars"],
        "children": {str(name): nested(child) for name, child in tree.children.items()},
    }


def check_ending(file: Path) -> None:
    """Refuse, before any work, a file that :func:`write_tree` cannot write.

    Raises:
        FedscapeError: another ending than ``.nc``, ``.json`` and ``.csv``; the package h5netcdf is not installed.

    Example:
        >>> from pathlib import Path
        >>> from figures.labels.files import check_ending
        >>> check_ending(Path("a.xlsx"))
        Traceback (most recent call last):
        landscape.errors.FedscapeError: a.xlsx is no name of a file of numbers: give one in .nc or .json or .csv
    """
    if file.suffix not in _WRITERS:
        raise FedscapeError(f"{file} is no name of a file of numbers: give one in {' or '.join(_WRITERS)}")
    if file.suffix == ".nc" and find_spec("h5netcdf") is None:
        raise FedscapeError("netCDF files need the package h5netcdf, which is not installed: pip install h5netcdf")


def write_tree(tree: DataTree, file: Path) -> None:
    """Write a tree, whole or not at all: ``.nc`` is netCDF, ``.json`` :func:`nested`, ``.csv`` :func:`lines`.

    Raises:
        FedscapeError: as :func:`check_ending`; the file cannot be written.
    """
    check_ending(file)
    _WRITERS[file.suffix](tree, file)


def _netcdf(tree: DataTree, file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "numbers.nc"
        tree.to_netcdf(made, engine="h5netcdf")
        with atomic_write(file) as target:
            target.write(made.read_bytes())


_WRITERS: Mapping[str, Callable[[DataTree, Path], None]] = {
    ".nc": _netcdf,
    ".json": lambda tree, file: write_json(file, nested(tree)),
    ".csv": lambda tree, file: write_text(file, lines(tree).csv()),
}
"""By the end of the file's name."""
