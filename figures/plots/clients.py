"""Clients over the rounds: one thin line a client, or values of sampled clients, which differ from round to round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.style import in_percent
from figures.plots.curves import Curve
from figures.plots.layout import (
    LegendPlace,
    Look,
    add_legend,
    array,
    check_panels,
    check_value_axis,
    grid,
    line_width,
    looks,
    marker_size,
    rounds_axis,
    same_length,
    value_axis,
)
from landscape import FedscapeError

CLIENT_COLOURS = "viridis"
"""Clients' colours from the first client to the last; without its lightest end, which is hard to see on white."""


@dataclass(frozen=True, eq=False)
class ClientPanel:
    """One line a client, and bold lines over them.

    Attributes:
        title: above the panel.
        x: rounds, ascending, [t].
        clients: a value for each client and round, [n, t]; not-a-number where there is none.
        bold: such as the test accuracy; each has rounds of its own.
        ids: the clients' numbers, [n]; from 0 unless given.
    """

    title: str
    x: np.ndarray
    clients: np.ndarray
    bold: Sequence[Curve] = ()
    ids: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class ClientValues:
    """Values of some clients in some rounds: ``y[i]`` is client ``ids[i]``'s in round ``x[i]``, [m] each.

    Which clients they are of cannot be seen in a picture, and is not needed to draw it.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    ids: np.ndarray | None = None


@dataclass(frozen=True)
class ScatterPanel:
    """Values of clients, and curves beside them, such as λ_max of the global model."""

    title: str
    values: Sequence[ClientValues]
    beside: Sequence[Curve] = ()


def plot_client_lines(
    panels: Sequence[ClientPanel],
    *,
    ylabel: str,
    xlabel: str = "communication round",
    percent: bool = False,
    log_y: bool = False,
    columns: int | None = None,
    legend: LegendPlace = "below",
    title: str = "",
    caption: str = "",
) -> Figure:
    """Draw one thin line a client and bold lines over them (Caldarola et al., ECCV 2022, Figures 3a and 3b).

    A client's colour is by its number (:data:`CLIENT_COLOURS`), and the legend has one entry for all of them.

    Raises:
        FedscapeError: nothing to draw, arrays that do not fit together, axes that cannot be.
    """
    check_panels(panels, "clients")
    check_value_axis(percent=percent, log=log_y)
    made = grid(len(panels), columns, sharey="row")
    handles: dict[str, Any] = {}
    bold = list(dict.fromkeys(curve.label for panel in panels for curve in panel.bold))
    if len(bold) > len(_BOLD):
        raise FedscapeError(f"{len(bold)} bold lines cannot be told apart: give {len(_BOLD)} at most")
    most = 0
    for place, (ax, panel) in enumerate(zip(made.axes, panels, strict=True)):
        x = array(panel.x, f"the rounds of '{panel.title}'")
        clients = array(panel.clients, f"the values of the clients of '{panel.title}'", 2)
        same_length(panel.title, rounds=x, clients=clients.T)
        most = max(most, len(clients))
        for colour, values in zip(_colours(len(clients)), clients, strict=True):
            known = np.isfinite(values)  # a client has no value in the rounds between its measurements
            ax.plot(x[known], values[known], color=colour, linewidth=line_width(0.4), alpha=0.6)
        for curve in panel.bold:
            colour, dash = _BOLD[bold.index(curve.label)]
            ax.plot(curve.x, curve.mean, color="white", linewidth=line_width(3), zorder=4)  # a rim
            (line,) = ax.plot(curve.x, curve.mean, color=colour, linestyle=dash, linewidth=line_width(1.5), zorder=5)
            handles.setdefault(curve.label, line)
        _dress(ax, panel.title, xlabel, ylabel if made.left(place) else "", percent, log_y)
    middle = colormaps[CLIENT_COLOURS](0.45)
    handles["one client each"] = Line2D([], [], color=middle, linewidth=line_width(0.5))
    add_legend(made, handles, legend)
    numbers = f"thin lines: one a client, dark to light from client 0 to {most - 1}"
    return made.finish(title, caption, numbers)


def plot_client_values(
    panels: Sequence[ScatterPanel],
    *,
    ylabel: str,
    xlabel: str = "communication round",
    kind: Literal["points", "band"] = "points",
    percent: bool = False,
    log_y: bool = False,
    columns: int | None = None,
    legend: LegendPlace = "auto",
    title: str = "",
    caption: str = "",
) -> Figure:
    """Draw the values of the clients of each round (Caldarola et al., ECCV 2022, Figure 4).

    The clients of two rounds are different ones, so no line joins their points; ``band`` has the smallest to the
    largest of each round, with a line through the medians.

    Raises:
        FedscapeError: nothing to draw, an unknown kind, values that do not fit together, axes that cannot be.
    """
    check_panels(panels, "clients' values")
    check_value_axis(percent=percent, log=log_y)
    if kind not in ("points", "band"):
        raise FedscapeError(f"unknown kind of picture '{kind}': give points or band")
    labels = [group.label for panel in panels for group in panel.values]
    look_of = looks([*labels, *(curve.label for panel in panels for curve in panel.beside)])
    made = grid(len(panels), columns, sharey="all")
    handles: dict[str, Any] = {}
    for place, (ax, panel) in enumerate(zip(made.axes, panels, strict=True)):
        if not panel.values:
            raise FedscapeError(f"the panel '{panel.title}' has no values of clients: give one group or more")
        for group in panel.values:
            x, y = (array(v, f"the values of {group.label}") for v in (group.x, group.y))
            same_length(group.label, rounds=x, values=y)
            if log_y and (y <= 0).any():
                raise FedscapeError(f"{group.label} has values of 0 or less, which no logarithmic axis has")
            draw = _points if kind == "points" else _band
            handles.setdefault(group.label, draw(ax, x, y, look_of[group.label]))
        for curve in panel.beside:
            look = look_of[curve.label]
            style: dict[str, Any] = {
                "marker": look.marker,
                "markersize": marker_size(0.8),
                "markerfacecolor": "white",
            }
            (line,) = ax.plot(
                curve.x, curve.mean, color=look.colour, linestyle=look.dash, linewidth=line_width(1.3), **style
            )
            line.set_markevery(max(1, len(curve.x) // 10))
            handles.setdefault(curve.label, line)
        _dress(ax, panel.title, xlabel, ylabel if made.left(place) else "", percent, log_y)
    add_legend(made, handles, legend)
    what = {"points": "a point: one client", "band": "band: smallest to largest client; line: their median"}[kind]
    return made.finish(title, caption, what)


_BOLD = ("#000000", "-"), ("#D55E00", (0, (3, 1))), ("#CC79A7", (0, (1, 0.8)))


def _colours(count: int) -> np.ndarray:
    return np.asarray(colormaps[CLIENT_COLOURS](np.linspace(0, 0.85, count)))


_MANY = 200
"""From so many points on they are drawn small."""


def _points(ax: Axes, x: np.ndarray, y: np.ndarray, look: Look) -> Any:
    (drawn,) = ax.plot(
        x,
        y,
        linestyle="",
        marker=look.marker,
        markersize=marker_size(0.6 if len(x) > _MANY else 1.0),
        color=look.colour,
        alpha=0.6,
    )
    drawn.set_markeredgewidth(0)
    return drawn


def _band(ax: Axes, x: np.ndarray, y: np.ndarray, look: Look) -> Any:
    rounds = np.unique(x)
    of = [y[x == round] for round in rounds]
    low, high = ([edge(values) for values in of] for edge in (np.min, np.max))
    ax.fill_between(rounds, low, high, color=look.colour, alpha=0.18, lw=0)
    for edge in (low, high):  # without them overlapping bands are hard to tell apart in grey
        ax.plot(rounds, edge, color=look.colour, linestyle=look.dash, linewidth=line_width(0.4))
    (line,) = ax.plot(rounds, [np.median(values) for values in of], color=look.colour, linestyle=look.dash)
    line.set(
        linewidth=line_width(1.1),
        marker=look.marker,
        markersize=marker_size(0.7),
        markevery=max(1, len(rounds) // 10),
    )
    return line


def _dress(ax: Axes, title: str, xlabel: str, ylabel: str, percent: bool, log_y: bool) -> None:
    ax.set_title(title, parse_math=False)
    ax.set(xlabel=xlabel, ylabel=in_percent(ylabel) if percent and ylabel else ylabel)
    value_axis(ax, percent=percent, log=log_y)
    rounds_axis(ax)
