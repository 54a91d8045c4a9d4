"""How far two groups of runs lie apart, with an interval over their seeds, and the sentence that says it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy import stats

from landscape.errors import FedscapeError

Kind = Literal["ratio", "difference"]


@dataclass(frozen=True)
class Group:
    """One quantity of runs that differ in their seed alone.

    Attributes:
        label: what the group is called.
        values: by seed.
        errors: half-widths of what each value may be off by its measurement, by seed; 0 for those left out.
    """

    label: str
    values: Mapping[int, float]
    errors: Mapping[int, float] = field(default_factory=dict)

    def error(self, seed: int) -> float:
        """Of one value."""
        return float(self.errors.get(seed, 0.0))


@dataclass(frozen=True)
class Effect:
    """a over b, or a minus b, with an interval.

    Attributes:
        kind: ``ratio`` or ``difference``.
        estimate: of geometric means (ratio), or of means.
        low, high: ends of the interval.  With two seeds or more in both groups it is that of Student's t over the
            seeds, widened by what the measurements may be off; with fewer it has the measurements' errors alone.
        level: nominal coverage.
        seeds: in the smaller group; with one the interval says nothing of other seeds.
        paired: whether the seeds of both groups are the same, and differences within a seed were taken.
    """

    kind: Kind
    estimate: float
    low: float
    high: float
    level: float
    seeds: int
    paired: bool

    @property
    def decided(self) -> bool:
        """Whether the interval leaves out that there is no difference (1 or 0)."""
        return not self.low <= (1.0 if self.kind == "ratio" else 0.0) <= self.high


def ratio(a: Group, b: Group, level: float = 0.95) -> Effect:
    """a/b of quantities above 0, from their logarithms.

    Args:
        a, b: the groups.
        level: nominal coverage; with m comparisons give 1 − 0.05/m (Bonferroni).

    Raises:
        FedscapeError: a value that is not above 0, or a group without values.

    Example:
        >>> from figures.report import Group, ratio
        >>> found = ratio(Group("a", {0: 1.0, 1: 1.1}), Group("b", {0: 4.0, 1: 4.4}))
        >>> round(found.estimate, 9), found.decided, found.paired
        (0.25, True, True)
    """
    if any(value <= 0 for group in (a, b) for value in group.values.values()):
        raise FedscapeError("a ratio needs values above 0: take the difference")

    def logs(group: Group) -> Group:
        errors = {seed: group.error(seed) / value for seed, value in group.values.items()}
        return Group(group.label, {seed: math.log(value) for seed, value in group.values.items()}, errors)

    return _compared(logs(a), logs(b), level, "ratio", math.exp)


def difference(a: Group, b: Group, level: float = 0.95) -> Effect:
    """a − b.

    Args:
        a, b: the groups.
        level: as in :func:`ratio`.

    Raises:
        FedscapeError: a group without values.

    Example:
        >>> from figures.report import Group, difference
        >>> found = difference(Group("a", {0: 0.91, 1: 0.89}), Group("b", {0: 0.90, 2: 0.90}))
        >>> round(abs(found.estimate), 9), found.decided, found.paired
        (0.0, False, False)
    """
    return _compared(a, b, level, "difference", lambda value: value)


def _compared(a: Group, b: Group, level: float, kind: Kind, back: Callable[[float], float]) -> Effect:
    if not a.values or not b.values:
        raise FedscapeError(f"{(b if a.values else a).label} has no value to compare")
    both = sorted(a.values.keys() & b.values.keys())
    paired = len(both) == len(a.values) == len(b.values)
    x, y = ([group.values[seed] for seed in sorted(group.values)] for group in (a, b))
    centre = float(np.mean(x) - np.mean(y))
    # Errors of measurements may have one direction: a subset of the samples is the same for all.
    half = sum(float(np.mean([group.error(seed) for seed in group.values])) for group in (a, b))
    seeds = min(len(x), len(y))
    if seeds > 1:
        if paired:
            apart = np.subtract(x, y)
            error, degrees = float(apart.std(ddof=1)) / math.sqrt(seeds), seeds - 1.0
        else:
            shares = [float(np.var(values, ddof=1)) / len(values) for values in (x, y)]
            error = math.sqrt(sum(shares))
            parts = sum(share**2 / (len(values) - 1) for share, values in zip(shares, (x, y), strict=True))
            degrees = sum(shares) ** 2 / parts if parts else math.inf  # Welch and Satterthwaite
        half += error * float(stats.t.ppf((1 + level) / 2, degrees))
    return Effect(kind, back(centre), back(centre - half), back(centre + half), level, seeds, paired)


def sentence(quantity: str, effect: Effect, a: str, b: str, *, points: bool = False) -> str:
    """What an effect says, in words.

    Args:
        quantity: what was measured, such as ``λ1``.
        effect: of a against b.
        a, b: what the groups are called.
        points: whether differences are shares, told in percentage points.

    Example:
        >>> from figures.report import Group, ratio, sentence
        >>> flat, sharp = Group("fedasam", {0: 2.0, 1: 2.2}), Group("fedavg", {0: 16.0, 1: 17.0})
        >>> sentence("λ1", ratio(flat, sharp), "fedasam", "fedavg")
        'λ1 of fedasam is 7.9 times smaller than of fedavg (6.3 to 9.8, 95 %, 2 seeds)'
    """
    if effect.kind == "ratio":
        smaller = effect.estimate < 1
        turned = (lambda value: 1 / value) if smaller else (lambda value: value)
        low, high = sorted((turned(effect.low), turned(effect.high)))
        what = f"{turned(effect.estimate):.2g} times {'smaller' if smaller else 'greater'} than of {b}"
        span = f"{low:.2g} to {high:.2g}"
        open_span = f"{effect.low:.2g} to {effect.high:.2g} times"
    else:
        scale, unit = (100.0, " points") if points else (1.0, "")
        low, high = sorted(abs(end) * scale for end in (effect.low, effect.high))
        what = f"{abs(effect.estimate) * scale:.2g}{unit} {'lower' if effect.estimate < 0 else 'higher'} than of {b}"
        span = f"{low:.2g} to {high:.2g}"
        open_span = f"{effect.low * scale:+.2g} to {effect.high * scale:+.2g}{unit}"
    if effect.seeds < 2:
        if effect.decided:
            return f"{quantity} of {a} is {what} in these runs; one seed says nothing of others"
        errors = f"{open_span}, by the measurements' errors"
        return f"{quantity} of {a} and of {b} cannot be told apart in these runs ({errors})"
    basis = f"{100 * effect.level:.3g} %, {effect.seeds} seeds"
    if effect.decided:
        return f"{quantity} of {a} is {what} ({span}, {basis})"
    return f"{quantity} of {a} and of {b} cannot be told apart ({open_span}, {basis})"
