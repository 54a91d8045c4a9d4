"""Read published files of images: CIFAR's pickles, MNIST's idx files, NumPy archives.

Each reader checks the file, which may be damaged or of another form, and none can run code in it.
"""

from __future__ import annotations

import gzip
import io
import math
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from landscape.data import memory_mapped
from landscape.errors import FedscapeError
from landscape.storage import limits
from landscape.storage.limits import read_bytes
from landscape.storage.reading import open_archive

Images = np.ndarray
Labels = np.ndarray

_SAFE = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _ArraysOnly(pickle.Unpickler):
    """Unpickles containers, numbers, text and NumPy arrays; refuses everything that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _SAFE:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no array")
        return super().find_class(module, name)


def _bytes(path: Path) -> bytes:
    return read_bytes(path)


def read_cifar(path: Path, label_key: str) -> tuple[Images, Labels]:
    """One of CIFAR's pickles -> images uint8 [n, 3, 32, 32], labels int64 [n].

    Args:
        path: a file such as ``data_batch_1`` or ``train``.
        label_key: ``labels`` (CIFAR-10), ``fine_labels`` or ``coarse_labels`` (CIFAR-100).

    Raises:
        FedscapeError: the file is missing, truncated, holds code, or is not CIFAR's.
    """
    try:
        record = _unpickled(path)
        images, labels = np.asarray(record["data"]), np.asarray(record[label_key])
    except FedscapeError:
        raise
    except Exception as error:  # a damaged pickle can raise almost anything
        raise FedscapeError(f"{path} is not a CIFAR batch or is damaged: {error!r}") from error
    if images.dtype != np.uint8 or images.shape != (labels.size, 3072):
        raise FedscapeError(
            f"{path} is not a CIFAR batch: its data are {images.dtype} {images.shape} for {labels.size} labels, "
            "expected uint8 (n, 3072)"
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise FedscapeError(f"{path} is not a CIFAR batch: its {label_key} are not one integer an image")
    return images.reshape(-1, 3, 32, 32), labels.astype(np.int64)


def read_cifar_names(path: Path, key: str) -> tuple[str, ...]:
    """The class names in CIFAR's ``batches.meta`` (``label_names``) or ``meta`` (``fine_label_names``).

    Raises:
        FedscapeError: the file cannot be read or holds no such names.
    """
    try:
        names = _unpickled(path)[key]
        return tuple(str(name) for name in names)
    except FedscapeError:
        raise
    except Exception as error:  # a damaged pickle can raise almost anything
        raise FedscapeError(f"{path} holds no {key} or is damaged: {error!r}") from error


def _unpickled(path: Path) -> Any:
    return _ArraysOnly(io.BytesIO(_bytes(path)), encoding="latin1").load()


_IDX_TYPES: dict[int, np.dtype[Any]] = {
    8: np.dtype(">u1"),
    9: np.dtype(">i1"),
    11: np.dtype(">i2"),
    12: np.dtype(">i4"),
}


def read_idx(path: Path) -> np.ndarray:
    """Read an idx file (MNIST's format, ``.gz`` or plain; the plain one if both exist).

    Layout: two zero bytes, a type code, the number of dimensions, each dimension as big-endian uint32,
    then the values.  A large plain file is mapped, not read.

    Raises:
        FedscapeError: the file is missing, truncated, or not an idx file.
    """
    zipped = path.with_name(path.name + ".gz")
    if not path.exists() and zipped.exists():
        path = zipped
    large = path.suffix != ".gz" and path.is_file() and path.stat().st_size >= memory_mapped.LARGE
    raw = _head(path) if large else _bytes(path)
    if path.suffix == ".gz":
        try:
            raw = _unzipped(path, raw)
        except (OSError, EOFError, zlib.error) as error:
            raise FedscapeError(f"{path} is damaged: {error}") from error
    if len(raw) < 8 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES or not 0 < 4 * raw[3] <= len(raw) - 4:
        raise FedscapeError(f"{path} is not an idx file: its first bytes are {raw[:4].hex()}")
    dtype, dimensions = _IDX_TYPES[raw[2]], raw[3]
    start = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", raw[4:start])
    length = (path.stat().st_size if large else len(raw)) - start
    expected = math.prod(shape) * dtype.itemsize
    if length != expected:
        raise FedscapeError(f"{path} is cut short or damaged: {length} bytes of values, expected {expected}")
    return (
        memory_mapped.map_values(path, dtype, shape, start)
        if large
        else np.frombuffer(raw, dtype, -1, start).reshape(shape)
    )


def _unzipped(path: Path, raw: bytes) -> bytes:
    """What a gzip file holds, up to the limit: it does not say reliably how much that is.

    Raises:
        FedscapeError: it holds more.
        OSError, EOFError, zlib.error: it is damaged.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
        found = file.read(limits.expanded(len(raw)) + 1)
    limits.require_expanded(path, len(found), len(raw))
    return found


def _head(path: Path) -> bytes:
    with limits.open_regular(path) as file:
        return file.read(4 + 4 * 255)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read a NumPy archive with ``x_train``, ``y_train``, ``x_test``, ``y_test`` and other arrays, such as ``clients``.

    Large arrays that are not compressed (``numpy.savez``) are mapped, not read.

    Raises:
        FedscapeError: the file is missing or damaged, or an array is missing.
    """
    names = ("x_train", "y_train", "x_test", "y_test")
    with open_archive(path) as (arrays, archive):
        missing = [name for name in names if name not in arrays]
        if missing:
            raise FedscapeError(f"{path} lacks {', '.join(missing)}: it must hold {', '.join(names)}")
        found = {name: memory_mapped.map_member(path, archive, name) for name in arrays}
        return {name: arrays[name] if array is None else array for name, array in found.items()}


def read_npy(path: Path, axes: int) -> np.ndarray:
    """Map a NumPy file of uint8 with ``axes`` axes.

    Raises:
        FedscapeError: the file is missing or damaged, or has another type or number of axes.
    """
    limits.open_regular(path).close()
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except Exception as error:  # a damaged file can raise almost anything
        raise FedscapeError(f"{path} is not a NumPy file of plain numbers or is damaged: {error}") from error
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != axes:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "an archive"
        raise FedscapeError(f"{path} holds {found}, expected uint8 with {axes} axes")
    return array
