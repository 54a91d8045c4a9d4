"""How large a file may be, and what it declares, before anything of it is decompressed or allocated.

A file may take as much memory as :data:`EXPANDED` bytes, or :data:`RATIO` times its own size where that is more: then
whoever sends a bomb has to send as much himself.  JSON files, whose values take some thirty times their text, may have
:data:`JSON` bytes.  ``--max-bytes`` of every command and the environment variable :data:`VARIABLE` raise both limits.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from pathlib import Path
from typing import IO

from landscape.errors import FedscapeError

EXPANDED = 1 << 30
RATIO = 20
JSON = 1 << 26
VARIABLE = "FEDSCAPE_MAX_BYTES"
"""The environment variable with the number of bytes that files may have or take in memory."""

_KINDS = (
    (stat.S_ISDIR, "Is a directory"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"), (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)  # fmt: skip


def _raised() -> int:
    """What the environment variable allows; 0 unless it is set.

    Raises:
        FedscapeError: it is no number of bytes.
    """
    return number_of_bytes(os.environ.get(VARIABLE, "0"), f"the environment variable {VARIABLE}")


def number_of_bytes(text: str, given: str) -> int:
    """The number that a text is; ``given`` names where it was given.

    Raises:
        FedscapeError: it is none.
    """
    if not text.isdecimal() or len(text) > 18:
        raise FedscapeError(f"{given} is '{text}': give a number of bytes")
    return int(text)


def require_size(path: str | Path, size: int, what: str, *, limit: int) -> None:
    """Refuse what is larger than a limit and than the environment variable allows.

    Args:
        path: the file.
        size: in bytes.
        what: has this size, for the error.
        limit: in bytes.

    Raises:
        FedscapeError: it is larger.

    Example:
        >>> from landscape.storage.limits import require_size
        >>> require_size("a.json", 70_000_000, "the file has", limit=64_000_000)
        Traceback (most recent call last):
            ...
        landscape.errors.FedscapeError: a.json: the file has 70,000,000 bytes, and 64,000,000 are the limit: if you \
trust it, raise the limit with --max-bytes 70000000 (or FEDSCAPE_MAX_BYTES=70000000)
    """
    limit = max(limit, _raised())
    if size > limit:
        raise FedscapeError(
            f"{path}: {what} {size:,} bytes, and {limit:,} are the limit: if you trust it, raise the limit with "
            f"--max-bytes {size} (or {VARIABLE}={size})"
        )


def expanded(stored: int) -> int:
    """The most bytes of memory that what a file of that size holds may take."""
    return max(EXPANDED, RATIO * stored, _raised())


def require_expanded(path: str | Path, size: int, stored: int) -> None:
    """Refuse a file whose contents take far more memory than the file is long.

    Args:
        path: the file.
        size: in bytes, as it declares it.
        stored: the size of the file in bytes.

    Raises:
        FedscapeError: it declares more than the limit.
    """
    require_size(path, size, "what it holds would take", limit=expanded(stored))


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a file to read its bytes: a regular file alone, as a device or a pipe may never end.

    Raises:
        FedscapeError: there is none, it is no regular file, or it cannot be read.
    """
    try:
        mode = os.stat(path).st_mode
        kind = next((name for test, name in _KINDS if test(mode)), None)
        if kind is not None:
            raise FedscapeError(f"cannot read {path}: {kind}{'' if kind[0].isupper() else ', not a file'}")
        return open(path, "rb")
    except FileNotFoundError:
        raise FedscapeError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        raise FedscapeError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def read_bytes(path: str | Path, *, limit: int | None = None) -> bytes:
    """The bytes of a regular file.

    Args:
        path: the file.
        limit: its largest size; none unless given.

    Raises:
        FedscapeError: as :func:`open_regular`; it is larger.
    """
    with open_regular(path) as file:
        if limit is not None:
            require_size(path, os.fstat(file.fileno()).st_size, "the file has", limit=limit)
        try:
            return file.read()
        except OSError as error:
            raise FedscapeError(f"cannot read {path}: {error.strerror or error}") from error


def require_members(path: str | Path, archive: zipfile.ZipFile, stored: int) -> None:
    """Refuse a ZIP archive whose members declare more than a file of that size may take.

    Raises:
        FedscapeError: as :func:`require_expanded`.
    """
    require_expanded(path, sum(member.file_size for member in archive.infolist()), stored)


def size_of(file: IO[bytes]) -> int:
    """The size of an open file in bytes; it is read from its beginning afterwards."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    return size
