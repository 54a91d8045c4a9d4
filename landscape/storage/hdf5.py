"""Read HDF5 files from anywhere: plain arrays in the file itself, and nothing that HDF5 would fetch from elsewhere.

A virtual or external data set names other files of this machine, and a soft or external link may, too; a filter may be
a plug-in.  All of these are looked for before anything is read.  That the library itself, which is written in C, parses
damaged bytes without a crash cannot be promised here: whoever reads a file checks a digest of its bytes before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import h5py
import numpy as np

_MOST_NAMES = 256
_LARGEST_ATTRIBUTE = 1 << 26
_LAYOUTS = (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED)
_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}


@contextmanager
def bounded(room: int = 1 << 30) -> Iterator[None]:
    """Inside, the process may take so many bytes of address space more, where the system can limit that.

    The length of a text is a number of 32 bits in the file, and HDF5 allocates what it says: damaged, up to 4.3 GB.
    """
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):  # no Linux
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    wanted = now + room if before[0] == resource.RLIM_INFINITY else min(now + room, before[0])
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (wanted, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


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
