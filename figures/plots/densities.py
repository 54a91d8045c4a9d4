"""Spectral densities, a panel a setting, all with one kernel and on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from analysis import HessianReport
from analysis.hessian.plots.spectrum import density_caption, draw_densities
from analysis.hessian.report import DensityAxis, EigenvalueAxis
from figures.plots.layout import check_panels, grid
from landscape import FedscapeError


@dataclass(frozen=True)
class DensityPanel:
    """One panel: its title, and reports with densities by label."""

    title: str
    reports: Sequence[HessianReport]
    labels: Sequence[str]


def plot_densities(
    panels: Sequence[DensityPanel],
    *,
    eigenvalue_axis: EigenvalueAxis = "auto",
    density_axis: DensityAxis = "log",
    columns: int | None = None,
    title: str = "",
    caption: str = "",
) -> Figure:
    """Draw spectral densities with their 95 % bands (:func:`analysis.hessian.plots.spectrum.draw_densities`).

    Kernel and axes are chosen for all panels together, so that peaks can be compared across panels.

    Raises:
        FedscapeError: nothing to draw, a report without a density, not a label for each, an axis of another kind.
    """
    check_panels(panels, "densities")
    every = [report for panel in panels for report in panel.reports]
    for panel in panels:
        if not panel.reports or len(panel.reports) != len(panel.labels):
            raise FedscapeError(
                f"the panel '{panel.title}' has {len(panel.reports)} densities and {len(panel.labels)} labels: "
                "give one or more, with a label each"
            )
    made = grid(len(panels), columns, size=(5.2, 3.7))
    for ax, panel in zip(made.axes, panels, strict=True):
        draw_densities(ax, panel.reports, panel.labels, eigenvalue_axis, density_axis, ruler=every)
        ax.set_title(panel.title, parse_math=False)
    for limits, set_limits in (("get_xlim", "set_xlim"), ("get_ylim", "set_ylim")):
        ends = [getattr(ax, limits)() for ax in made.axes]
        for ax in made.axes:
            getattr(ax, set_limits)(min(low for low, _ in ends), max(high for _, high in ends))
    return made.finish(title, caption, density_caption(every, eigenvalue_axis))
