"""Scales of values that several panels share: linear, logarithmic, or logarithmic above the smallest value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.colors import FuncNorm, LogNorm, Normalize
from matplotlib.ticker import MaxNLocator

from analysis.style import log_ticks
from landscape import FedscapeError

ScaleKind = Literal["auto", "linear", "log", "rise"]

_CROWD, _BOTTOM = 0.2, 1 / 15
"""A linear scale hides the structure where a share of the values, the crowd, lies at the bottom of their range; the
crowd then has a third of the colours."""
_LEVELS = 25


@dataclass(frozen=True)
class Scale:
    """Levels, ticks and colour norm for the values of one panel or of several.

    A logarithmic scale starts at the smallest positive value, at most eight decades below the median, and spans eight
    decades at most; values outside have the colour of the nearest end.

    A ``rise`` is the logarithm of the height above the smallest value m: colours go with ln(1 + (v − m)/ε), where ε is
    such that the lowest fifth of the values has a third of the colours.
    """

    levels: np.ndarray
    ticks: Any
    norm: Normalize
    extend: str = "neither"

    @classmethod
    def of(cls, values: np.ndarray, kind: ScaleKind = "auto") -> Scale | None:
        """A scale for these values; ``None`` where none of them is finite.

        ``auto`` is logarithmic where none is negative and they span more than a decade; else a rise where a fifth of
        them or more lies in the lowest fifteenth of their range, which linear colours would show as one; else linear.

        Raises:
            FedscapeError: an unknown kind, or a logarithmic scale of values that cannot have one.

        Example:
            >>> import numpy as np
            >>> x, y = np.meshgrid(np.linspace(-1, 1, 41), np.linspace(-1, 1, 41))
            >>> bowl, valley = 1.5 + 3 * (x**2 + y**2), 1.5 + 6 * x**2 + 0.1 * y**2
            >>> [Scale.of(values).label("loss") for values in (bowl, valley, 10 * bowl - 14.9)]
            ['loss', 'loss, log scale above 1.5', 'loss, log scale']
        """
        if kind not in ("auto", "linear", "log", "rise"):
            raise FedscapeError(f"unknown scale '{kind}': give auto, linear, log or rise")
        finite = values[np.isfinite(values)]
        if not finite.size:
            return None
        low, high = float(finite.min()), float(finite.max())
        if kind == "log" and (low < 0 or high <= 0):
            raise FedscapeError(f"the values reach {low:.4g}, which no logarithmic scale has: give auto or linear")
        floor = max(float(finite[finite > 0].min(initial=high)), 1e-8 * float(np.median(finite)))
        flat = high - low <= 1e-9 * max(abs(high), abs(low))
        if not flat and low >= 0 and (kind == "log" or (kind == "auto" and high > 10 * floor)):
            top = min(high, 1e8 * floor)
            extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get((low < floor, high > top))
            return cls(np.geomspace(floor, top, 29), log_ticks(floor, top), LogNorm(floor, top), extend or "neither")
        if not flat and (kind == "rise" or (kind == "auto" and _crowded(finite))):
            return cls._rise(finite)
        if not flat:
            levels = np.unique(np.clip(MaxNLocator(_LEVELS).tick_values(low, high), low, high))
            return cls(levels, MaxNLocator(6, steps=[1, 2, 5, 10]), Normalize(low, high))
        levels = low + np.array([-1, 1]) * max(1e-6 * abs(low), 1e-12)
        return cls(levels, [low], Normalize(levels[0], levels[1]))

    @classmethod
    def _rise(cls, finite: np.ndarray) -> Scale:
        """The logarithm of the height above the smallest of these values."""
        low, high = float(finite.min()), float(finite.max())
        # The share of the range below which the crowd lies; with more than a third of it the scale would be linear.
        crowd = float(np.clip((np.quantile(finite, _CROWD) - low) / (high - low), 1e-4, 0.3))
        # ln(1 + crowd/ε) = ln(1 + 1/ε)/3: a quadratic equation in 1/ε.
        inverse = (math.sqrt(4 / crowd - 3) - 3) / (2 * crowd)
        size, whole = (high - low) / inverse, math.log1p(inverse)

        def place(values: Any) -> Any:
            return np.log1p(np.maximum((values - low) / size, -0.5)) / whole

        def value(places: Any) -> Any:
            return low + size * np.expm1(np.asarray(places) * whole)

        levels = value(np.linspace(0, 1, _LEVELS))
        levels[[0, -1]] = low, high
        return cls(levels, _spaced(value(np.linspace(0, 1, 7))), FuncNorm((place, value), low, high))

    @property
    def logarithmic(self) -> bool:
        """Whether the scale is logarithmic."""
        return isinstance(self.norm, LogNorm)

    @property
    def rising(self) -> bool:
        """Whether the scale is logarithmic above the smallest value."""
        return isinstance(self.norm, FuncNorm)

    def label(self, label: str) -> str:
        """``label``, marked where the scale is not linear."""
        if self.rising:
            return f"{label}, log scale above {self.levels[0]:.4g}"
        return f"{label}, log scale" if self.logarithmic else label


def _crowded(finite: np.ndarray) -> bool:
    """Whether so many values lie at the bottom of their range that linear colours hide what differs there."""
    low, high = finite.min(), finite.max()
    return bool(np.quantile(finite, _CROWD) <= low + _BOTTOM * (high - low))


def _spaced(values: np.ndarray) -> list[float]:
    """The values, rounded to as few digits as their distances allow, within the first and the last."""
    gaps = np.diff(values)
    ticks = []
    for value, gap in zip(values, np.minimum(np.append(gaps, np.inf), np.append(np.inf, gaps)), strict=True):
        unit = 10.0 ** math.floor(math.log10(gap / 2))
        ticks.append(float(f"{round(value / unit) * unit:.12g}"))
    return [tick for tick in dict.fromkeys(ticks) if values[0] <= tick <= values[-1]]
