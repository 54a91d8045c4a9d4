"""About how long work takes: what is told before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable

from torch import Tensor


def seconds_of(action: Callable[[], object]) -> float:
    """Of the second of two calls."""
    for _ in range(2):
        start = time.perf_counter()
        result = action()
        if isinstance(result, Tensor):
            float(result.norm())  # a number on the host: a GPU has finished then
    return time.perf_counter() - start


def duration(seconds: float) -> str:
    """``40 s``, ``3 min``, ``2.5 h``.

    Example:
        >>> from analysis.timing import duration
        >>> duration(40), duration(180), duration(9000)
        ('40 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
