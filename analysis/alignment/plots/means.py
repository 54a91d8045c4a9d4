"""Means over the clients, over the rounds with bands or run beside run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.alignment.results import Alignment
from analysis.alignment.rounds import Quantity
from analysis.style import COLOURS, DASHES, MARKERS, log_axis
from landscape import FedscapeError
from landscape.storage.canvas import across, new_figure, pt, stroke

_PANELS = (
    ("gradient_cosine_with_global", "cosine", "Client's gradient and ∇f"),
    ("worst_case_found", "share", "Worst rise of f found by\nthe clients' mean step"),
    ("used_worst_case_found", "share", "Worst rise of f found by the mean\nof the perturbations used, at ρ"),
    ("used_cosine_with_global", "cosine", "Perturbation used and ∇f,\nat the received w"),
    ("overlap_with_global", "overlap", "Client's top-K eigenspace and f's"),
    ("curvature_carried", "share", "f's top-K curvature\nin a client's eigenspace"),
    ("heterogeneity", "E‖(H_i − H)v‖² / E‖Hv‖²", "Difference of the Hessians"),
    ("lambda_max", "λ_max", "λ_max of f_i at w"),
    ("lambda_max_own_local", "λ_max", "λ_max of f_i at its own w_i"),
    ("lambda_max_global_local", "λ_max", "λ_max of f at a client's w_i"),
    ("lambda_max_global_aggregate", "λ_max", "λ_max of f at the aggregate w⁺"),
)
"""Quantity, label of its axis, title."""


def panels_of(found: Alignment) -> list[tuple[str, str, str]]:
    """What :func:`plot_alignment` has to draw: quantities, labels of axes, titles; none where no number is finite."""
    every = (q for run in found.runs for one in run.rounds for q in one.quantities())
    known = {q.name for q in every if np.isfinite(q.mean.value)}
    return [panel for panel in _PANELS if panel[0] in known]


def plot_alignment(found: Alignment) -> Figure:
    """A panel for each quantity that was measured: means over the clients with their errors and bands.

    With several rounds these are curves; where every run has one round, the runs stand side by side.

    Raises:
        FedscapeError: none of the quantities was measured.
    """
    panels = panels_of(found)
    if not panels:
        raise FedscapeError(
            "there is nothing to draw: measure gradients, perturbations or curvature, or perturbations used that are "
            "not all 0"
        )
    columns = across(min(3, len(panels)), 2.2)
    rows = -(-len(panels) // columns)
    figure = new_figure(
        (3.6 * columns, 2.9 * rows + 0.5), rows, columns, panel_height=2.2, room=0.25 * len(found.runs),
        layout="constrained",
    )  # fmt: skip
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    side_by_side = all(len(run.rounds) == 1 for run in found.runs)
    for ax, (name, label, title) in zip(axes, panels, strict=False):
        _panel(ax, found, name, side_by_side)
        ax.set(ylabel=label, title=title)
        ax.title.set_fontsize(pt(10))
        ax.grid(alpha=0.3)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    shown = [pair for ax in axes for pair in zip(*ax.get_legend_handles_labels(), strict=True)]
    legend = {label: handle for handle, label in reversed(shown)}  # a run may be missing in some of the panels
    names = [run.label for run in found.runs if run.label in legend]
    handles = [legend[name] for name in names]
    figure.legend(handles, names, loc="outside upper center", fontsize=pt(8), ncols=3)
    caption = (
        f"means over the clients weighted by p_i; {'thin line' if side_by_side else 'band'}: from the smallest to the "
        "largest client\nerror bars: standard error for the mean of all clients, and error of the measurement; "
        f"K = {found.asked.top}, {found.asked.ascent}, ρ = {found.asked.rho:g}"
    )
    figure.supxlabel(caption, fontsize=pt(8), color="0.3")
    return figure


def _panel(ax: Axes, found: Alignment, name: str, side_by_side: bool) -> None:
    """One quantity of every run."""
    heights: list[float] = []
    for i, run in enumerate(found.runs):
        pairs = [(one.round, q) for one in run.rounds for q in one.quantities() if q.name == name]
        pairs = [(round, q) for round, q in pairs if np.isfinite(q.mean.value)]
        if not pairs:
            continue
        x = [i] if side_by_side else [round for round, _ in pairs]
        quantities = [q for _, q in pairs]
        heights += _draw(ax, x, quantities, run.label, i, side_by_side)
    if side_by_side:
        ax.set_xlim(-0.6, len(found.runs) - 0.4)
        ax.set_xticks([])
    else:
        ax.set_xlabel("communication round")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if heights and min(heights) > 0 and max(heights) > 30 * min(heights):
        log_axis(ax)


def _draw(ax: Axes, x: Sequence[int], found: Sequence[Quantity], label: str, i: int, thin: bool) -> list[float]:
    """The means of one run with error bars and their range over the clients; the heights drawn."""
    colour, dashes, marker = COLOURS[i % 7], DASHES[i % 7], MARKERS[(i + i // 7) % 7]
    means, low, high = (np.array([getattr(q.mean, of) for q in found]) for of in ("value", "low", "high"))
    errors = np.array([np.nan_to_num(q.mean.stderr) + np.nan_to_num(q.error) for q in found])
    if thin:
        ax.vlines(x, low, high, color=colour, linewidth=stroke(0.8), alpha=0.6)
    else:
        ax.fill_between(x, low, high, color=colour, alpha=0.13, lw=0)
        for edge in (low, high):  # without them overlapping bands are hard to tell apart in grey
            ax.plot(x, edge, color=colour, linestyle=dashes, linewidth=stroke(0.5))
    style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": pt(5), "capsize": pt(3), "label": label}
    ax.errorbar(x, means, errors, linestyle="" if thin else dashes, linewidth=stroke(1.6), **style)
    return [float(value) for value in (*low, *high) if np.isfinite(value)]
