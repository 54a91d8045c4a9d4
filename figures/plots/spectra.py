"""Eigenvalue by rank: the top 50 or 200 of several models on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.style import cross_out, crossed, log_axis
from figures.plots.layout import (
    LegendPlace,
    Look,
    add_legend,
    array,
    check_panels,
    grid,
    line_width,
    looks,
    marker_size,
    same_length,
)
from landscape import FedscapeError


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The largest eigenvalues of one model.

    Attributes:
        label: in the legend.
        values: descending, [k].
        bounds: error bounds, [k]; ``None``: not known.
        converged: which have converged, [k]; ``None``: all.
        noise: eigenvalues up to this size are not told from 0, beside those within their own bounds of it.

    Raises:
        FedscapeError: the arrays do not fit together, or the values do not descend.
    """

    label: str
    values: np.ndarray
    bounds: np.ndarray | None = None
    converged: np.ndarray | None = None
    noise: float = 0.0

    def __post_init__(self) -> None:
        for name in ("values", "bounds"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, array(getattr(self, name), f"the {name} of {self.label}"))
        if not np.isfinite(self.values).all():
            raise FedscapeError(f"the eigenvalues of {self.label} are not all finite: there is nothing to draw there")
        if (np.diff(self.values) > 0).any():
            raise FedscapeError(f"the eigenvalues of {self.label} do not descend: give the largest first")
        if self.converged is not None:
            object.__setattr__(self, "converged", np.asarray(self.converged, dtype=bool))
        same_length(self.label, values=self.values, bounds=self.bounds, converged=self.converged)

    @property
    def doubtful(self) -> np.ndarray:
        """Which eigenvalues are not told from 0: within their bound or the noise of it, [k]."""
        within = np.full(len(self.values), self.noise) if self.bounds is None else np.maximum(self.bounds, self.noise)
        return np.abs(self.values) <= within


@dataclass(frozen=True)
class SpectraPanel:
    """One panel: its title and its spectra."""

    title: str
    spectra: Sequence[Spectrum]


def plot_eigenvalues(
    panels: Sequence[SpectraPanel],
    *,
    ylabel: str = "eigenvalue of the Hessian",
    log_x: bool = False,
    log_y: bool = True,
    columns: int | None = None,
    legend: LegendPlace = "auto",
    title: str = "",
    caption: str = "",
) -> Figure:
    """Draw eigenvalue by rank, with bands of the error bounds; all panels have the same y axis.

    On a logarithmic axis, a negative eigenvalue is at its absolute value, as a hollow triangle, zeros are not drawn,
    and what is not told from 0 cannot stretch the axis: below it, it is at its edge.  On both axes, what is not told
    from 0 is a hollow circle.  The caption says which of these there are, and how many.

    Raises:
        FedscapeError: nothing to draw, more labels than looks, no value that the axis has.
    """
    check_panels(panels, "eigenvalues")
    for panel in panels:
        if not panel.spectra:
            raise FedscapeError(f"the panel '{panel.title}' has no spectrum: give one or more")
    spectra = [spectrum for panel in panels for spectrum in panel.spectra]
    look_of = looks(spectrum.label for spectrum in spectra)
    made = grid(len(panels), columns, sharey="all")
    floor = _floor(spectra) if log_y else None
    handles: dict[str, Any] = {}
    for place, (ax, panel) in enumerate(zip(made.axes, panels, strict=True)):
        for spectrum in panel.spectra:
            handles.setdefault(spectrum.label, _draw(ax, spectrum, look_of[spectrum.label], floor))
        ax.set_title(panel.title, parse_math=False)
        ax.set(xlabel="rank", ylabel=ylabel if made.left(place) else "")
        if log_x:
            log_axis(ax, "x")
        else:
            ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        if floor is None:
            ax.axhline(0, color="0.5", linewidth=line_width(0.5), zorder=0)
        else:
            log_axis(ax)
        ax.grid(alpha=0.3)
    if floor is not None:  # last: with limits set, a shared axis no longer grows with what is drawn
        made.axes[0].set_ylim(bottom=floor)
    add_legend(made, handles, legend)
    return made.finish(title, caption, *signs(spectra, log_y=log_y))


def signs(spectra: Sequence[Spectrum], *, log_y: bool) -> list[str]:
    """What the signs of :func:`plot_eigenvalues` mean, of those that these spectra have."""
    negative, unsure, zero, doubtful = (
        sum(int(which(s).sum()) for s in spectra)
        for which in (
            lambda s: s.values < 0,
            lambda s: s.doubtful & (s.values < 0),
            lambda s: s.values == 0,
            lambda s: s.doubtful & (not log_y or s.values > 0),
        )
    )
    told = ["bands: error bounds"] if any(s.bounds is not None for s in spectra) else []
    if negative and log_y:
        of = f", {unsure} of them not told from 0" if unsure else ""
        told.append(f"hollow triangles: {negative} negative, at their absolute values{of}")
    if doubtful:
        told.append(f"hollow circles: {doubtful} not told from 0")
    if zero and log_y:
        told.append(f"{zero} of 0 not drawn")
    floor = _floor(spectra) if log_y else 0.0
    if log_y and (below := sum(int(((np.abs(s.values) < floor) & (s.values != 0)).sum()) for s in spectra)):
        told.append(f"{below} below the axis, at its edge")
    return told + [text for text in [crossed([_converged(s) for s in spectra]).removeprefix("; ")] if text]


def _draw(ax: Axes, spectrum: Spectrum, look: Look, floor: float | None) -> Any:
    """Draw one spectrum, from ``floor`` upwards on a logarithmic axis; returns the line."""
    ranks, values, colour = np.arange(1, len(spectrum.values) + 1), spectrum.values, look.colour
    drawn = values if floor is None else np.where(values != 0, np.maximum(np.abs(values), floor), np.nan)
    negative = (values < 0) & (floor is not None)
    doubtful = spectrum.doubtful & ~negative
    if spectrum.bounds is not None:
        low, high = drawn - spectrum.bounds, drawn + spectrum.bounds
        low = low if floor is None else np.maximum(low, floor)
        ax.fill_between(ranks, low, high, color=colour, alpha=0.2, lw=0)
    (line,) = ax.plot(
        ranks, np.where(negative | doubtful, np.nan, drawn), color=colour, linestyle=look.dash, marker=look.marker
    )
    line.set(
        linewidth=line_width(0.8),
        markersize=marker_size(0.7),
        markevery=max(1, len(ranks) // 20),
        label=spectrum.label,
    )
    hollow: dict[str, Any] = {
        "linestyle": "",
        "markerfacecolor": "white",
        "markeredgecolor": colour,
        "markersize": marker_size(0.8),
    }
    for which, marker in ((negative, "v"), (doubtful, "o")):
        if which.any():
            # At the lower edge they are on the frame of the panel.
            ax.plot(ranks[which], drawn[which], marker=marker, clip_on=False, **hollow)
    cross_out(ax, ranks, drawn, _converged(spectrum))
    return line


def _converged(spectrum: Spectrum) -> np.ndarray:
    return np.ones(len(spectrum.values), bool) if spectrum.converged is None else spectrum.converged


def _floor(spectra: Sequence[Spectrum]) -> float:
    """Where the logarithmic axis ends: a little below the smallest size of an eigenvalue that is told from 0."""
    sizes = np.concatenate([np.abs(s.values) for s in spectra])
    known = np.concatenate([np.abs(s.values[~s.doubtful]) for s in spectra])
    positive = known[known > 0] if (known > 0).any() else sizes[sizes > 0]
    if not positive.size:
        raise FedscapeError("all eigenvalues are 0, which no logarithmic axis has: give log_y=False")
    return 0.5 * float(positive.min())
