"""``python -m figures curves``: test accuracy and loss of recorded runs over the rounds, mean and band over seeds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from matplotlib.figure import Figure

from figures.plots.curves import Curve, CurvePanel, plot_curves
from figures.statistics import SeedCurve, curve_over_seeds
from figures.statistics.spread import Band
from landscape.errors import FedscapeError
from landscape.storage.files import write_text
from landscape.storage.outputs import ForceFlag, Output, check_outputs, pictures
from landscape.storage.pictures import check_picture, draw_picture
from landscape.storage.style import PictureStyle
from landscape.terminal.table import Table
from trainers.runs.records import RecordedRun, read_runs
from trainers.settings import optional
from trainers.tables.comparison import warnings
from trainers.tables.selection import groups, run_paths, where

_PANELS = {"test_accuracy": "test accuracy", "test_loss": "test loss"}
_SPAN = 10.0
"""Losses are on a logarithmic axis where the largest is so many times the smallest."""
_COLUMNS = ("curve", "metric", "round", "mean", "low", "high", "n")


@dataclass(frozen=True)
class Curves:
    """Draw test accuracy and test loss over the rounds: a line for the runs that differ by their seed only, their mean,
    in a band of one deviation or from the smallest to the largest. Runs that diverged or are unfinished are left out.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN [RUN ...]")]
    """run directories, or the list of a grid's that `fedscape sweep` writes (DIR/GRID.json)"""
    where: Annotated[tuple[str, ...], optional("NAME=VALUE [NAME=VALUE ...]", "all runs")] = ()
    """only the runs that were given this"""
    band: Band = "deviation"
    """around the mean over the seeds: deviation (one standard deviation, divisor n − 1), or range (smallest to
    largest)"""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("curves.png")
    """picture to write"""
    csv: Annotated[Path | None, optional("FILE", "none")] = None
    """write the points of all curves there, with all digits"""
    force: ForceFlag = False
    style: PictureStyle = field(default_factory=PictureStyle)

    def run(self) -> int:
        """Read, draw, write; the exit code."""
        check_picture(self.out)
        outputs = pictures("--out", self.out, paper=self.style.paper)
        if self.csv is not None:
            outputs.append(Output("--csv", self.csv, "csv", _COLUMNS))
        inputs = [run / name for run in self.runs for name in ("config.json", "metrics.jsonl", "result.json")]
        check_outputs(outputs, [*self.runs, *inputs], force=self.force)
        if not self.runs:
            raise FedscapeError("give at least one run directory (see python -m figures curves --help)")
        paths, missing = run_paths(self.runs)
        runs = where(read_runs(paths), self.where)
        finished = [run for run in runs if run.status == "finished"]
        out = [f"{run.path} {run.status_text}" for run in runs if run.status != "finished"]
        told = [f"left out: {each}" for each in out] + [f"{missing} runs of the grid are not begun"] * bool(missing)
        labelled = groups(finished)
        for sentence in [*told, *warnings(finished, labelled)]:
            print(f"warning: {sentence}", file=sys.stderr)
        if not finished:
            raise FedscapeError("none of the runs has finished: give one that has")
        curves = curves_of(labelled, self.band)
        draw_picture(lambda: picture(curves, self.band), self.out, self.style)
        print(f"written: {self.out}")
        if self.csv is not None:
            write_text(self.csv, points(curves).csv())
            print(f"written: {self.csv}")
        return 0


Found = Mapping[str, Mapping[str, SeedCurve]]
"""The curves by metric and label."""


def curves_of(found: Mapping[str, Sequence[RecordedRun]], band: Band) -> Found:
    """The curves of groups of runs, those metrics that some run has."""
    there = {metric: {label: r for label, r in found.items() if r[0].values(metric)} for metric in _PANELS}
    return {
        metric: {label: curve_over_seeds(runs, metric, band=band) for label, runs in labelled.items()}
        for metric, labelled in there.items()
        if labelled
    }


def picture(found: Found, band: Band) -> Figure:
    """A panel for each metric."""
    panels = []
    for metric, curves in found.items():
        lowest = min(float((c.mean if c.low is None else c.low).min()) for c in curves.values())
        highest = max(float(c.mean.max()) for c in curves.values())
        share = metric == "test_accuracy"
        log = not share and 0 < _SPAN * lowest < highest
        drawn = [Curve(label, c.rounds, c.mean, c.low, c.high) for label, c in curves.items()]
        title = _PANELS[metric]
        panels.append(CurvePanel(title.capitalize(), drawn, ylabel=title, percent=share, log_y=log))
    return plot_curves(panels, ylabel="", share_y=False, caption=caption(found, band))


def caption(found: Found, band: Band) -> str:
    """What the bands are, and over how many seeds."""
    seeds = sorted({curve.seeds for curves in found.values() for curve in curves.values()})
    if seeds == [1]:
        return "One seed each."
    edges = "one standard deviation (n − 1)" if band == "deviation" else "from the smallest to the largest"
    number = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"Line: mean over {number} seeds; band: {edges}."


def points(found: Found) -> Table:
    """All points of all curves."""
    rows = [
        (label, metric, int(c.rounds[i]), float(c.mean[i]), *_edges(c, i), c.seeds)
        for metric, curves in found.items()
        for label, c in curves.items()
        for i in range(len(c.rounds))
    ]
    return Table(_COLUMNS, tuple(rows))


def _edges(curve: SeedCurve, i: int) -> tuple[float | None, float | None]:
    if curve.low is None or curve.high is None:
        return None, None
    return float(curve.low[i]), float(curve.high[i])
