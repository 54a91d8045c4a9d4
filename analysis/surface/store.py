"""The HDF5 file of a loss surface, which loss-landscape's plotters can read and a stopped measurement resumes from.

Layout: ``xcoordinates`` [nx], ``ycoordinates`` [ny]; ``train_loss`` and ``train_acc`` (``test_...`` for the
test split; accuracy in percent, absent where the targets are no classes) and their standard errors over the samples
(``train_loss_stderr``, ...), [ny, nx], so that row j belongs to ``ycoordinates[j]`` as ``numpy.meshgrid`` has it;
``done`` [ny, nx], 1 where a point is measured; ``error`` [ny, nx], estimates of the relative error of the loss.  While
points are being measured, the others are not-a-number; in the end (attribute ``finished``) they are interpolated,
and their ``error`` is not 0.  The coordinates are HDF5 dimension scales of the arrays, so that xarray and netCDF's
tools know the axes, and arrays say their ``units``.  The attributes are the fields of
:class:`analysis.surface.provenance.Provenance`.  The directions are not in the file: the seed gives them again, or a
file beside it.  The user block, 512 bytes which HDF5 readers skip, begins with the format's name and the SHA-256 of the
rest, because HDF5's own reader may crash on a damaged file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from analysis.surface.provenance import Provenance
from landscape import FedscapeError
from landscape.storage import limits
from landscape.storage.files import atomic_write
from landscape.storage.hdf5 import read_apart
from landscape.storage.reading import parse_json
from landscape.storage.schema import (
    Items,
    Keyed,
    Maybe,
    Number,
    Plain,
    Record,
    Row,
    Rule,
    Text,
    Truth,
    printable,
    require,
)
from landscape.terminal.stopping import deferring
from landscape.version import versions

FORMAT = "fedscape-surface/2"

_USER_BLOCK = 512
_UNITS = {
    "loss": "nat", "loss_stderr": "nat", "acc": "percent", "acc_stderr": "percent", "lambda_max": "loss / parameter²",
    "coordinates": "1", "error": "1",
}  # fmt: skip
"""Units of arrays by the ends of their names; the mask has none."""
_WAY_OUT = "give another --out (store), or --fresh (resume=False) to replace it"

_TYPES: dict[str, Rule] = {
    "int": Number(whole=True), "int | None": Number(whole=True), "float": Number(), "str": Text(), "bool": Truth(),
}  # fmt: skip
_INTEGERS = [f.name for f in fields(Provenance) if str(f.type).startswith("int")]
_RULES = {f.name: _TYPES[str(f.type)] for f in fields(Provenance)}
_MEASURED: dict[str, Rule] = {"seconds": Number(0), "finished": Truth(), "notes": Text(limits.JSON)}
_ATTRIBUTES = Record(
    {f.name: _RULES[f.name] for f in fields(Provenance) if f.default is MISSING and f.name != "round"}
    | {**_MEASURED, "tolerance": Plain()},
    _RULES,
)
_FINISHED = Record({**_ATTRIBUTES.required, "tolerance": Number(0)}, _RULES)
"""What a surface's attributes must be, also of a finished one; those of later versions may be missing."""
_POINT = Number()
NOTES = Record(
    {},
    {
        "plane": Record(
            {},
            {
                "labels": Items(Text(1000), 2, 2),
                "marks": Items(Row((Text(1000), _POINT, _POINT)), most=10_000),
                "trajectory": Maybe(Items(Items(_POINT, 2, 2), most=1_000_000)),
            },
        ),
        "checks": Record({"points": Number(0, whole=True), "largest": _POINT, "within": _POINT}),
        "rounding": Record({}),
        "spread": Keyed(Text(100), Maybe(_POINT)),
        "cosine": Maybe(Number(finite=False)),  # of one direction there is none
        "batch_size": Plain(),
        "test samples": Number(0, whole=True),
    },
)
"""What the notes must be, where they are there."""

WRITE_EVERY = 2.0
"""Seconds between two writes of the file, at least: a process that is killed loses about so much."""

MAX_POINTS = 1000
"""The largest number of points along an axis."""


class SurfaceStore:
    """The values of a surface while it is measured, in memory and (where ``path`` is given) in a file.

    Attributes:
        x, y: coordinates, [nx] and [ny].
        values: by name, as in the file, [ny, nx]; not-a-number where there is none.
        done: which points are measured, [ny, nx].
        error: estimates of the loss's relative error, [ny, nx]; 0 where measured.
        tolerance: the tolerance that the estimates meet; ``None`` while there are points without a value.
        provenance: what is measured.
        notes: other facts (device, the plane's marks); of these only the micro-batch sizes and how they were chosen
            (``given``, ``by shape`` or ``by time``) matter to a measurement that is resumed.
        seconds: time spent measuring, all sessions together.
    """

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        provenance: Provenance,
        names: Sequence[str],
        *,
        path: Path | None = None,
        notes: dict[str, Any] | None = None,
    ) -> None:
        shape = len(y), len(x)
        self.x, self.y, self.provenance, self.path = x, y, provenance, path
        self.values: dict[str, np.ndarray] = {name: np.full(shape, np.nan) for name in names}
        self.done = np.zeros(shape, dtype=bool)
        self.error: np.ndarray = np.zeros(shape)
        self.tolerance: float | None = None
        self.notes = notes or {}
        self.seconds = 0.0
        self._due = 0.0

    @property
    def estimated(self) -> float:
        """The largest of the estimated errors; 0 where every point is measured."""
        return float(self.error.max())

    def resume(self) -> None:
        """Take over the values of the file, where there is one.

        Raises:
            FedscapeError: it is damaged, holds no surface, or another one.
        """
        if self.path is None or not os.path.exists(self.path):
            return
        earlier = SurfaceStore.read(self.path)
        differing = earlier.provenance.differences(self.provenance)
        same = np.array_equal(earlier.x, self.x) and np.array_equal(earlier.y, self.y)
        if not differing and not (same and earlier.values.keys() == self.values.keys()):
            differing = ["coordinates"]
        if differing:
            raise FedscapeError(
                f"{self.path} holds another surface, which differs in {', '.join(differing)}: " + _WAY_OUT
            )
        # In the order of this store, not the file's alphabetical one: BLAS may round a column depending on its place,
        # and interpolated values must have the bits that a measurement without a stop has.
        self.values = {name: earlier.values[name] for name in self.values}
        self.done, self.seconds = earlier.done, earlier.seconds
        self.error, self.tolerance = earlier.error, earlier.tolerance
        if self.tolerance is not None:
            self.notes = earlier.notes
        elif self.done.any():
            self.notes["batch_size"] = earlier.notes["batch_size"]
            self.notes["batch_size_chosen"] = earlier.notes.get(
                "batch_size_chosen", "by time"
            )  # older files do not say: it was the only way

    def replace(self) -> None:
        """Check that the file, where there is one, is a surface, which may be written over.

        Raises:
            FedscapeError: it is no surface.
        """
        if self.path is not None and os.path.exists(self.path):
            _contents(self.path)

    def fulfils(self, tolerance: float, checks: int | None = None) -> bool:
        """Whether every point has a value, to this tolerance, checked at so many points (``None``: as it was)."""
        checked = self.notes.get("checks", {}).get("points", 0)
        return self.tolerance is not None and (
            bool(self.done.all()) or (self.tolerance <= tolerance and checked >= (checks or 0))
        )

    def reopen(self) -> None:
        """Drop the interpolated values, because more points are to be measured."""
        for array in self.values.values():
            array[~self.done] = np.nan
        self.error[:], self.tolerance = 0.0, None
        self.notes.pop("checks", None)

    def put(self, row: int, column: int, values: Mapping[str, float]) -> None:
        """Record one point, finite or not, and write the file if the last write is long enough ago."""
        for name, value in values.items():
            self.values[name][row, column] = value
        self.done[row, column] = True
        if time.monotonic() >= self._due:
            self.save()

    def finish(self, values: Mapping[str, np.ndarray], error: np.ndarray, tolerance: float) -> None:
        """Take over interpolated values at the points that are not measured, and note the tolerance they meet."""
        for name, array in values.items():
            self.values[name] = np.where(self.done, self.values[name], array)
        self.error = np.where(self.done, 0.0, error)
        self.tolerance = 0.0 if self.done.all() else tolerance

    def save(self) -> None:
        """Write the whole file, atomically.

        Raises:
            FedscapeError: it cannot be written.
        """
        if self.path is None:
            return
        with deferring() as stop:  # HDF5 calls back into Python, and does not hand on what is raised there
            self._save(self.path)
        stop.now()

    def _save(self, path: Path) -> None:
        start = time.monotonic()
        contents = io.BytesIO()
        with h5py.File(contents, "w", userblock_size=_USER_BLOCK) as file:
            self._fill(file)
        body = contents.getbuffer()[_USER_BLOCK:]
        with atomic_write(path) as target:
            target.write(_header(body).ljust(_USER_BLOCK, b"\0"))
            target.write(body)
        now = time.monotonic()
        self._due = now + max(WRITE_EVERY, 20 * (now - start))  # writing takes 5 % of the time at most

    def _fill(self, file: h5py.File) -> None:
        file["xcoordinates"] = self.x
        file["ycoordinates"] = self.y
        for name, array in self.values.items():
            file[name] = array
        file["done"] = self.done.astype(np.uint8)
        file["error"] = self.error
        file["xcoordinates"].make_scale("xcoordinates")
        file["ycoordinates"].make_scale("ycoordinates")
        for name in (*self.values, "done", "error"):
            for axis, scale in enumerate(("ycoordinates", "xcoordinates")):
                file[name].dims[axis].attach_scale(file[scale])
        for name in file:
            if unit := next((unit for end, unit in _UNITS.items() if name.endswith(end)), None):
                file[name].attrs["units"] = unit
        file.attrs["format"] = FORMAT
        for name, value in vars(self.provenance).items():
            if value is not None:
                huge = isinstance(value, int) and value.bit_length() > 63
                file.attrs[name] = str(value) if huge else value
        file.attrs["finished"] = self.tolerance is not None
        file.attrs["tolerance"] = np.nan if self.tolerance is None else self.tolerance
        file.attrs["seconds"] = self.seconds
        file.attrs["notes"] = json.dumps(self.notes)
        file.attrs["versions"] = json.dumps({**versions(), "h5py": h5py.__version__})

    @classmethod
    def read(cls, path: str | Path) -> SurfaceStore:
        """Read a store from its file, finished or not.

        Raises:
            FedscapeError: there is no such file, it is no surface, or it is damaged.
        """
        path = Path(path)
        contents = _contents(path)
        damaged = f"{path} is damaged or was changed: {_WAY_OUT}"
        if not contents.startswith(_header(contents[_USER_BLOCK:])):
            raise FedscapeError(damaged)
        try:
            attributes, arrays = read_apart(contents, most=MAX_POINTS**2)
        except Exception as error:  # made by another program, with our format's name
            raise FedscapeError(damaged) from error
        return cls._from(attributes, arrays, path)

    @classmethod
    def _from(cls, attributes: dict[str, Any], arrays: dict[str, np.ndarray], path: Path) -> SurfaceStore:
        for name, value in attributes.items():
            if name in _INTEGERS and isinstance(value, str) and re.fullmatch(r"-?\d{1,40}", value):
                attributes[name] = int(value)  # too large for HDF5's integers
        require(attributes, _FINISHED if attributes.get("finished") is True else _ATTRIBUTES, path)
        notes = parse_json(attributes["notes"], f"{path}: the attribute notes")
        require(notes, NOTES, f"{path}: the attribute notes")
        given: dict[str, Any] = {f.name: attributes[f.name] for f in fields(Provenance) if f.name in attributes}
        values: dict[str, Any] = {
            name: printable(value) if isinstance(value, str) else value for name, value in given.items()
        }
        provenance = Provenance(**({"round": None} | values))
        x, y = (_array(arrays, name, None, path) for name in ("xcoordinates", "ycoordinates"))
        names = [name for name in arrays if name.startswith(("train_", "test_"))]
        store = cls(x, y, provenance, names, path=path, notes=notes)
        shape = store.done.shape
        store.values = {name: _array(arrays, name, shape, path) for name in names}
        store.done = _array(arrays, "done", shape, path).astype(bool)
        store.error = _array(arrays, "error", shape, path)
        store.tolerance = float(attributes["tolerance"]) if attributes["finished"] else None
        store.seconds = attributes["seconds"]
        for split in (provenance.split, *(("test",) if provenance.test else ())):
            if f"{split}_loss" not in store.values:
                raise FedscapeError(f"{path} is damaged: it has no {split}_loss")
        if provenance.test and "test samples" not in notes:
            raise FedscapeError(f"{path} is damaged: it does not say how many test samples there are")
        return store


def _contents(path: Path) -> bytes:
    """The bytes of a surface's file, damaged or not; of any other file only the beginning is read."""
    name = FORMAT.encode() + b"\n"
    with limits.open_regular(path) as file:
        contents = file.read(len(name))
        if contents == name:
            limits.require_size(path, os.fstat(file.fileno()).st_size, "the file has", limit=limits.EXPANDED)
            return contents + file.read()
    raise FedscapeError(
        f"{path} is not a surface of Fedscape's: it does not say format '{FORMAT}'; give another --out (store)"
    )


def _header(body: bytes | memoryview) -> bytes:
    return f"{FORMAT}\nsha256 {hashlib.sha256(body).hexdigest()}\n".encode()


def _array(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...] | None, path: Path) -> np.ndarray:
    """An array as float64: of that shape, or coordinates.

    Raises:
        FedscapeError: it is missing or of another shape; coordinates that do not ascend.
    """
    if name not in arrays:
        raise FedscapeError(f"{path} is damaged: it has no {name}")
    found = arrays[name].astype(np.float64)
    if shape is None:
        if found.ndim != 1 or not 1 <= len(found) <= MAX_POINTS or not (np.diff(found) > 0).all():
            raise FedscapeError(f"{path} is damaged: {name} are not 1 to {MAX_POINTS} ascending numbers")
        if not np.isfinite(found).all():
            raise FedscapeError(f"{path} is damaged: {name} are not finite")
    elif found.shape != shape:
        raise FedscapeError(f"{path} is damaged: {name} has the shape {found.shape}, not {shape}")
    return found
