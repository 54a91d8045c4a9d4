"""Read JSON and TOML files and NumPy archives from anywhere: within limits, in bounded memory, errors in one
sentence."""

from __future__ import annotations

import json
import math
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from landscape.errors import FedscapeError
from landscape.storage import limits
from landscape.storage.schema import Rule, require

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MOST_ARRAYS = 1_000_000


def read_text(path: str | Path, *, limit: int = limits.JSON) -> str:
    """The text of a regular UTF-8 file.

    Raises:
        FedscapeError: there is no such file, it cannot be read, is too large or is no text.
    """
    try:
        return limits.read_bytes(path, limit=limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FedscapeError(f"{path} is damaged: it is no text ({error})") from error


def read_json(path: str | Path, rule: Rule, *, limit: int = limits.JSON) -> Any:
    """The contents of a JSON file, checked.

    Args:
        path: the file.
        rule: what it must hold (:mod:`landscape.storage.schema`).
        limit: its size in bytes at most (:mod:`landscape.storage.limits`).

    Raises:
        FedscapeError: there is no such file, it cannot be read, is too large, is no JSON, or holds something else.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from landscape.storage.reading import read_json
        >>> from landscape.storage.schema import Record, Text
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "failure.json"
        ...     _ = file.write_text('{"reason": "no space left"}')
        ...     read_json(file, Record({"reason": Text()}))
        {'reason': 'no space left'}
    """
    value = parse_json(read_text(path, limit=limit), path)
    require(value, rule, path)
    return value


def read_toml(path: str | Path) -> dict[str, Any]:
    """The contents of a TOML file.

    Raises:
        FedscapeError: there is no such file, it cannot be read, is too large or is no TOML.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from landscape.storage.reading import read_toml
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "run.toml"
        ...     _ = file.write_text('algorithm = "fedsam"')
        ...     read_toml(file)
        {'algorithm': 'fedsam'}
    """
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise FedscapeError(f"{path} is no TOML: it is nested too deep") from None
    except ValueError as error:
        raise FedscapeError(f"{path} is no TOML: {error}") from error


def parse_json(text: str, place: object) -> Any:
    """The value of a JSON text.

    Raises:
        FedscapeError: it is none; the sentence names ``place``.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise FedscapeError(f"{place} is damaged: it is nested too deep") from None
    except ValueError as error:
        raise FedscapeError(f"{place} is damaged: {error}") from error


def read_json_lines(path: str | Path, rule: Rule) -> list[Any]:
    """The values of a file with a JSON value a line, each checked; an incomplete last line is left out.

    Raises:
        FedscapeError: as :func:`read_json`; the sentence names the line.
    """
    text = read_text(path)
    lines = text.split("\n")
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"line {number} of {path}"
        try:
            value = parse_json(line, place)
        except FedscapeError:
            if number == len(lines):
                break  # incomplete, from a process that was killed
            raise
        require(value, rule, place)
        found.append(value)
    return found


@contextmanager
def open_archive(path: str | Path) -> Iterator[tuple[Mapping[str, np.ndarray], zipfile.ZipFile]]:
    """Open a NumPy archive (``.npz``): its arrays by name, each read when it is asked for, and the ZIP archive itself.

    Raises:
        FedscapeError: there is no such file, it is none, or its arrays would take more than the limit.
    """
    with limits.open_regular(path) as file:
        try:
            stored = limits.size_of(file)
            with zipfile.ZipFile(file) as archive:
                limits.require_members(path, archive, stored)
                for member in archive.infolist():
                    _check_header(path, archive, member)
                file.seek(0)
                with np.load(file, allow_pickle=False) as arrays:
                    yield arrays, archive
        except FedscapeError:
            raise
        except Exception as error:  # a damaged archive can raise almost anything
            raise FedscapeError(f"{path} is not a NumPy archive of plain arrays or is damaged: {error}") from error


def _check_header(path: str | Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Refuse an array whose header declares other values than the member holds: NumPy allocates before it reads.

    Raises:
        FedscapeError: it does.
    """
    with archive.open(member) as file:
        shape, dtype, start = npy_header(file)
    if start + math.prod(shape) * dtype.itemsize != member.file_size or min(shape, default=0) < 0:
        raise FedscapeError(f"{path} is damaged: '{member.filename}' does not hold the {shape} values it declares")


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape, type and place of the values of a NumPy file that is open at its beginning.

    Raises:
        ValueError: it is none, or holds objects.
    """
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("arrays of objects are not read")
    return shape, dtype, file.tell()
