"""Tables of text that come with images."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from landscape.errors import FedscapeError


def read_lines(path: Path) -> list[str]:
    """A text file's lines that are not empty.

    Raises:
        FedscapeError: it cannot be read or is no text.
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
        FedscapeError: it cannot be read, lacks a column, or a row lacks a value.
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
    """Text -> int64.

    Raises:
        FedscapeError: one is no whole number.
    """
    try:
        return np.array([int(value) for value in values], dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise FedscapeError(f"{path}: a {what} is no whole number: {error}") from error


def client_ids(names: Sequence[str]) -> np.ndarray:
    """Names of clients -> their ids from 0, in the order of the names, numbers as numbers, int64 [n]."""
    order = {name: i for i, name in enumerate(sorted(set(names), key=lambda name: (_rank(name), name)))}
    return np.array([order[name] for name in names], dtype=np.int64)


def _rank(name: str) -> tuple[bool, int]:
    return (not name.isdecimal(), int(name) if name.isdecimal() else 0)
