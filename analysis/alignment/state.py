"""Parts that were measured, kept in a file of lines, so that work that was stopped goes on."""

from __future__ import annotations

import hashlib
import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from analysis.alignment.plain import Plain
from landscape import FedscapeError
from landscape.storage.files import append_line
from landscape.storage.lock import sole_writer
from landscape.storage.reading import parse_json, read_text
from landscape.storage.schema import Record, Row, Text, require

P = TypeVar("P", bound=Plain)
_LINE = Row((Text(200), Record({})))
"""A line of the file: a key, and the part's numbers by name."""


class Kept:
    """Measured parts by key; each is a line of the file, where there is one.

    A line that is damaged, or does not fit what is asked for, counts as not measured.
    """

    def __init__(self, file: str | Path | None) -> None:
        self.file = None if file is None else Path(file)
        self.found: dict[str, Any] = {}
        if self.file is None or not self.file.exists():
            return
        for line in read_text(self.file).splitlines():
            try:
                value = parse_json(line, self.file)
                require(value, _LINE, self.file)
            except FedscapeError:
                continue  # a line cut off by a kill is measured again
            self.found[value[0]] = value[1]

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


def key_of(content: list[Any]) -> str:
    """A digest of what decides a part's numbers."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


def alone(state: str | Path | None) -> AbstractContextManager[None]:
    """Inside, no other process keeps its measurements in the file."""
    if state is None:
        return nullcontext()
    return sole_writer(Path(state), f"keeps its measurements in {state}", "give another --out")
