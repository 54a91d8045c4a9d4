"""Pictures of spectra; one report or several on common axes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter

from analysis.hessian.density.axes import SymLog
from analysis.hessian.density.estimate import Curve, Density
from analysis.hessian.report import MATRICES, DensityAxis, EigenvalueAxis, HessianReport
from analysis.style import COLOURS, DASHES, MARKERS, cross_out, crossed, log_axis
from landscape import FedscapeError
from landscape.storage.canvas import across, new_figure, pt, stroke

_FITS = 30
"""Characters of a name that a legend within a panel has room for."""
_TENFOLD = 10
"""Spectra whose ranges differ by more than this factor are drawn on a logarithmic axis unless another is asked for."""


_ENDS = {
    "largest": ("rank", "Largest eigenvalues"),
    "smallest": ("rank from below", "Smallest eigenvalues"),
    "magnitude": ("rank by magnitude", "Eigenvalues of largest magnitude"),
    "both": ("rank: the largest, then the smallest", "Largest and smallest eigenvalues"),
}


def draw_eigenvalues(ax: Axes, reports: Sequence[HessianReport], labels: Sequence[str], *, legend: bool = True) -> None:
    """Eigenvalue by rank, with error bounds as error bars; those that have not converged are crossed out.

    Several have a legend, unless the figure has one for all of its panels.
    """
    for i, (report, label) in enumerate(zip(reports, labels, strict=True)):
        ranks = np.arange(1, len(report.eigen.values) + 1)
        ax.errorbar(
            ranks,
            report.eigen.values,
            report.eigen.bounds,
            color=COLOURS[i % 7],
            marker=MARKERS[i % 7],
            linestyle=DASHES[i % 7],
            linewidth=stroke(1),
            capsize=pt(3),
            label=label,
        )
        cross_out(ax, ranks, report.eigen.values, report.eigen.converged)
    first = reports[0]
    rank, title = _ENDS[first.which]
    ax.set(xlabel=rank, ylabel=f"eigenvalue of the {MATRICES[first.matrix]}", title=title)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    ax.grid(alpha=0.3)
    if len(reports) > 1 and legend:
        ax.legend()


def draw_densities(
    ax: Axes,
    reports: Sequence[HessianReport],
    labels: Sequence[str],
    eigenvalue_axis: EigenvalueAxis = "auto",
    density_axis: DensityAxis = "log",
    *,
    ruler: Sequence[HessianReport] = (),
    legend: bool = True,
) -> None:
    """Spectral densities per unit of the eigenvalue axis as it is drawn, with their 95 % band.

    All have one kernel (:func:`density_caption` names it): with one of its own range for each, peaks at 0 would be the
    higher, the narrower the range is.  Kernel and axis are those for ``ruler``, the reports of all panels of a figure;
    unless given, those for ``reports``.  Several have a legend, unless the figure has one for all of its panels.

    Raises:
        FedscapeError: an axis of another kind.
    """
    if eigenvalue_axis not in ("auto", "linear", "symlog"):
        raise FedscapeError(
            f"unknown eigenvalue axis '{eigenvalue_axis}': give linear or symlog, or auto (a plain logarithm "
            "has no room for the eigenvalues below 0)"
        )
    if density_axis not in ("linear", "log"):
        raise FedscapeError(f"unknown density axis '{density_axis}': give linear or log")
    every = [_density_of(report) for report in ruler or reports]
    axis, curves = _symlog_axis(every, eigenvalue_axis), on_one_ruler(reports, eigenvalue_axis, ruler=ruler)
    floor, top = np.inf, 0.0
    ends = [float(end) for curve in on_one_ruler(ruler or reports, eigenvalue_axis) for end in curve.grid[[0, -1]]]
    for i, (report, curve, label) in enumerate(zip(reports, curves, labels, strict=True)):
        # The peak of the kernel of one eigenvalue out of d: lower values are tails of kernels.
        one = 1 / (report.parameters * curve.width * np.sqrt(2 * np.pi))
        floor, top = min(floor, 0.1 * one), max(top, float((curve.values + curve.band).max()))
        style: dict[str, Any] = {"color": COLOURS[i % 7], "linestyle": DASHES[i % 7], "linewidth": stroke(1.4)}
        ax.plot(curve.grid, np.maximum(curve.values, 1e-300), **style, label=label)
        low = np.maximum(curve.values - curve.band, 1e-300)
        ax.fill_between(curve.grid, low, curve.values + curve.band, color=COLOURS[i % 7], alpha=0.2, lw=0)
    eigenvalue = f"eigenvalue of the {MATRICES[reports[0].matrix]}"
    ax.set(xlabel=eigenvalue, ylabel="density (per unit of eigenvalue)", title="Spectral density")
    if axis is not None:
        _symlog(ax, axis, min(ends), max(ends))
    if density_axis == "log":
        log_axis(ax)
        ax.set_ylim(floor, 3 * top)
    else:
        ax.set_ylim(0, 1.05 * top)
    ax.grid(alpha=0.3)
    if len(reports) > 1 and legend:
        ax.legend(fontsize="small")


def on_one_ruler(
    reports: Sequence[HessianReport],
    eigenvalue_axis: EigenvalueAxis = "auto",
    *,
    ruler: Sequence[HessianReport] = (),
) -> list[Curve]:
    """The curves that :func:`draw_densities` draws: with one kernel, that for ``ruler`` (unless given, ``reports``).

    Raises:
        FedscapeError: of a report no density was measured.
    """
    every = [_density_of(report) for report in ruler or reports]
    axis, width = _symlog_axis(every, eigenvalue_axis), max(density.width for density in every)
    return [_density_of(report).on(axis, width=width) for report in reports]


def density_caption(reports: Sequence[HessianReport], eigenvalue_axis: EigenvalueAxis = "auto") -> str:
    """What the curves and bands of :func:`draw_densities` are, in a few words."""
    densities = [_density_of(report) for report in reports]
    if _is_symlog(densities, eigenvalue_axis):
        width = "0.1 decades"
    else:
        width = f"{max(density.width for density in densities):.2g}, 1 % of the widest range"
    return f"density: Gaussian kernel, σ {width}; band: 95 %, over the probes and the quadrature"


def _is_symlog(densities: Sequence[Density], eigenvalue_axis: EigenvalueAxis) -> bool:
    """Whether the axis is symmetric logarithmic: ``auto`` is where ranges differ tenfold."""
    widths = [density.width for density in densities]
    return eigenvalue_axis == "symlog" or (eigenvalue_axis == "auto" and max(widths) > _TENFOLD * min(widths))


def _symlog_axis(every: Sequence[Density], eigenvalue_axis: EigenvalueAxis) -> SymLog | None:
    """The axis for all of these densities; ``None``: the linear one."""
    logarithmic = _is_symlog(every, eigenvalue_axis)
    return SymLog(max(density.resolved() for density in every)) if logarithmic else None


def _density_of(report: HessianReport) -> Density:
    if report.density is None:
        raise FedscapeError(f"no density was measured of {report.title}: measure it with --density")
    return report.density


def _symlog(ax: Axes, axis: SymLog, low: float, high: float) -> None:
    """Draw the eigenvalue axis symmetric logarithmic, with labels at 0 and at up to five powers of ten on each side."""
    ax.set_xscale("symlog", linthresh=axis.within, linscale=0.9 / np.log(10))  # Matplotlib's for one slope at ±within
    name = f"{ax.get_xlabel()} (axis linear within ±{axis.within:.1g})"
    ax.set(xlabel=name, ylabel="density (per decade)")
    labelled, between = [0.0], []
    first = int(np.ceil(np.log10(axis.within)))
    for sign, reach in ((-1, -low), (1, high)):
        powers = range(first, int(np.floor(np.log10(max(reach, axis.within)))) + 1)
        labelled += [sign * 10.0**power for power in powers[:: -max(1, -(-len(powers) // 5))]]
        between += [sign * digit * 10.0**power for power in powers for digit in range(1, 10)]
    # On a long axis there is no room for labels next to 0, nor for many on a short side of it.
    kept: list[float] = []
    start, end = (float(axis.forward(np.array(side))) for side in (low, high))
    for place in sorted(labelled, key=lambda place: -abs(place) if place else -np.inf):
        at = float(axis.forward(np.array(place)))
        if all(abs(at - float(axis.forward(np.array(other)))) > 0.13 * (end - start) for other in kept):
            kept.append(place)
    ax.xaxis.set_major_locator(FixedLocator(sorted(kept)))
    ax.xaxis.set_minor_locator(FixedLocator(sorted(place for place in between if low <= place <= high)))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlim(low, high)


def plot_spectra(
    reports: Sequence[HessianReport],
    labels: Sequence[str] | None = None,
    eigenvalue_axis: EigenvalueAxis = "auto",
    density_axis: DensityAxis = "log",
) -> Figure:
    """Eigenvalues of all reports on one panel; their densities on a second, with these axes, where all have one."""
    names = labels or [report.title for report in reports]
    panels = 2 if all(report.density is not None for report in reports) else 1
    columns = across(panels, 2.6)
    figure = new_figure((5.6 * panels, 4.2), panels // columns, columns, layout="constrained")
    axes = figure.subplots(panels // columns, columns, squeeze=False).ravel()
    within = max(map(len, names)) <= _FITS  # longer names would hide a panel: one legend above all
    draw_eigenvalues(axes[0], reports, names, legend=within)
    if panels == 2:
        draw_densities(axes[1], reports, names, eigenvalue_axis, density_axis, legend=within)
    if len(reports) > 1 and not within:
        told = [textwrap.fill(name, 2 * _FITS, break_on_hyphens=False) for name in names]
        figure.legend(axes[0].get_legend_handles_labels()[0], told, loc="outside upper center", fontsize=pt(8))
    if len(reports) == 1:
        figure.suptitle(reports[0].title, fontsize=pt(11))
    caption = f"error bars: error bounds{crossed([report.eigen.converged for report in reports])}"
    if panels == 2:
        caption += f"\n{density_caption(reports, eigenvalue_axis)}"
    figure.supxlabel(caption, fontsize=pt(8), color="0.3")
    return figure


def plot_rounds(runs: Mapping[str, Sequence[tuple[int, HessianReport]]]) -> Figure:
    """Over the rounds of each run: the first eigenvalue with its error bound, the trace with two standard errors
    (where it was measured), the loss."""
    first = next(iter(runs.values()))[0][1]
    traced = all(report.trace is not None for points in runs.values() for _, report in points)
    panels = ["eigenvalue", "trace", "loss"] if traced else ["eigenvalue", "loss"]
    columns = across(len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure((4.6 * len(panels), 4.0), rows, columns, layout="constrained")
    axes = dict(zip(panels, figure.subplots(rows, columns, squeeze=False).flat, strict=False))
    for i, (name, points) in enumerate(runs.items()):
        rounds = [number for number, _ in points]
        style: dict[str, Any] = {"color": COLOURS[i % 7], "marker": MARKERS[i % 7], "linestyle": DASHES[i % 7]}
        style |= {"linewidth": stroke(1), "capsize": pt(3), "label": name}
        values = [report.eigen.values[0] for _, report in points]
        axes["eigenvalue"].errorbar(rounds, values, [report.eigen.bounds[0] for _, report in points], **style)
        converged = np.array([report.eigen.converged[0] for _, report in points])
        cross_out(axes["eigenvalue"], np.array(rounds), np.array(values), converged)
        if traced:
            traces = [report.trace for _, report in points if report.trace is not None]
            axes["trace"].errorbar(rounds, [t.value for t in traces], [2 * t.stderr for t in traces], **style)
        axes["loss"].errorbar(rounds, [report.loss for _, report in points], **style)
    axes["eigenvalue"].set(ylabel=f"{first.labels()[0]} of the {MATRICES[first.matrix]}", title="First eigenvalue")
    if traced:
        axes["trace"].set(ylabel="trace", title="Trace")
    loss = "loss + MAN" if first.man else "loss"
    axes["loss"].set(ylabel=f"mean {loss} ({first.samples:,} {first.split} samples)", title="Loss")
    for ax in axes.values():
        ax.set_xlabel("communication round")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.grid(alpha=0.3)
        if len(runs) > 1:
            ax.legend()
    caption = "error bars: error bounds of the eigenvalues"
    caption += "; two standard errors of the traces" if traced else ""
    caption += crossed([report.eigen.converged[:1] for points in runs.values() for _, report in points])
    figure.supxlabel(caption, fontsize=pt(8), color="0.3")
    return figure
