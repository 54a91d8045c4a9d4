"""Options that came after runs were kept by their content: with the value that does what was done before, they are left
out of a run's key, and taken where an earlier version recorded none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SIZES, _FULL, _PAPER, _V0 = {"sizes": "equal"}, {"proximal": "full"}, {"variant": "paper"}, {"v0": "tau"}

LATER: Mapping[str, Mapping[str, Any]] = {
    "settings": {"clip_eps": 0.0, "norm_eps": 0.0, "dual_steps": "own", "dual_lr": "current"},
    "fedprox": _FULL,
    "fedacg": _FULL,
    "fednova": _FULL,
    "feddyn": {**_SIZES, **_FULL},
    "feddc": _SIZES,
    "scaffold": _SIZES,
    "fedgamma": _SIZES,
    "fedgloss": _PAPER,
    "fedlesam": _PAPER,
    "adabest": _PAPER,
    "fedadam": _V0,
    "fedadagrad": _V0,
    "fedyogi": _V0,
    "adam": _V0,
    "adagrad": _V0,
    "yogi": _V0,
    "swa": _PAPER,
    "man": {"variance": ()},
}
"""The value that does what was done before, by option, of the settings, an algorithm or a part."""


def without_later(whose: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded values without the later options that do what was done before.

    Example:
        >>> from trainers.runs.later import without_later
        >>> without_later("swa", {"cycle": 5, "variant": "paper"}), without_later("swa", {"variant": "official"})
        ({'cycle': 5}, {'variant': 'official'})
    """
    before = LATER.get(whose, {})
    return {name: value for name, value in values.items() if name not in before or _plain(value) != before[name]}


def with_later(whose: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded values of an earlier version with the later options.

    Example:
        >>> from trainers.runs.later import with_later
        >>> with_later("swa", {"cycle": 5})
        {'variant': 'paper', 'cycle': 5}
    """
    return {**LATER.get(whose, {}), **values}


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
