"""Parts that were measured, kept in a file of lines, so that work that was stopped goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

from analysis.alignment.plain import Plain
from analysis.kept import alone, kept_lines
from landscape import FedscapeError
from landscape.compute.distributed import rank_and_world, sum_over_ranks
from landscape.storage.files import append_line
from landscape.storage.schema import Record, Row, Text

P = TypeVar("P", bound=Plain)
_LINE = Row((Text(200), Record({})))
"""A line of the file: a key, and the part's numbers by name."""


class Kept:
    """Measured parts by key; each is a line of the file, where there is one.

    A line that is damaged, or does not fit what is asked for, counts as not measured.
    """

    def __init__(self, file: str | Path | None) -> None:
        self.file = None if file is None else Path(file)
        self.found: dict[str, Any] = dict(kept_lines(self.file, _LINE))

    def get(self, key: str, kind: type[P], lengths: dict[str, int]) -> P | None:
        """A part that was measured before; ``None`` where it was not."""
        try:
            return kind.of_dict(self.found[key], lengths) if key in self.found else None
        except FedscapeError:
            return None  # damaged: measured again

    def put(self, key: str, part: Plain) -> None:
        """Keep a part."""
        self.found[key] = part.to_dict()
        if self.file is not None:
            append_line(self.file, json.dumps([key, self.found[key]]))


@contextmanager
def opened_state(file: str | Path | None) -> Iterator[Kept]:
    """Inside, what was measured before, and no other process writes to the file.

    All ranks of ``torchrun`` read it, so that they agree on what is left to do; the first one writes.

    Raises:
        LockedError: another process keeps its measurements there.
    """
    leads = rank_and_world()[0] == 0
    with alone(file if leads else None):
        kept = Kept(file)
        sum_over_ranks(torch.zeros(1))  # all have read before one writes
        if not leads:
            kept.file = None
        yield kept
