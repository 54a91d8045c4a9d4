"""Memory-mapped arrays: they stay in their file and are read page by page when they are used."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

LARGE = 1 << 30
"""The size in bytes from which an array is mapped, if its file allows that."""


def map_values(path: Path, dtype: np.dtype, shape: tuple[int, ...], offset: int, order: str = "C") -> np.ndarray:
    """Map the values from ``offset`` on; writing to the array changes memory, never the file."""
    return np.memmap(path, dtype, "c", offset, shape, "F" if order == "F" else "C")


def map_member(path: Path, archive: zipfile.ZipFile, name: str) -> np.ndarray | None:
    """Map an array of an ``.npz``; ``None`` if it is compressed or small.

    Raises:
        ValueError, OSError, zipfile.BadZipFile: the member is damaged or holds objects.
    """
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED or member.file_size < LARGE:
        return None
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        header = file.tell()
        while file.read(1 << 20):  # at the end zipfile compares the checksum
            pass
    if dtype.hasobject:
        raise ValueError("object arrays are not read")
    with open(path, "rb") as raw:
        raw.seek(member.header_offset + 26)
        lengths = raw.read(4)
    names = int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    return map_values(path, dtype, shape, member.header_offset + 30 + names + header, "F" if fortran else "C")
