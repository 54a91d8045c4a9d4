"""Read HDF5 files from anywhere: plain arrays in the file itself, and nothing that HDF5 would fetch from elsewhere.

A virtual or external data set names other files of this machine, and a soft or external link may, too; a filter may be
a plug-in.  All of these are looked for before anything is read, and it is read in a process of its own
(:func:`read_apart`), as the library, which is written in C, may crash on damaged bytes, or not end.
"""

from __future__ import annotations

import io
import json
import math
import os
import signal
import warnings
from contextlib import suppress
from typing import Any

import h5py
import numpy as np

SECONDS = 20
"""That reading a file may take."""
_ROOM = 1 << 30
_MOST_NAMES = 256
_LARGEST_ATTRIBUTE = 1 << 26
_LAYOUTS = (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED)
_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}


def read_apart(contents: bytes, *, most: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """:func:`read_plain` of the bytes of a file, in a process of its own (where the system can fork one).

    HDF5's library parses in C: of damaged bytes it may take gigabytes (the length of a text is a number of 32 bits, and
    that much is allocated), loop for ever or crash.  The process may take a gigabyte and :data:`SECONDS`, and what it
    found comes back in forms that run no code.

    Raises:
        ValueError, OSError, KeyError: it cannot be read, or as :func:`read_plain`.
    """
    if not hasattr(os, "fork"):
        with h5py.File(io.BytesIO(contents), "r") as file:
            return read_plain(file, most=most)
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, none of which the process needs
        process = os.fork()
    if process == 0:
        try:
            os.close(ours)
            _limit_this_process()
            with h5py.File(io.BytesIO(contents), "r") as file:
                attributes, arrays = read_plain(file, most=most)
            with os.fdopen(theirs, "wb") as pipe:
                told = json.dumps(attributes).encode()
                pipe.write(len(told).to_bytes(8, "little") + told)
                packed = io.BytesIO()
                named: dict[str, Any] = {f"array {name}": array for name, array in arrays.items()}
                np.savez(packed, **named)
                pipe.write(packed.getvalue())
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        found = pipe.read()
    if os.waitpid(process, 0)[1] != 0:
        raise ValueError("HDF5 cannot read it")
    length = int.from_bytes(found[:8], "little")
    with np.load(io.BytesIO(found[8 + length :]), allow_pickle=False) as packed_arrays:
        arrays = {name.removeprefix("array "): packed_arrays[name] for name in packed_arrays.files}
    return json.loads(found[8 : 8 + length]), arrays


def _limit_this_process() -> None:
    """Give this process, which was forked to read a file, a gigabyte more and some seconds."""
    import resource

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # no Linux, or less is allowed already
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + _ROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))


def read_plain(group: h5py.Group, *, most: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The attributes and arrays of a group that holds nothing else.

    Args:
        group: of a file that is open.
        most: values that an array may have.

    Returns:
        Numbers, truth values and texts by name, and arrays of numbers by name.

    Raises:
        ValueError: it holds something else: groups, links, virtual or external data sets, filters other than gzip,
            arrays of anything but numbers or with more values.
        OSError, RuntimeError, KeyError, TypeError: HDF5 cannot read it.
    """
    if max(len(group), len(group.attrs)) > _MOST_NAMES:
        raise ValueError(f"it has more than {_MOST_NAMES} names")
    attributes = {name: _attribute(group, name) for name in group.attrs}
    return attributes, {name: read_array(group, name, most=most) for name in group}


def subgroup(group: h5py.Group, name: str) -> h5py.Group:
    """A group within a group of the same file.

    Raises:
        ValueError: it is something else.
        KeyError: there is none.
    """
    found = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
    if not isinstance(found, h5py.Group):
        raise ValueError(f"'{name}' is no group of this file")
    return found


def read_array(group: h5py.Group, name: str, *, most: int) -> np.ndarray:
    """An array of numbers in a group.

    Raises:
        ValueError: it is something else, or has more than ``most`` values.
        OSError, RuntimeError, KeyError, TypeError: HDF5 cannot read it.
    """
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise ValueError(f"'{name}' is a link")
    dataset = group[name]
    if not isinstance(dataset, h5py.Dataset):
        raise ValueError(f"'{name}' is no array")
    made = dataset.id.get_create_plist()
    if made.get_layout() not in _LAYOUTS or made.get_external_count():
        raise ValueError(f"'{name}' is in another file")
    if any(made.get_filter(i)[0] not in _FILTERS for i in range(made.get_nfilters())):
        raise ValueError(f"'{name}' has an unknown filter")
    if dataset.dtype.kind not in "iufb" or dataset.shape is None:
        raise ValueError(f"'{name}' is of {dataset.dtype}")
    if math.prod(dataset.shape) > most or (dataset.chunks and math.prod(dataset.chunks) > most):
        raise ValueError(f"'{name}' has the shape {dataset.shape}")
    return np.asarray(dataset[()])


def _attribute(group: h5py.Group, name: str) -> Any:
    found = h5py.h5a.open(group.id, name.encode())
    if found.shape != () or found.get_storage_size() > _LARGEST_ATTRIBUTE:
        raise ValueError(f"the attribute '{name}' is no single value")
    value = group.attrs[name]
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError(f"the attribute '{name}' is a {type(value).__name__}")
    return value
