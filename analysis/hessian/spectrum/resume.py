"""The file that unfinished work is kept in, so that a killed measurement continues."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from landscape import FedscapeError
from landscape.compute.distributed import rank_and_world
from landscape.storage.files import load_torch, save_torch
from landscape.storage.lock import sole_writer
from landscape.storage.schema import Anything, Record, Rule, require, shown
from landscape.terminal.stopping import Stop, deferring

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
        self._stop: Stop | None = None

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

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Inside, this process alone works with the file (of several ranks, the first), and a signal that stops the
        work waits for :meth:`keep`; of ranks each ends at once, as a sum over all of them would wait for those that
        have ended.

        Raises:
            LockedError: another process works with it.
        """
        (rank, world), path = rank_and_world(), self._path
        if path is None:
            yield
            return
        lock = sole_writer(path, f"keeps its iteration in {path}", "give another --state") if rank == 0 else None
        with lock or nullcontext(), deferring() if world == 1 else nullcontext() as self._stop:
            yield

    def keep(self, products: int, state: Callable[[], dict[str, Any]]) -> None:
        """Write the parts by name where it is due, or where the work is to stop.

        Args:
            products: how many are done; before the first nothing is written.
            state: gives the parts.

        Raises:
            StoppedError: a signal wants the work to stop; what was done is in the file.
        """
        asked = self._stop is not None and self._stop.asked is not None
        if products and (self.due() or asked):
            self.write(state())
        if self._stop is not None:
            hint = f"the iteration so far is in {self._path}: the same command continues"
            self._stop.now(f"after {products} products", hint)

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
