"""Curves over the rounds, with bands over seeds: accuracy and loss of several algorithms, a panel a setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.style import in_percent, log_axis
from figures.plots.layout import (
    LegendPlace,
    Level,
    Look,
    add_legend,
    array,
    check_panels,
    check_value_axis,
    draw_levels,
    grid,
    line_width,
    looks,
    marker_size,
    rounds_axis,
    same_length,
    value_axis,
)
from landscape import FedscapeError


@dataclass(frozen=True, eq=False)
class Curve:
    """One curve.

    Attributes:
        label: in the legend; curves with the same label look alike in all panels.
        x: rounds or steps, ascending, [t].
        mean: the curve, [t]; nothing is drawn where it is not finite.
        low, high: the band, [t] each; both or none.

    Raises:
        FedscapeError: the arrays do not fit together, or x does not ascend.
    """

    label: str
    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("x", "mean", "low", "high"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, array(getattr(self, name), f"the values {name} of {self.label}"))
        if (self.low is None) != (self.high is None):
            raise FedscapeError(f"the band of {self.label} has one edge: give low and high, or neither")
        same_length(self.label, x=self.x, mean=self.mean, low=self.low, high=self.high)
        if (np.diff(self.x) <= 0).any():
            raise FedscapeError(f"the rounds of {self.label} do not ascend: give each once, in their order")


@dataclass(frozen=True)
class CurvePanel:
    """One panel.

    Attributes:
        title: above it.
        curves: one or more.
        levels: horizontal lines.
        ylabel: instead of the figure's, where panels show several quantities.
        ylim: limits of y, for this panel's row; ``None``: what the values need.
        percent, log_y: instead of the figure's, where panels show several quantities.
    """

    title: str
    curves: Sequence[Curve]
    levels: Sequence[Level] = ()
    ylabel: str | None = None
    ylim: tuple[float, float] | None = None
    percent: bool | None = None
    log_y: bool | None = None


_BAND = 0.18


def plot_curves(
    panels: Sequence[CurvePanel],
    *,
    ylabel: str,
    xlabel: str = "communication round",
    percent: bool = False,
    log_x: bool = False,
    log_y: bool = False,
    columns: int | None = None,
    share_y: bool = True,
    legend: LegendPlace = "auto",
    title: str = "",
    caption: str = "",
) -> Figure:
    """Draw curves, with a marker at ten places of each, and a legend for all panels.

    Args:
        panels: in reading order.
        ylabel, xlabel: of the axes.
        percent: the values are shares, and y is in percent.
        log_x, log_y: logarithmic axes; there, values of 0 or less are refused.
        columns: panels in a row.
        share_y: the panels of a row have the same y axis.
        legend: ``inside`` the first panel, to the ``right`` or ``below``; ``auto`` is inside where there is one panel
            with up to four entries.
        title, caption: of the figure.

    Raises:
        FedscapeError: nothing to draw, more labels than looks, axes that cannot be.
    """
    check_panels(panels, "curves")
    scales = [
        (percent if panel.percent is None else panel.percent, log_y if panel.log_y is None else panel.log_y)
        for panel in panels
    ]
    for of_percent, logarithmic in scales:
        check_value_axis(percent=of_percent, log=logarithmic)
    look_of = looks(curve.label for panel in panels for curve in panel.curves)
    made = grid(len(panels), columns, sharey="row" if share_y else "none")
    handles: dict[str, Any] = {}
    lines: dict[str, Any] = {}
    level_names = [level.label for panel in panels for level in panel.levels]
    for place, (ax, panel, (of_percent, logarithmic)) in enumerate(zip(made.axes, panels, scales, strict=True)):
        if not panel.curves:
            raise FedscapeError(f"the panel '{panel.title}' has no curve: give one or more")
        for i, curve in enumerate(panel.curves):
            _check_positive(curve, log_x, logarithmic)
            handles.setdefault(curve.label, draw_curve(ax, curve, look_of[curve.label], offset=i))
        lines |= draw_levels(ax, panel.levels, level_names, look_of)
        label = ylabel if made.left(place) or not share_y else ""
        dress(ax, panel, xlabel, label, of_percent, log_x, logarithmic)
    add_legend(made, handles | lines, legend)
    return made.finish(title, caption)


def draw_curve(ax: Axes, curve: Curve, look: Look, *, offset: int = 0) -> Any:
    """Draw a curve with its band; markers at ten places, shifted by ``offset``, so that curves do not hide theirs.

    Returns the line.
    """
    if curve.low is not None and curve.high is not None:
        ax.fill_between(curve.x, curve.low, curve.high, color=look.colour, alpha=_BAND, lw=0)
    step = max(1, len(curve.x) // 10)
    (line,) = ax.plot(
        curve.x, curve.mean, color=look.colour, label=curve.label, linewidth=line_width(), marker=look.marker
    )
    line.set(linestyle=look.dash, markersize=marker_size(0.75), markevery=((offset * max(1, step // 4)) % step, step))
    return line


def dress(
    ax: Axes, panel: CurvePanel, xlabel: str, ylabel: str, percent: bool, log_x: bool = False, log_y: bool = False
) -> None:
    """Set title, labels, scales and limits of a panel of curves."""
    ax.set_title(panel.title, parse_math=False)
    ax.set_xlabel(xlabel)
    label = panel.ylabel or ylabel
    ax.set_ylabel(in_percent(label) if percent and label else label)
    value_axis(ax, percent=percent, log=log_y)
    if log_x:
        log_axis(ax, "x")
    else:
        rounds_axis(ax)
    if panel.ylim is not None:
        ax.set_ylim(*panel.ylim)


def _check_positive(curve: Curve, log_x: bool, log_y: bool) -> None:
    for name, values, log in (("x", curve.x, log_x), ("y", curve.mean, log_y)):
        if log and (values[np.isfinite(values)] <= 0).any():
            raise FedscapeError(f"{curve.label} has values of 0 or less, which no logarithmic {name} axis has")
