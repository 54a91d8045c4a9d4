"""Trees of labelled arrays: how they are made of numbers with their dimensions, coordinates and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from landscape import FedscapeError
from landscape.storage.files import json_ready
from landscape.version import __version__

if TYPE_CHECKING:
    from xarray import DataTree

VERSION = "fedscape_version"
"""The attribute of a root by which our netCDF files are known (`landscape.storage.outputs`)."""
Variables = dict[str, tuple[Any, ...]]
"""Dimensions, values and attributes by name."""


def tree(
    variables: Variables,
    coordinates: Mapping[str, Any],
    attributes: Mapping[str, Any],
    children: Mapping[str, DataTree] | None = None,
) -> DataTree:
    """A node of a tree: numbers without units get ``1``, attributes that are ``None`` are left out.

    Raises:
        FedscapeError: xarray is not installed.
    """
    xarray = require_xarray()
    data = xarray.Dataset(variables, coordinates, plain(attributes))
    for array in data.variables.values():
        if array.dtype.kind in "iufb":
            array.attrs.setdefault("units", "1")
    return xarray.DataTree(data, children=dict(children or {}))


def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as netCDF can have them: numbers and texts, without those that are ``None``."""
    ready = json_ready(dict(attributes))
    return {name: int(v) if isinstance(v, bool) else v for name, v in ready.items() if v is not None}


def grown(children: Mapping[str, DataTree], attributes: Mapping[str, Any] | None = None) -> DataTree:
    """A tree of trees, by their paths in it; its root says the version.

    Raises:
        FedscapeError: xarray is not installed.
    """
    made = require_xarray().DataTree.from_dict(dict(children))
    made.attrs |= {VERSION: __version__, **plain(attributes or {})}
    return made


def aligned(series: Sequence[tuple[np.ndarray, np.ndarray]], fill: Any = np.nan) -> tuple[np.ndarray, np.ndarray]:
    """Series with places of their own on all places: not-a-number where a series has none.

    Args:
        series: places and values of each, [n] both.
        fill: in the place of values that are missing.

    Returns:
        All places, ascending, [p]; the values, [len(series), p].

    Example:
        >>> import numpy as np
        >>> from figures.labels.arrays import aligned
        >>> places, values = aligned([(np.array([1, 2]), np.array([0.5, 0.7])), (np.array([2]), np.array([0.6]))])
        >>> places.tolist(), values.tolist()
        ([1, 2], [[0.5, 0.7], [nan, 0.6]])
    """
    places = whole(np.unique(np.concatenate([np.asarray(at) for at, _ in series]))) if series else np.zeros(0)
    kind = float if fill is np.nan else type(fill)
    values = np.full((len(series), len(places)), fill, dtype=kind)
    for row, (at, found) in zip(values, series, strict=True):
        row[np.searchsorted(places, at)] = found
    return places, values


def whole(places: np.ndarray) -> np.ndarray:
    """Numbers as integers, where all of them are."""
    rounded = np.round(places).astype(int)
    return rounded if np.array_equal(rounded, places) else places


def ragged(rows: Sequence[np.ndarray], fill: Any = np.nan) -> np.ndarray:
    """Rows of several lengths as one array, filled up at their ends, [rows, longest]."""
    return aligned([(np.arange(len(row)), row) for row in rows], fill)[1]


def require_xarray() -> Any:
    """The package xarray.

    Raises:
        FedscapeError: it is not installed.
    """
    try:
        import xarray
    except ImportError:
        raise FedscapeError(
            "labelled arrays need the package xarray (2024.10 or newer), which is not installed: pip install xarray"
        ) from None
    return xarray


Form = Callable[[Any], "DataTree"]
"""What makes a tree of a result."""
