"""The HDF5 file of a loss surface, which loss-landscape's plotters can read and a stopped measurement resumes from.

Layout: ``xcoordinates`` [nx], ``ycoordinates`` [ny]; ``train_loss`` and ``train_acc`` (``test_...`` for the
test split; accuracy in percent, absent where the targets are no classes) and their standard errors over the samples
(``train_loss_stderr``, ...), [ny, nx], so that row j belongs to ``ycoordinates[j]`` as ``numpy.meshgrid`` has it;
``done`` [ny, nx], 1 where a point is measured; ``error`` [ny, nx], estimates of the relative error of the loss.  While
points are being measured, the others are not-a-number; in the end (attribute ``finished``) they are interpolated,
and their ``error`` is not 0.  The attributes are the fields of :class:`analysis.surface.provenance.Provenance`.  The
directions are not in the file: the seed gives them again, or a file beside it.  The user block, 512 bytes which HDF5
readers skip, begins with the format's name and the SHA-256 of the rest, because HDF5's own reader may crash on a
damaged file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from analysis.surface.provenance import Provenance
from landscape import FedscapeError
from landscape.storage.files import atomic_write
from landscape.terminal.stopping import deferring
from landscape.version import versions

FORMAT = "fedscape-surface/2"

_USER_BLOCK = 512
_WAY_OUT = "give another --out (store), or --fresh (resume=False) to replace it"

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
            with h5py.File(io.BytesIO(contents), "r") as file:
                return cls._from(file, path)
        except Exception as error:  # made by another program, with our format's name
            raise FedscapeError(damaged) from error

    @classmethod
    def _from(cls, file: h5py.File, path: Path) -> SurfaceStore:
        readers = {"int": int, "int | None": int, "float": float, "str": str, "bool": bool}
        values = {f.name: readers[str(f.type)](file.attrs[f.name]) for f in fields(Provenance) if f.name in file.attrs}
        provenance = Provenance(**{"round": None, **values})
        names = [name for name in file if name.startswith(("train_", "test_"))]
        x, y = _array(file, "xcoordinates", 1), _array(file, "ycoordinates", 1)
        store = cls(x, y, provenance, names, path=path, notes=json.loads(file.attrs["notes"]))
        shape = store.done.shape
        store.values = {name: _array(file, name, shape) for name in names}
        store.done = _array(file, "done", shape).astype(bool)
        store.error = _array(file, "error", shape)
        store.tolerance = float(file.attrs["tolerance"]) if file.attrs["finished"] else None
        store.seconds = float(file.attrs["seconds"])
        return store


def _contents(path: Path) -> bytes:
    """The bytes of a surface's file, damaged or not; of any other file only the beginning is read."""
    name = FORMAT.encode() + b"\n"
    try:
        with open(path, "rb") as file:
            contents = file.read(len(name))
            if contents == name:
                return contents + file.read()
    except FileNotFoundError:
        raise FedscapeError(f"there is no file {path}") from None
    except OSError as error:
        raise FedscapeError(f"cannot read {path}: {error.strerror}") from error
    raise FedscapeError(
        f"{path} is not a surface of Fedscape's: it does not say format '{FORMAT}'; give another --out (store)"
    )


def _header(body: bytes | memoryview) -> bytes:
    return f"{FORMAT}\nsha256 {hashlib.sha256(body).hexdigest()}\n".encode()


def _array(file: h5py.File, name: str, shape: int | tuple[int, ...]) -> np.ndarray:
    """A dataset's values, its shape checked before anything is read."""
    dataset = file[name]
    fits = dataset.ndim == shape if isinstance(shape, int) else dataset.shape == shape
    if not fits or max(dataset.shape) > MAX_POINTS:
        raise ValueError(f"'{name}' has the shape {dataset.shape}")
    return dataset[()].astype(np.float64)
