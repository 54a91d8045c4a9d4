"""Scales of values that several panels share: linear, or logarithmic where the values allow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import LogLocator, MaxNLocator

from landscape import FedscapeError

ScaleKind = Literal["auto", "linear", "log"]


@dataclass(frozen=True)
class Scale:
    """Levels, ticks and colour norm for the values of one panel or of several.

    A logarithmic scale starts at the smallest positive value, at most eight decades below the median, and spans eight
    decades at most; values outside have the colour of the nearest end.
    """

    levels: np.ndarray
    ticks: Any
    norm: Normalize
    extend: str = "neither"

    @classmethod
    def of(cls, values: np.ndarray, kind: ScaleKind = "auto") -> Scale | None:
        """A scale for these values; ``auto`` is logarithmic where none is negative and they span more than a decade.

        ``None`` where none of them is finite.

        Raises:
            FedscapeError: an unknown kind, or a logarithmic scale of values that cannot have one.
        """
        if kind not in ("auto", "linear", "log"):
            raise FedscapeError(f"unknown scale '{kind}': give auto, linear or log")
        finite = values[np.isfinite(values)]
        if not finite.size:
            return None
        low, high = float(finite.min()), float(finite.max())
        if kind == "log" and (low < 0 or high <= 0):
            raise FedscapeError(f"the values reach {low:.4g}, which no logarithmic scale has: give auto or linear")
        floor = max(float(finite[finite > 0].min(initial=high)), 1e-8 * float(np.median(finite)))
        flat = high - low <= 1e-9 * max(abs(high), abs(low))
        if not flat and low >= 0 and kind != "linear" and (kind == "log" or high > 10 * floor):
            top = min(high, 1e8 * floor)
            extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get((low < floor, high > top))
            return cls(np.geomspace(floor, top, 29), _log_ticks(floor, top), LogNorm(floor, top), extend or "neither")
        if not flat:
            levels = np.unique(np.clip(MaxNLocator(25).tick_values(low, high), low, high))
            return cls(levels, MaxNLocator(6, steps=[1, 2, 5, 10]), Normalize(low, high))
        levels = low + np.array([-1, 1]) * max(1e-6 * abs(low), 1e-12)
        return cls(levels, [low], Normalize(levels[0], levels[1]))

    @property
    def logarithmic(self) -> bool:
        """Whether the scale is logarithmic."""
        return isinstance(self.norm, LogNorm)

    def label(self, label: str) -> str:
        """``label``, marked where the scale is logarithmic."""
        return f"{label}, log scale" if self.logarithmic else label


def _log_ticks(floor: float, top: float) -> Any:
    """Some ticks for each decade where there are few; round numbers where there is less than one decade."""
    if top < 10 * floor:
        ticks = np.asarray(MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(floor, top))
        return list(ticks[(ticks >= floor) & (ticks <= top)])
    return LogLocator(subs=(1.0,) if top > 1e4 * floor else (1.0, 2.0, 5.0))
