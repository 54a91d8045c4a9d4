"""The HDF5 file of a loss surface: what loss-landscape's plotters read, and enough to resume.

Layout: ``xcoordinates`` [nx], ``ycoordinates`` [ny]; ``train_loss`` and ``train_acc`` (``test_...`` for the
test split; accuracy in percent, absent where the targets are no classes), [ny, nx], so that row j belongs
to ``ycoordinates[j]`` as ``numpy.meshgrid`` has it, not-a-number where nothing is measured yet; ``done``
[ny, nx], 1 where a point is measured.  Attributes say of what (:class:`Provenance`).  The directions are
not in the file: the seed gives them again.  The user block, 512 bytes which HDF5 readers skip, begins with
the format's name and the SHA-256 of the rest, because HDF5's own reader does not stand damage.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from landscape import FedscapeError
from landscape.files import atomic_write
from landscape.version import versions

FORMAT = "fedscape-surface/1"

_USER_BLOCK = 512
_WAY_OUT = "give another --out (store), or --fresh (resume=False) to replace it"

WRITE_EVERY = 2.0
"""Seconds between two writes of the file, at least; a kill loses no more than that."""

MAX_POINTS = 1000
"""Points along an axis, at most."""


@dataclass(frozen=True)
class Provenance:
    """What a surface is of: surfaces with the same provenance are the same function on the same grid.

    Attributes:
        model, data, algorithm: names; ``round`` of training (``None``: unknown).
        checkpoint, samples_digest, plane: digests of the model, of the samples, of origin and directions.
        normalisation, seed: of the directions; ``span`` and ``points`` of the grid.
        split, samples, clients: the data measured on; ``clients`` as in ``0-9, 12``, or ``all``.
        loss, dtype: the loss function, and the type it was computed in.
    """

    model: str
    data: str
    algorithm: str
    round: int | None
    checkpoint: str
    plane: str
    normalisation: str
    seed: int
    span: float
    points: int
    split: str
    samples: int
    clients: str
    samples_digest: str
    loss: str
    dtype: str

    def differences(self, other: Provenance) -> list[str]:
        """What differs, in words, causes before consequences: ``seed (0 there, 1 here)``."""
        names = [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]
        if {"checkpoint", "normalisation", "seed", "dtype"} & set(names):
            names = [name for name in names if name != "plane"]
        if {"data", "split", "samples", "clients"} & set(names):
            names = [name for name in names if name != "samples_digest"]
        return [
            f"{name.replace('_', ' ')} ({_short(getattr(self, name))} there, {_short(getattr(other, name))} here)"
            for name in names
        ]


def client_ranges(clients: Sequence[int] | None) -> str:
    """Client ids as text: ``0-9, 12``; ``all`` for ``None``."""
    if clients is None:
        return "all"
    runs: list[list[int]] = []
    for client in clients:
        if runs and client == runs[-1][1] + 1:
            runs[-1][1] = client
        else:
            runs.append([client, client])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


class SurfaceStore:
    """The values of a surface in the making, in memory and (where ``path`` is given) in a file.

    Attributes:
        x, y: coordinates, [nx] and [ny].
        loss, accuracy: [ny, nx], not-a-number where not measured; ``accuracy`` in percent, or ``None`` where
            the targets are no classes.
        done: which points are measured, [ny, nx].
        provenance: what is measured.
        notes: what else is worth keeping (device, micro-batch size, cosine); takes no part in resuming.
        seconds: time spent measuring, all sessions together.
    """

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        provenance: Provenance,
        *,
        path: Path | None = None,
        accuracy: bool = True,
        notes: dict[str, Any] | None = None,
    ) -> None:
        shape = len(y), len(x)
        self.x, self.y, self.provenance, self.path = x, y, provenance, path
        self.loss = np.full(shape, np.nan)
        self.accuracy = np.full(shape, np.nan) if accuracy else None
        self.done = np.zeros(shape, dtype=bool)
        self.notes = notes or {}
        self.seconds = 0.0
        self._due = 0.0

    def resume(self) -> None:
        """Take over what the file holds, where there is one.

        Raises:
            FedscapeError: it is damaged, no surface, or one of something else.
        """
        if self.path is None or not os.path.exists(self.path):
            return
        earlier = SurfaceStore.read(self.path)
        differing = earlier.provenance.differences(self.provenance)
        if not differing and not (np.array_equal(earlier.x, self.x) and np.array_equal(earlier.y, self.y)):
            differing = ["coordinates"]
        if differing:
            raise FedscapeError(
                f"{self.path} holds another surface, which differs in {', '.join(differing)}: " + _WAY_OUT
            )
        self.loss, self.done, self.seconds = earlier.loss, earlier.done, earlier.seconds
        self.accuracy = earlier.accuracy
        if self.finished:
            self.notes = earlier.notes

    def replace(self) -> None:
        """Make ready to write over what the file holds, if that is a surface of whatever.

        Raises:
            FedscapeError: it is something else.
        """
        if self.path is not None and os.path.exists(self.path):
            _contents(self.path)

    @property
    def finished(self) -> bool:
        """Whether every point is measured."""
        return bool(self.done.all())

    def put(self, row: int, column: int, loss: float, accuracy: float | None) -> None:
        """Record one point, finite or not (accuracy as a fraction), and write the file where that is due."""
        self.loss[row, column] = loss
        if self.accuracy is not None and accuracy is not None:
            self.accuracy[row, column] = 100 * accuracy
        self.done[row, column] = True
        if time.monotonic() >= self._due:
            self.save()

    def save(self) -> None:
        """Write the whole file, atomically.

        Raises:
            FedscapeError: it cannot be written.
        """
        if self.path is None:
            return
        start = time.monotonic()
        contents = io.BytesIO()
        with h5py.File(contents, "w", userblock_size=_USER_BLOCK) as file:
            self._fill(file)
        body = contents.getbuffer()[_USER_BLOCK:]
        with atomic_write(self.path) as target:
            target.write(_header(body).ljust(_USER_BLOCK, b"\0"))
            target.write(body)
        now = time.monotonic()
        self._due = now + max(WRITE_EVERY, 20 * (now - start))  # writing takes 5 % of the time at most

    def _fill(self, file: h5py.File) -> None:
        split = self.provenance.split
        file["xcoordinates"] = self.x
        file["ycoordinates"] = self.y
        file[f"{split}_loss"] = self.loss
        if self.accuracy is not None:
            file[f"{split}_acc"] = self.accuracy
        file["done"] = self.done.astype(np.uint8)
        file.attrs["format"] = FORMAT
        for name, value in vars(self.provenance).items():
            if value is not None:
                huge = isinstance(value, int) and value.bit_length() > 63
                file.attrs[name] = str(value) if huge else value
        file.attrs["seconds"] = self.seconds
        file.attrs["notes"] = json.dumps(self.notes)
        file.attrs["versions"] = json.dumps({**versions(), "h5py": h5py.__version__})

    @classmethod
    def read(cls, path: str | Path) -> SurfaceStore:
        """A store as it lies on disk, finished or not.

        Raises:
            FedscapeError: no such file, not a surface, or damaged.
        """
        path = Path(path)
        contents = _contents(path)
        damaged = f"{path} is damaged or was changed: {_WAY_OUT}"
        if not contents.startswith(_header(contents[_USER_BLOCK:])):
            raise FedscapeError(damaged)
        try:
            with h5py.File(io.BytesIO(contents), "r") as file:
                return cls._from(file, path)
        except Exception as error:  # made by something else, under our name
            raise FedscapeError(damaged) from error

    @classmethod
    def _from(cls, file: h5py.File, path: Path) -> SurfaceStore:
        readers = {"int": int, "int | None": int, "float": float, "str": str}
        values = {f.name: readers[str(f.type)](file.attrs[f.name]) for f in fields(Provenance) if f.name in file.attrs}
        provenance = Provenance(**{"round": None, **values})
        split = provenance.split
        store = cls(
            _array(file, "xcoordinates", 1),
            _array(file, "ycoordinates", 1),
            provenance,
            path=path,
            accuracy=f"{split}_acc" in file,
            notes=json.loads(file.attrs["notes"]),
        )
        shape = store.loss.shape
        store.loss = _array(file, f"{split}_loss", shape)
        store.done = _array(file, "done", shape).astype(bool)
        if store.accuracy is not None:
            store.accuracy = _array(file, f"{split}_acc", shape)
        store.seconds = float(file.attrs["seconds"])
        return store


def _contents(path: Path) -> bytes:
    """The bytes of a surface's file, damaged or not; of any other file no more than its beginning is read."""
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


def _short(value: object) -> str:
    text = str(value)
    text = text if text.isprintable() else ascii(text)
    return text[:12] + "…" if len(text) == 64 else text[:80]
