"""A mean of several numbers with their deviation, over seeds or over clients."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from landscape.errors import FedscapeError


@dataclass(frozen=True)
class Spread:
    """A mean, and how far the numbers lie apart.

    Attributes:
        mean: of the numbers.
        deviation: their standard deviation; ``None`` of a single seed, which has none.
        n: how many they are.
        over: what they are of: ``seeds`` (divisor n − 1) or ``clients`` (divisor n).
        values: the numbers; empty where they are not recorded one by one.
    """

    mean: float
    deviation: float | None
    n: int
    over: Literal["seeds", "clients"]
    values: tuple[float, ...] = ()

    def __str__(self) -> str:
        """The mean to two places, the deviation, and of what: for percentages."""
        deviation = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        one = self.over if self.n != 1 else self.over.removesuffix("s")
        return f"{self.mean:.2f}{deviation} ({self.n} {one})"

    def times(self, factor: float) -> Spread:
        """The same in another unit: 100 for percentages."""
        deviation = None if self.deviation is None else abs(factor) * self.deviation
        return Spread(factor * self.mean, deviation, self.n, self.over, tuple(factor * v for v in self.values))


def over_seeds(values: Sequence[float]) -> Spread:
    """Mean and sample deviation of one number a seed.

    Raises:
        FedscapeError: there is none, or one is not finite: a run that diverged has no number.

    Example:
        >>> str(over_seeds([40.0, 42.0, 44.0])), str(over_seeds([40.0]))
        ('42.00 ± 2.00 (3 seeds)', '40.00 (1 seed)')
    """
    numbers = tuple(float(value) for value in values)
    if not numbers:
        raise FedscapeError("there is no seed to take a mean over: give the number of one run or more")
    if not all(map(math.isfinite, numbers)):
        raise FedscapeError(f"the numbers {', '.join(map(str, numbers))} have no mean: leave out runs that diverged")
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
    return Spread(statistics.fmean(numbers), deviation, len(numbers), "seeds", numbers)
