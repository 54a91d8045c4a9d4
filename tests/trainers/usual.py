"""Which algorithms fast tests take where others run them all: one of each kind of state, phase, part and message."""

from collections.abc import Iterable
from typing import Any

import pytest

USUAL = (
    "fedavg", "fedprox", "fedadam", "scaffold", "feddyn", "fedspeed", "fedsmoo", "fedlesam", "mofedsam", "fedinit",
    "fednova", "fedwmsam", "mime", "fedhbm", "fedsol",
)  # fmt: skip


def usual(names: Iterable[str], among: Iterable[str] = USUAL) -> list[Any]:
    """Parameters of a test: the others of these names are marked slow."""
    chosen = set(among)
    return [name if name in chosen else pytest.param(name, marks=pytest.mark.slow) for name in names]
