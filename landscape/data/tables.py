"""Read tables of text that describe images."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from landscape.errors import FedscapeError


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not empty.

    Raises:
        FedscapeError: the file cannot be read or is not text.
    """
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise FedscapeError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FedscapeError(f"{path} is no text file: {error}") from error


def read_csv(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """These columns of a comma-separated file with a header line, row by row.

    Raises:
        FedscapeError: the file cannot be read, lacks a column, or a row lacks a value.
    """
    try:
        header, *rows = list(csv.reader(read_lines(path))) or [[]]
    except csv.Error as error:
        raise FedscapeError(f"{path} is no table of comma-separated values: {error}") from error
    missing = [name for name in columns if name not in header]
    if missing:
        raise FedscapeError(f"{path} lacks the column {', '.join(missing)}: its columns are {', '.join(header)}")
    places = [header.index(name) for name in columns]
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise FedscapeError(f"{path} has {len(row)} values in line {number}, its header has {len(header)}")
    return [tuple(row[place] for place in places) for row in rows]


def numbers(path: Path, values: Sequence[str], what: str) -> np.ndarray:
    """Whole numbers as text -> int64 [n].

    Raises:
        FedscapeError: a value is not a whole number.
    """
    try:
        return np.array([int(value) for value in values], dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise FedscapeError(f"{path}: a {what} is no whole number: {error}") from error


def client_ids(names: Sequence[str]) -> np.ndarray:
    """Names of clients -> ids from 0, int64 [n]; numbers in their order first, then other names in theirs.

    Example:
        >>> from landscape.data.tables import client_ids
        >>> client_ids(["10", "9", "anna", "9"])
        array([1, 0, 2, 0])
    """
    order = {name: i for i, name in enumerate(sorted(set(names), key=lambda name: (_rank(name), name)))}
    return np.array([order[name] for name in names], dtype=np.int64)


def _rank(name: str) -> tuple[bool, int]:
    return (not name.isdecimal(), int(name) if name.isdecimal() else 0)
