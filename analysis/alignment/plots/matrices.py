"""Heat maps of pairs of clients: cosines, gains, overlaps, barriers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.alignment.options import Asked
from analysis.alignment.results import RunAlignment
from analysis.alignment.rounds import RoundAlignment
from landscape import FedscapeError
from landscape.storage.canvas import across, new_figure, pt

_IDS = 24
"""Clients that a heat map names one by one."""
_NUMBERS = 10
"""Clients up to which the cells have their numbers in them."""


@dataclass(frozen=True)
class _Map:
    """A heat map: what its numbers are, its colours, and the ends of its scale."""

    title: str
    label: str
    values: np.ndarray
    colours: str
    low: float
    high: float
    axes: tuple[str, str] = ("client j", "client i")


def plot_matrices(run: RunAlignment, asked: Asked) -> Figure:
    """Heat maps of all pairs of clients at a run's last round: cosines, gains, overlaps, barriers, as far as there.

    The clients are in the order of :meth:`analysis.alignment.rounds.RoundAlignment.order`, alike ones side by side.

    Raises:
        FedscapeError: nothing was measured of pairs.
    """
    one = run.rounds[-1]
    maps = _maps(one, asked)
    if not maps:
        raise FedscapeError("there is no matrix to draw: measure gradients, perturbations or curvature")
    order, by = one.order()
    columns = across(min(2, len(maps)), 2.8)
    rows = -(-len(maps) // columns)
    figure = new_figure((4.6 * columns, 3.9 * rows + 0.5), rows, columns, panel_height=3.0, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, each in zip(axes, maps, strict=False):
        ids = [one.clients[k] for k in order]
        image = ax.imshow(
            each.values[np.ix_(order, order)], cmap=each.colours, vmin=each.low, vmax=each.high, interpolation="nearest"
        )
        ax.set_facecolor("0.8")  # no value
        if len(ids) <= _NUMBERS:
            _write_numbers(ax, each, order)
        bar = figure.colorbar(image, ax=ax)
        bar.set_label(each.label, fontsize=pt(8))
        stride = -(-len(ids) // _IDS)
        places = range(0, len(ids), stride)
        names = [str(ids[k]) for k in places]
        ax.set_xticks(places, names, rotation=90 if len(names) > 10 else 0, fontsize=pt(7))
        ax.set_yticks(places, names, fontsize=pt(7))
        ax.set(xlabel=each.axes[0], ylabel=each.axes[1], title=each.title)
        ax.title.set_fontsize(pt(10))
    for ax in axes[len(maps) :]:
        ax.set_axis_off()
    figure.suptitle(f"{run.label}, round {one.round}", fontsize=pt(11))
    grey = "; grey: no value" if any(not np.isfinite(each.values).all() for each in maps) else ""
    figure.supxlabel(f"clients {by}{grey}", fontsize=pt(8), color="0.3")
    return figure


def _write_numbers(ax: Axes, each: _Map, order: np.ndarray) -> None:
    """The numbers in the cells: without colour the two ends of a scale around 0 look alike."""
    for row, i in enumerate(order):
        for column, j in enumerate(order):
            value = each.values[i, j]
            if np.isfinite(value):
                place = (value - each.low) / (each.high - each.low)
                pale = place > 0.6 if each.colours == "viridis" else 0.2 < place < 0.8
                text = f"{value:.2g}" if abs(value) >= 0.005 * each.high else "0"
                ax.text(column, row, text, ha="center", va="center", fontsize=pt(7), color="black" if pale else "white")


def _maps(one: RoundAlignment, asked: Asked) -> list[_Map]:
    maps = []
    if one.gradients is not None:
        maps.append(_Map("Cosine of gradients", "cos(∇f_i, ∇f_j)", one.gradients.cosines, "RdBu_r", -1.0, 1.0))
    if one.perturbations is not None:
        gains = one.perturbations.gains
        most = float(np.nanmax(np.abs(gains))) or 1.0
        label = f"f_j(w + ε_i) − f_j(w), ρ = {asked.rho:g}"
        maps.append(_Map("Rise by another's ascent step", label, gains, "RdBu_r", -most, most))
    if one.curvature is not None:
        label = "‖U_iᵀU_j‖²_F / K"
        maps.append(_Map(f"Overlap of top-{asked.top} eigenspaces", label, one.curvature.overlaps, "viridis", 0.0, 1.0))
    if one.local is not None and np.isfinite(one.local.between).any():
        n = len(one.clients)
        whole = np.full((n, n), np.nan)
        places = [one.clients.index(client) for client in one.local_clients]
        whole[np.ix_(places, places)] = one.local.between
        most = float(np.nanmax(whole))
        if most > 0:  # else every pair has none: the table says so
            maps.append(_Map("Barrier of f between local models", "rise above the chord", whole, "viridis", 0.0, most))
    return maps
