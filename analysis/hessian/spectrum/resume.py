"""The file that unfinished work is kept in, so that a killed measurement continues."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from landscape import FedscapeError
from landscape.storage.files import load_torch, save_torch
from landscape.storage.schema import Anything, Record, Rule, require, shown

_KEEP_SECONDS = 60.0
_COST_SHARE = 0.05
"""Unfinished work is written at most this often, and at most this share of the time is spent on it."""


class StateFile:
    """A file of unfinished eigenvalues, read at the start, written now and then, removed at the end.

    Args:
        path: the file; ``None``: nothing is kept.
        question: what is computed, plain values by name: a file of another question is refused.
        parts: names of what ``write`` gets.
        rule: what the parts must be (:mod:`landscape.storage.schema`).
    """

    def __init__(
        self, path: str | Path | None, question: dict[str, Any], parts: Collection[str], rule: Rule | None = None
    ) -> None:
        self._rule = rule or Anything()
        self._path = None if path is None else Path(path)
        self._question, self._names = question, {"question", *parts}
        self._written, self._cost = time.monotonic(), 0.0

    def read(self) -> dict[str, Any] | None:
        """What was written last; ``None`` where there is no file.

        Raises:
            FedscapeError: the file holds something else, or the work on another question, or is damaged.
        """
        if self._path is None or not self._path.exists():
            return None
        saved = load_torch(self._path)
        if not isinstance(saved, dict) or set(saved) != self._names:
            raise FedscapeError(f"{self._path} does not hold unfinished eigenvalues: give another file, or remove it")
        require(saved["question"], Record({}), self._path)
        theirs = saved["question"]
        different = [
            f"{key} {shown(theirs.get(key))}, not {value!r}"
            for key, value in self._question.items()
            if theirs.get(key) != value
        ]
        if different:
            raise FedscapeError(
                f"{self._path} holds the unfinished eigenvalues of another question ({'; '.join(different)}): "
                "give another file, or remove it"
            )
        require(saved, self._rule, self._path)
        return saved

    def due(self) -> bool:
        """Whether the last writing is a minute ago, and long enough that writing takes under 5 % of the time."""
        waited = time.monotonic() - self._written
        return self._path is not None and waited >= max(_KEEP_SECONDS, self._cost / _COST_SHARE)

    def write(self, state: dict[str, Any]) -> None:
        """Write the parts by name."""
        assert self._path is not None
        begin = time.monotonic()
        save_torch(self._path, {"question": self._question, **state})
        self._written = time.monotonic()
        self._cost = self._written - begin

    def remove(self) -> None:
        """Remove the file: the work is done."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
