"""A result against one parameter, several algorithms, a panel a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.style import in_percent, log_axis
from figures.plots.layout import (
    LegendPlace,
    Level,
    add_legend,
    array,
    check_panels,
    check_value_axis,
    draw_levels,
    grid,
    line_width,
    looks,
    marker_size,
    same_length,
    value_axis,
)
from landscape import FedscapeError

Spacing = Literal["linear", "log", "even"]


@dataclass(frozen=True, eq=False)
class Sweep:
    """One algorithm's results.

    Attributes:
        label: in the legend.
        x: values of the parameter, ascending, [n].
        mean: results, [n]; not-a-number where there is none, as of a run that diverged.
        deviation: half the length of the error bars, [n]; ``None``: no error bars.
    """

    label: str
    x: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray | None = None


@dataclass(frozen=True)
class SweepPanel:
    """One panel.

    Attributes:
        title: above it.
        xlabel: the parameter.
        sweeps: one or more.
        spacing: of x: ``linear``, ``log``, or ``even``: the values stand at equal distances, such as decays of a rate.
        levels: horizontal lines; one with a sweep's label looks like the sweep.
        default: a value of the parameter that other experiments have, marked by a vertical line.
    """

    title: str
    xlabel: str
    sweeps: Sequence[Sweep]
    spacing: Spacing = "linear"
    levels: Sequence[Level] = ()
    default: float | None = None


def plot_sweeps(
    panels: Sequence[SweepPanel],
    *,
    ylabel: str,
    percent: bool = False,
    log_y: bool = False,
    columns: int | None = None,
    share_y: bool = True,
    legend: LegendPlace = "auto",
    title: str = "",
    caption: str = "",
) -> Figure:
    """Draw results against a parameter; a missing one breaks the line and is a cross at the lower edge.

    Args:
        panels: in reading order.
        ylabel: of the results.
        percent: they are shares, and y is in percent.
        log_y: logarithmic y.
        columns: panels in a row.
        share_y: all panels have the same y axis.
        legend: as of :func:`figures.plots.curves.plot_curves`.
        title, caption: of the figure.

    Raises:
        FedscapeError: nothing to draw, arrays that do not fit together, axes that cannot be.
    """
    check_panels(panels, "sweeps")
    check_value_axis(percent=percent, log=log_y)
    look_of = looks(sweep.label for panel in panels for sweep in panel.sweeps)
    made = grid(len(panels), columns, sharey="all" if share_y else "none")
    handles: dict[str, Any] = {}
    lines: dict[str, Any] = {}
    level_names = [level.label for panel in panels for level in panel.levels]
    missing = False
    for place, (ax, panel) in enumerate(zip(made.axes, panels, strict=True)):
        values = _values(panel)
        for sweep in panel.sweeps:
            look, x, mean = look_of[sweep.label], array(sweep.x, f"x of {sweep.label}"), array(sweep.mean, sweep.label)
            deviation = None if sweep.deviation is None else array(sweep.deviation, f"deviations of {sweep.label}")
            same_length(sweep.label, x=x, mean=mean, deviation=deviation)
            at = np.searchsorted(values, x).astype(float) if panel.spacing == "even" else x
            style: dict[str, Any] = {"color": look.colour, "marker": look.marker, "linestyle": look.dash}
            drawn = ax.errorbar(
                at, mean, deviation, **style, markersize=marker_size(0.8), linewidth=line_width(0.9), capsize=3
            )
            handles.setdefault(sweep.label, drawn)
            gone = ~np.isfinite(mean)
            if gone.any():
                missing = True
                edge = np.full(int(gone.sum()), 0.02)
                ax.plot(at[gone], edge, "x", color=look.colour, transform=ax.get_xaxis_transform())
        lines |= draw_levels(ax, panel.levels, level_names, look_of)
        if panel.default is not None:
            where = float(np.searchsorted(values, panel.default)) if panel.spacing == "even" else panel.default
            ax.axvline(where, color="0.6", linewidth=line_width(0.6), linestyle=(0, (1, 1.5)), zorder=0)
        ax.set_title(panel.title, parse_math=False)
        ax.set_xlabel(panel.xlabel)
        label = in_percent(ylabel) if percent else ylabel
        ax.set_ylabel(label if made.left(place) or not share_y else "")
        value_axis(ax, percent=percent, log=log_y)
        _space(ax, panel.spacing, values)
    add_legend(made, handles | lines, legend)
    told = ["dotted: the default"] if any(panel.default is not None for panel in panels) else []
    return made.finish(title, caption, *told, "×: no result" if missing else "")


def _values(panel: SweepPanel) -> np.ndarray:
    """All values of the parameter in a panel, each once, ascending."""
    if not panel.sweeps:
        raise FedscapeError(f"the panel '{panel.title}' has no sweep: give one or more")
    if panel.spacing not in ("linear", "log", "even"):
        raise FedscapeError(f"unknown spacing '{panel.spacing}': give linear, log or even")
    values = np.unique(np.concatenate([array(sweep.x, f"x of {sweep.label}") for sweep in panel.sweeps]))
    if panel.spacing == "log" and values[0] <= 0:
        raise FedscapeError(f"{panel.xlabel} is {values[0]:g}, which no logarithmic axis has: give linear or even")
    if panel.spacing == "even" and panel.default is not None and panel.default not in values:
        raise FedscapeError(f"the default {panel.default:g} of {panel.xlabel} is none of its values")
    return values


def _space(ax: Any, spacing: Spacing, values: np.ndarray) -> None:
    if spacing == "even":
        ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        ax.set_xlim(-0.4, len(values) - 0.6)
        return
    if spacing == "log":
        log_axis(ax, "x")
    along = np.log(values) if spacing == "log" else values
    if 1 < len(values) <= 6 and np.diff(along).min() >= 0.08 * np.ptp(along):  # the labels have room
        ax.xaxis.set_major_locator(FixedLocator(list(values)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
