"""Measurements kept in a file of lines, by key, so that work that was stopped goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from landscape.errors import FedscapeError
from landscape.storage.lock import sole_writer
from landscape.storage.reading import parse_json, read_text
from landscape.storage.schema import Rule, require


def key_of(content: list[Any]) -> str:
    """A digest of what decides a measurement's numbers, 24 hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


def alone(state: str | Path | None) -> AbstractContextManager[None]:
    """Inside, no other process keeps its measurements in the file.

    Raises:
        LockedError: another one does.
    """
    if state is None:
        return nullcontext()
    return sole_writer(Path(state), f"keeps its measurements in {state}", "give another --out")


def kept_lines(file: Path | None, rule: Rule) -> Iterator[Any]:
    """The values of the lines that are whole and obey the rule; what the others held is measured again.

    Args:
        file: with a JSON value a line, there or not.
        rule: of a line.

    Raises:
        FedscapeError: the file cannot be read.
    """
    if file is None or not file.exists():
        return
    for line in read_text(file).splitlines():
        try:
            value = parse_json(line, file)
            require(value, rule, file)
        except FedscapeError:
            continue  # cut off by a kill, or what was written behind that
        yield value
