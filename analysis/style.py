"""What pictures share: colours, markers and dashes in the order in which they are used, crosses over values that have
not converged, ticks of logarithmic axes, and percent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.ticker import Formatter, Locator, LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from landscape.storage.canvas import pt
from landscape.storage.looks import COLOURS, DASHES, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

__all__ = [
    "COLOURS",
    "DASHES",
    "MARKERS",
    "cross_out",
    "crossed",
    "in_percent",
    "log_axis",
    "log_ticks",
    "percent_axis",
]

_NICE = [1.0, 2.0, 5.0, 10.0]
_PLAIN = (1e-3, 1e5)
"""Numbers between these are written out on a logarithmic axis; with others, all are powers of ten."""


def cross_out(ax: Axes, x: np.ndarray, y: np.ndarray, converged: np.ndarray) -> None:
    """Cross out the points that have not converged; x, y and which have are [n] each."""
    if not converged.all():
        ax.plot(x[~converged], y[~converged], "x", color="black", markersize=pt(9))


def crossed(converged: Sequence[np.ndarray]) -> str:
    """What the crosses of :func:`cross_out` are, to follow a caption; empty where there is none."""
    return "" if all(which.all() for which in converged) else "; crosses: NOT CONVERGED"


def log_ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Round numbers from ``low`` to ``high`` for a logarithmic axis or colour bar, at least two where there are two.

    1, 2 and 5 in each decade where there is room for them, else powers of ten, every second or third of them where
    these are too many; below a decade, where those would be fewer than three, multiples of a round step.

    Args:
        low, high: positive ends.
        most: labels that there is room for, 2 or more.

    Example:
        >>> log_ticks(0.3, 20), log_ticks(1.5, 8), log_ticks(1e-9, 1e4, most=5)
        ([0.5, 1.0, 2.0, 5.0, 10.0, 20.0], [2.0, 4.0, 6.0, 8.0], [1e-09, 1e-06, 0.001, 1.0, 1000.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = range(first, last + 1)
    strides = [[float(f"1e{power}") for power in decades[::stride]] for stride in range(1, len(decades) + 1)]
    fine = [float(f"{digit}e{power}") for power in decades for digit in (1, 2, 5)]
    for candidates, fewest in ((fine, 3), *((powers, 2) for powers in strides)):
        ticks = [tick for tick in candidates if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if fewest <= len(ticks) <= max(most, 2):
            return ticks
    for bins in range(max(1, min(most, 6) - 1), 12):  # less than a decade
        every = MaxNLocator(bins, steps=_NICE).tick_values(low, high)
        ticks = [float(f"{tick:.12g}") for tick in every if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(ticks) > 1:
            return _apart(ticks, low, high, most)
    return [low, high]


def _apart(ticks: list[float], low: float, high: float, most: int) -> list[float]:
    """Those that are not too near to each other on a logarithmic axis; the first stays."""
    gap, kept = 0.7 * math.log(high / low) / max(most, 2), ticks[:1]
    for tick in ticks[1:]:
        if math.log(tick / kept[-1]) >= gap:
            kept.append(tick)
    return kept if len(kept) > 1 else [ticks[0], ticks[-1]]


class _LogLocator(Locator):
    """:func:`log_ticks`, as many as the axis has room for."""

    def __call__(self) -> list[float]:
        assert self.axis is not None
        low, high = sorted(self.axis.get_view_interval())
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        low, high = sorted((float(vmin), float(vmax)))
        if not 0 < low < high < math.inf:
            return []
        room = 8 if self.axis is None else self.axis.get_tick_space()
        return log_ticks(low, high, int(np.clip(room, 2, 8)))


class _LogFormatter(Formatter):
    """Plain numbers, or all of them powers of ten where some are very small or large."""

    _powers = False

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        self._powers = not all(_PLAIN[0] <= abs(value) < _PLAIN[1] for value in values)
        return [self(value) for value in values]

    def __call__(self, x: float, pos: int | None = None) -> str:
        if not self._powers:
            return f"{x:.6g}"
        power = math.floor(math.log10(abs(x)) + 1e-9)
        digits = x / 10.0**power
        times = "" if abs(digits - 1) < 1e-6 else rf"{digits:.4g}\times"
        return rf"${times}10^{{{power}}}$"


def log_axis(ax: Axes, name: Literal["x", "y"] = "y") -> None:
    """Make an axis logarithmic, with two labelled ticks or more, also where it spans less than a decade.

    Which are labelled is decided when it is drawn, by its limits and its length; ticks between have no label.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = Figure().subplots()
        >>> log_axis(ax)
        >>> _ = ax.set_ylim(3, 8)
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['3', '4', '5', '6', '7', '8']
    """
    ax.set(**{f"{name}scale": "log"})
    axis = ax.xaxis if name == "x" else ax.yaxis
    axis.set_major_locator(_LogLocator())
    axis.set_major_formatter(_LogFormatter())
    axis.set_minor_locator(LogLocator(subs="all", numticks=200))
    axis.set_minor_formatter(NullFormatter())


def percent_axis(axis: Axis) -> None:
    """Label shares on an axis as percent: bare numbers, because its label ends in ``(%)``."""
    axis.set_major_formatter(PercentFormatter(1.0, symbol=""))


def in_percent(label: str) -> str:
    """The label of an axis of shares.

    Example:
        >>> in_percent("test accuracy"), in_percent("test error (%)")
        ('test accuracy (%)', 'test error (%)')
    """
    return label if "%" in label else f"{label} (%)"
