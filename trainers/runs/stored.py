"""What the JSON files of a run directory must hold."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from landscape.errors import FedscapeError
from landscape.storage.reading import read_json, read_json_lines
from landscape.storage.schema import Either, Items, Maybe, Number, OneOf, Record, Text

_COUNT = Number(0, whole=True)
_NUMBER = Number()

CONFIG = Record(
    {
        "algorithm": Record({"name": Text(1000)}),
        "settings": Record(
            {},
            {
                "data": Text(),
                "data_dir": Text(),
                "model": Text(1000),
                "partition": Text(1000),
                "clients": Number(1, whole=True),
                "per_round": Number(1, whole=True),
                "rounds": _COUNT,
                "local_epochs": Number(1, whole=True),
                "local_steps": Maybe(Number(1, whole=True)),
                "batch_size": Either((OneOf(("full",)), Number(1, whole=True))),
                "last_batch": Text(1000),
                "lr": Number(0),
                "lr_schedule": Text(1000),
                "weighting": Text(1000),
                "aggregation": Text(1000),
                "evaluated_model": Text(1000),
                "normalise": Text(),
                "seed": Number(whole=True),
            },
        ),
    },
    {"parts": Maybe(Record({})), "versions": Record({}), "protocol": Text(1000)},
)
"""``config.json``; settings that a version did not have are missing in its files."""

PRIVACY = Record(
    {
        "epsilon": Maybe(Number(0)),
        "noise": Number(0),
        "clip": Maybe(Number(0)),  # none where nothing is clipped
        "delta": Number(0, 1),
        "rounds": _COUNT,
        "participation": Number(0, 1),
        "unit": OneOf(("client",)),
    }
)
"""The differential privacy of a run, in ``result.json``."""

RESULT = Record(
    {"status": OneOf(("finished", "diverged"))}, {"round": _COUNT, "reason": Maybe(Text()), "privacy": PRIVACY}
)
"""``result.json``."""

FAILURE = Record({"reason": Text(100_000)})
"""``failure.json``, and the record of a measurement that failed."""

_MEASURED = ("test_", "train_", "swa_", "client_", "bytes_", "seconds", "drift", "steps", "gradients", "dp_")


@dataclass(frozen=True)
class _Round:
    """A record of a round: a number for each measured quantity, or nothing where it was not finite."""

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        names = [name for name in value if isinstance(name, str)] if isinstance(value, dict) else []
        rules = {name: Maybe(_NUMBER) for name in names if name.startswith(_MEASURED)}
        whole = {"round": Number(0, whole=True)}
        Record(whole, {**rules, "clients": Items(_COUNT), "lr": Maybe(_NUMBER)})(value, place)


METRICS = _Round()
"""A line of ``metrics.jsonl``."""


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a run directory.

    Raises:
        FedscapeError: it is missing, cannot be read or is damaged.
    """
    config: dict[str, Any] = read_json(folder / "config.json", CONFIG)
    return config


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """``metrics.jsonl`` of a run directory, without an incomplete last line; empty where there is none.

    Raises:
        FedscapeError: it cannot be read, a line is damaged, or the rounds do not ascend though none is there twice.
    """
    file = folder / "metrics.jsonl"
    if not file.exists():
        return []  # of a run that was killed in its first round
    records: list[dict[str, Any]] = read_json_lines(file, METRICS)
    if without_repeats(records)[1]:
        return records  # two processes that wrote at once leave rounds in any order
    for number, (earlier, later) in enumerate(itertools.pairwise(records), 2):
        if later["round"] < earlier["round"]:
            raise FedscapeError(
                f"{file} is damaged at line {number}: round {later['round']} comes after round {earlier['round']}"
            )
    return records


def without_repeats(records: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Records of rounds without those that a later one of the same round replaces, and how many those are.

    Two processes that resumed one run at once, which versions without a lock allowed, both wrote their rounds.

    Example:
        >>> from trainers.runs.stored import without_repeats
        >>> without_repeats([{"round": 1}, {"round": 2, "lr": 1}, {"round": 2, "lr": 2}, {"round": 3}])
        ([{'round': 1}, {'round': 2, 'lr': 2}, {'round': 3}], 1)
    """
    last = {record["round"]: record for record in records}
    return [last[number] for number in sorted(last)], len(records) - len(last)
