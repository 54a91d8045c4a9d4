"""Spectra of the Hessian: eigenvalues by rank, and densities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis import HessianReport
from analysis.hessian.plots.spectrum import density_caption, on_one_ruler
from figures.contents.content import Picture, Printings, Product, Results
from figures.graph.nodes import Measure, Node
from figures.plots import DensityPanel, SpectraPanel, Spectrum, plot_densities, plot_eigenvalues
from landscape.terminal.table import Table

Panels = Mapping[str, Mapping[str, Measure]]
"""Measurements ``hessian`` by panel and label."""


def _nodes(panels: Panels) -> list[Node]:
    return list(dict.fromkeys(node for curves in panels.values() for node in curves.values()))


def _told(reports: Sequence[HessianReport]) -> str:
    first = reports[0]
    return f"Hessian of the mean loss over {first.samples:,} {first.split} samples."


@dataclass(frozen=True)
class Spectra:
    """The largest eigenvalues by rank.

    Attributes:
        panels: measurements by panel and label.
        log_x: a logarithmic axis of ranks.
    """

    panels: Panels
    log_x: bool = False

    def nodes(self) -> Sequence[Node]:
        """All measurements."""
        return _nodes(self.panels)

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The picture, and all eigenvalues with their bounds."""
        found: dict[str, dict[str, HessianReport]] = {
            title: {label: results[node] for label, node in curves.items()} for title, curves in self.panels.items()
        }
        caption = _told([report for curves in found.values() for report in curves.values()])

        panels = [
            SpectraPanel(
                title,
                [Spectrum(label, r.eigen.values, r.eigen.bounds, r.eigen.converged) for label, r in curves.items()],
            )
            for title, curves in found.items()
        ]
        picture = Picture(panels, plot_eigenvalues, {"log_x": self.log_x, "caption": caption})
        rows = [
            (title, label, i + 1, float(r.eigen.values[i]), float(r.eigen.bounds[i]), str(bool(r.eigen.converged[i])))
            for title, curves in found.items()
            for label, r in curves.items()
            for i in range(len(r.eigen.values))
        ]
        columns = ("panel", "curve", "rank", "eigenvalue", "error bound", "converged")
        return [Product("", Table(columns, tuple(rows)), picture, caption=caption)]


@dataclass(frozen=True)
class Densities:
    """Spectral densities on one ruler.

    Attributes:
        panels: measurements with ``density`` by panel and label.
    """

    panels: Panels

    def nodes(self) -> Sequence[Node]:
        """All measurements."""
        return _nodes(self.panels)

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The picture, and all points of its curves."""
        found: dict[str, dict[str, HessianReport]] = {
            title: {label: results[node] for label, node in curves.items()} for title, curves in self.panels.items()
        }
        reports = [report for curves in found.values() for report in curves.values()]
        told = _told(reports)
        caption = f"{told} {density_caption(reports)}."

        panels = [DensityPanel(title, list(curves.values()), list(curves)) for title, curves in found.items()]
        picture = Picture(panels, plot_densities, {"caption": told})  # it tells the rest itself
        rows: list[tuple[str | float | None, ...]] = []
        for panel in panels:
            for label, curve in zip(panel.labels, on_one_ruler(panel.reports, ruler=reports), strict=True):
                for x, value, band in zip(curve.grid, curve.values, curve.band, strict=True):
                    rows.append((panel.title, label, float(x), float(value), float(band)))
        columns = ("panel", "curve", "eigenvalue", "density", "half the 95 % band")
        return [Product("", Table(columns, tuple(rows)), picture, caption=caption)]
