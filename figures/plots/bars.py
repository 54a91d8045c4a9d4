"""Grouped bars: a group a corruption, a bar an algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.style import in_percent
from figures.plots.layout import LegendPlace, add_legend, array, check_panels, grid, looks, same_length, value_axis
from landscape import FedscapeError

HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "||||", "oooo")
"""For greyscale: each with a colour of its own."""


@dataclass(frozen=True, eq=False)
class Bars:
    """The bars of one algorithm, one in each group.

    Attributes:
        label: in the legend.
        values: [groups]; not-a-number where there is no result, which is marked.
        deviations: half the length of the error bars, [groups]; ``None``: no error bars.
    """

    label: str
    values: np.ndarray
    deviations: np.ndarray | None = None


@dataclass(frozen=True)
class BarPanel:
    """One panel: its title, the names of the groups, and the bars."""

    title: str
    groups: Sequence[str]
    bars: Sequence[Bars]


def plot_bars(
    panels: Sequence[BarPanel],
    *,
    ylabel: str,
    percent: bool = False,
    apart: int = 0,
    columns: int = 1,
    legend: LegendPlace = "below",
    title: str = "",
    caption: str = "",
) -> Figure:
    """Draw grouped bars with error bars.

    Args:
        panels: below each other unless there are ``columns``.
        ylabel: of the values.
        percent: the values are shares, and y is in percent.
        apart: how many of the last groups stand apart from the others, behind a line, such as a mean over them.
        columns: panels in a row.
        legend: as of :func:`figures.plots.curves.plot_curves`.
        title, caption: of the figure.

    Raises:
        FedscapeError: nothing to draw, bars that do not fit the groups, more bars in a group than hatches.
    """
    check_panels(panels, "bars")
    labels = list(dict.fromkeys(bars.label for panel in panels for bars in panel.bars))
    look_of = looks(labels)
    if len(labels) > len(HATCHES):
        raise FedscapeError(f"{len(labels)} bars in a group cannot be told apart: give {len(HATCHES)} at most")
    widest = max(len(panel.groups) * max(1, len(panel.bars)) for panel in panels)
    made = grid(len(panels), columns, size=(float(np.clip(0.11 * widest, 4.2, 13.0)), 3.4), sharey="all")
    handles: dict[str, Any] = {}
    for place, (ax, panel) in enumerate(zip(made.axes, panels, strict=True)):
        if not panel.bars or not panel.groups:
            raise FedscapeError(f"the panel '{panel.title}' has no bars: give one group and one value or more")
        if not 0 <= apart < len(panel.groups):
            raise FedscapeError(f"{apart} of {len(panel.groups)} groups cannot stand apart: give fewer")
        groups = np.arange(len(panel.groups)) + 0.6 * (np.arange(len(panel.groups)) >= len(panel.groups) - apart)
        width = 0.82 / len(panel.bars)
        for i, bars in enumerate(panel.bars):
            at = groups + (i - (len(panel.bars) - 1) / 2) * width
            hatch = HATCHES[labels.index(bars.label)]
            handles.setdefault(bars.label, _draw(ax, at, width, bars, look_of[bars.label].colour, hatch, len(groups)))
        if apart:
            ax.axvline(groups[-apart] - 0.8, color="0.4", linewidth=0.8)
        long = max(map(len, panel.groups)) > 6 and len(panel.groups) > 4
        ax.set_xticks(groups, panel.groups, rotation=40 if long else 0, ha="right" if long else "center")
        ax.set_xlim(groups[0] - 0.6, groups[-1] + 0.6)
        ax.set_title(panel.title, parse_math=False)
        ax.set_ylabel((in_percent(ylabel) if percent else ylabel) if made.left(place) else "")
        value_axis(ax, percent=percent, log=False)
        ax.grid(visible=False, axis="x")
        ax.set_axisbelow(True)
    add_legend(made, handles, legend)
    none = any(not np.isfinite(np.asarray(bars.values, float)).all() for panel in panels for bars in panel.bars)
    return made.finish(title, caption, "×: no result" if none else "")


def _draw(ax: Axes, at: np.ndarray, width: float, bars: Bars, colour: str, hatch: str, groups: int) -> Any:
    values = array(bars.values, f"the values of {bars.label}")
    deviations = None
    if bars.deviations is not None:
        deviations = array(bars.deviations, f"the deviations of {bars.label}")
    if len(values) != groups:
        raise FedscapeError(f"{bars.label} has {len(values)} values for {groups} groups: give one for each")
    same_length(bars.label, values=values, deviations=deviations)
    there = np.isfinite(values)
    style: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.5, "hatch": hatch}
    drawn = ax.bar(at[there], values[there], width, color=colour, label=bars.label, **style)
    if deviations is not None:
        ax.errorbar(
            at[there], values[there], deviations[there], linestyle="", color="black", linewidth=0.8, capsize=1.5
        )
    edge = ax.get_xaxis_transform()
    ax.plot(at[~there], np.full(int((~there).sum()), 0.03), "x", color="black", markersize=5, transform=edge)
    return drawn
