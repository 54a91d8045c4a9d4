"""Curves over the rounds, and results against a parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from figures.contents.content import Picture, Printings, Product, Results
from figures.contents.table import Entry, Measured
from figures.graph.nodes import Node
from figures.plots import Curve, CurvePanel, Level, Sweep, SweepPanel, plot_curves, plot_sweeps
from figures.plots.sweeps import Spacing
from figures.statistics import SeedCurve, curve_over_seeds
from landscape.terminal.table import Share, Table
from trainers.runs.planned import PlannedRun


@dataclass(frozen=True)
class Curves:
    """A metric over the rounds, a panel a setting, a curve an algorithm.

    Attributes:
        panels: runs, one a seed, by panel and curve.
        ylabel: of the metric.
        metric: as runs record it.
        unit: of the metric; 1 for shares.
        percent: the metric is a share, and y is in percent.
        log_y: a logarithmic axis.
        smoothing: length of a Hann window in evaluations; 1: none.
        until: the last round that is drawn; ``None``: all.
        levels: horizontal lines by panel.
    """

    panels: Mapping[str, Mapping[str, tuple[PlannedRun, ...]]]
    ylabel: str = "test accuracy (%)"
    metric: str = "test_accuracy"
    unit: str = "1"
    percent: bool = True
    log_y: bool = False
    smoothing: int = 1
    until: int | None = None
    levels: Mapping[str, Sequence[Level]] = field(default_factory=dict)

    def nodes(self) -> Sequence[Node]:
        """All runs."""
        return list(dict.fromkeys(run for curves in self.panels.values() for runs in curves.values() for run in runs))

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The picture, and all points of its curves."""
        found = {
            panel: {
                label: curve_over_seeds(
                    [results[run] for run in runs], metric=self.metric, smoothing=self.smoothing, until=self.until
                )
                for label, runs in curves.items()
            }
            for panel, curves in self.panels.items()
        }
        seeds = {curve.seeds for curves in found.values() for curve in curves.values()}
        told = []
        if self.smoothing > 1:
            told.append(f"Smoothed by a Hann window of {self.smoothing} evaluations.")
        if max(seeds) > 1:
            told.append(f"Band: one standard deviation (n − 1) over {max(seeds)} seeds.")
        caption = " ".join(told)

        panels = [
            CurvePanel(
                panel,
                [Curve(label, c.rounds, c.mean, c.low, c.high) for label, c in curves.items()],
                self.levels.get(panel, ()),
            )
            for panel, curves in found.items()
        ]
        options = {"ylabel": self.ylabel, "percent": self.percent, "log_y": self.log_y, "caption": caption}
        return [Product("", self._numbers(found), Picture(panels, plot_curves, options, self.unit), caption=caption)]

    def _numbers(self, found: Mapping[str, Mapping[str, SeedCurve]]) -> Table:
        number = Share if self.percent else float
        rows = [
            (
                panel,
                label,
                int(c.rounds[i]),
                number(c.mean[i]),
                None if c.high is None else number(c.high[i] - c.mean[i]),
            )
            for panel, curves in found.items()
            for label, c in curves.items()
            for i in range(len(c.rounds))
        ]
        return Table(("panel", "curve", "round", self.metric, "deviation over seeds"), tuple(rows))


@dataclass(frozen=True)
class SweepOf:
    """A panel of results against one parameter.

    Attributes:
        xlabel: the parameter.
        curves: what stands at each value of the parameter, by curve.
        spacing: of the values on the axis.
        default: the value that other experiments have.
    """

    xlabel: str
    curves: Mapping[str, Mapping[float, Entry]]
    spacing: Spacing = "linear"
    default: float | None = None


@dataclass(frozen=True)
class Sweeps:
    """Results against parameters, a panel each.

    Attributes:
        panels: by title.
        ylabel: of the results.
        unit: of the results.
    """

    panels: Mapping[str, SweepOf]
    ylabel: str = "test accuracy (%)"
    unit: str = "%"

    def nodes(self) -> Sequence[Node]:
        """Those of all entries."""
        entries = [e for panel in self.panels.values() for curve in panel.curves.values() for e in curve.values()]
        return list(dict.fromkeys(node for entry in entries for node in entry.nodes))

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The picture, and the results one by one; a run that failed or diverged leaves a gap."""
        found = {
            title: {
                label: {x: entry.measured(results) for x, entry in sorted(curve.items())}
                for label, curve in panel.curves.items()
            }
            for title, panel in self.panels.items()
        }
        cells = [cell for panel in found.values() for curve in panel.values() for cell in curve.values()]
        spread = any(cell.deviation is not None for cell in cells)
        caption = f"Error bars: one standard deviation over the {cells[0].over}." if spread else ""

        panels = [
            SweepPanel(
                title,
                panel.xlabel,
                [_sweep(label, curve) for label, curve in found[title].items()],
                panel.spacing,
                default=panel.default,
            )
            for title, panel in self.panels.items()
        ]
        picture = Picture(panels, plot_sweeps, {"ylabel": self.ylabel, "caption": caption}, self.unit)
        rows = [
            (title, self.panels[title].xlabel, label, x, cell.mean, cell.deviation, cell.text(4))
            for title, curves in found.items()
            for label, curve in curves.items()
            for x, cell in curve.items()
        ]
        columns = ("panel", "parameter", "curve", "value", "mean", "deviation", "text")
        return [Product("", Table(columns, tuple(rows)), picture, caption=caption)]


def _sweep(label: str, curve: Mapping[float, Measured]) -> Sweep:
    mean = np.array([np.nan if cell.mean is None else cell.mean for cell in curve.values()])
    apart = [cell.deviation for cell in curve.values()]
    known = np.array([0.0 if each is None else each for each in apart])
    return Sweep(label, np.array(list(curve)), mean, None if None in apart else known)
