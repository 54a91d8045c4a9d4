"""One sheet that compares checkpoints: training, spectrum, loss surface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import LogFormatter, MaxNLocator, PercentFormatter

from analysis import HessianReport, Surface
from analysis.hessian.plots.spectrum import density_caption, draw_densities, draw_eigenvalues
from analysis.source import Source
from analysis.style import COLOURS, DASHES, MARKERS, crossed
from analysis.surface.plots.panels import draw_colour_bar, draw_panel
from analysis.surface.plots.scales import Scale
from figures.graph import Store
from figures.measurements import Measurements
from landscape import Checkpoint, Evaluation, FedscapeError
from landscape.checkpoints.checkpoint import run_files
from landscape.checkpoints.foreign import open_checkpoint
from landscape.checkpoints.names import distinct_labels
from landscape.display import Shown, escaped
from landscape.storage.canvas import across, new_figure, pt
from landscape.storage.files import make_directory
from landscape.storage.pictures import draw_picture
from landscape.storage.style import PictureStyle, StyleName, current_style
from landscape.terminal.table import Table
from trainers.runs.directory import RunDirectory
from trainers.runs.protocol import differences, protocol

_MOST = len(COLOURS)


@dataclass(frozen=True, repr=False)
class Subject(Shown):
    """One checkpoint and its measurements.

    ``metrics`` are the records of its run up to its round; empty where the checkpoint lies in no run directory.
    """

    label: str
    checkpoint: Checkpoint
    metrics: list[dict[str, Any]]
    test: Evaluation
    report: HessianReport
    surface: Surface

    def _heading(self) -> str:
        return self.label

    def _facts(self) -> dict[str, str]:
        accuracy = {} if self.test.accuracy is None else {"test accuracy": f"{self.test.accuracy:.2%}"}
        return {**accuracy, "λ1": f"{self.report.eigen.values[0]:.4g} ± {self.report.eigen.bounds[0]:.1g}"}


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Checkpoints side by side."""

    subjects: list[Subject]
    files: list[Path] = field(default_factory=list)

    def _facts(self) -> dict[str, str]:
        return {s.label: ", ".join(f"{name} {value}" for name, value in s._facts().items()) for s in self.subjects}

    def _picture(self) -> Figure:
        return self.plot()

    def _table(self) -> str:
        return "\n".join([self.table().html(), *(f"<p>{escaped(note)}</p>" for note in self.notes())])

    def plot(self, path: str | Path | None = None, style: PictureStyle | StyleName = "screen") -> Figure:
        """The sheet, for the screen or a paper; written to ``path`` where one is given.

        Raises:
            FedscapeError: the file cannot be written or has a format that Matplotlib does not write.
        """
        return draw_picture(self.sheet, path, style, dpi=120)

    def table(self) -> Table:
        """Accuracy, loss and flatness, one row for each checkpoint; :meth:`notes` has what their runs differ in."""
        columns: tuple[str, ...] = (
            "model", "round", "test accuracy", "test loss", "train accuracy", "train loss",
            "λ1", "λ1 error bound", "λ1/λ5", "λ1/λ5 error bound", "trace", "trace stderr", "remarks",
        )  # fmt: skip
        rows = []
        for s in self.subjects:
            trace = s.report.trace
            assert trace is not None
            first, places = s.report.eigen, [i for i in (0, 4) if i < len(s.report.eigen.values)]
            rows.append(
                (s.label, str(s.checkpoint.round), s.test.accuracy, s.test.loss, s.report.accuracy, s.report.loss,
                 float(first.values[0]), float(first.bounds[0]), s.report.ratio(1, 5), s.report.ratio_error(1, 5),
                 trace.value, trace.stderr, "; ".join([*s.report.remarks(places), *s.report.intervals(places)]) or None)
            )  # fmt: skip
        if self.subjects[0].report.split != "train":
            columns = tuple(name.replace("train ", "measured ") for name in columns)
        return Table(columns, tuple(rows))

    def notes(self) -> list[str]:
        """What must be said of the table and the sheet: the eigenvalues that have not converged or are not told from 0,
        the traces that did not reach their tolerance, and where their runs differ in objective, evaluated model or the
        work of a round."""
        remarks = [f"{s.label}: {said}" for s in self.subjects for said in s.report.remarks()]
        return [*remarks, *(f"warning: {sentence}" for sentence in differences(self.protocols()))]

    def protocols(self) -> dict[str, dict[str, str | float | None]]:
        """Objective, evaluated model and the work of a round of each checkpoint's run, if the checkpoint tells them."""
        return {
            s.label: protocol({"algorithm": s.checkpoint.algorithm, "settings": training}, s.metrics)
            for s in self.subjects
            if isinstance(training := s.checkpoint.algorithm.get("training"), dict)
        }

    def sheet(self) -> Figure:
        """Training curves (where a run is known), eigenvalues and densities above, surfaces below."""
        curves = any(s.metrics for s in self.subjects)
        labels = [s.label for s in self.subjects]
        reports = [s.report for s in self.subjects]
        upper_panels = 4 if curves else 2
        wide = max(4.2 * upper_panels, 4.4 * len(self.subjects) + 1)
        columns = across(upper_panels)
        rows, paper = upper_panels // columns, current_style().paper
        below = 2 if paper and len(self._groups()) == 2 else 1
        tall = 2.0 if columns > 1 else 1.5
        figure = new_figure((wide, 8.2), rows + below, columns, panel_height=tall, layout="constrained")
        heights = [rows, below] if paper else [1, 1.05]
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
        axes = upper.subplots(rows, columns, squeeze=False).ravel()
        if curves:
            self._curves(axes[0], "train_loss", "loss of the local steps (nats)", "Training loss")
            axes[0].set_yscale("log")
            axes[0].yaxis.set_major_formatter("{x:g}")
            axes[0].yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))
            self._curves(axes[1], "test_accuracy", "test accuracy", "Test accuracy")
            axes[1].yaxis.set_major_formatter(PercentFormatter(1.0))
        draw_eigenvalues(axes[-2], reports, labels)
        draw_densities(axes[-1], reports, labels)
        self._surfaces(lower)
        first = self.subjects[0]
        figure.suptitle(
            f"{', '.join(labels)}: {first.checkpoint.model['name']} on {first.checkpoint.data['name']}",
            fontsize=pt(14),
        )
        return figure

    def _curves(self, ax: Axes, key: str, label: str, title: str) -> None:
        for i, s in enumerate(self.subjects):
            known = [(m["round"], m[key]) for m in s.metrics if m.get(key) is not None]
            if known:
                rounds, values = zip(*known, strict=True)
                (line,) = ax.plot(rounds, values, color=COLOURS[i], marker=MARKERS[i], label=s.label)
                line.set(linestyle=DASHES[i], markersize=pt(4), markevery=max(1, len(rounds) // 10), linewidth=1.4)
        ax.set(xlabel="communication round", ylabel=label, title=title)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.grid(alpha=0.3)
        ax.legend()

    def _surfaces(self, figure: SubFigure) -> None:
        """The loss surfaces on one common scale; of two checkpoints, also the accuracies on another common scale."""
        groups = self._groups()
        shape = (len(groups), 1) if current_style().paper else (1, len(groups))
        parts = figure.subfigures(*shape, squeeze=False).ravel()
        for part, (title, values, colours, label) in zip(parts, groups, strict=True):
            scale = Scale.of(
                np.concatenate([array.ravel() for array in values]), "auto" if title == "Loss" else "linear"
            )
            axes = part.subplots(1, len(values), squeeze=False, sharex=True, sharey=True)[0]
            drawn = None
            for ax, subject, array in zip(axes, self.subjects, values, strict=True):
                drawn = draw_panel(ax, subject.surface, array, scale, colours) or drawn
                ax.set_title(f"{title}, {subject.label}")
                ax.label_outer()
            if drawn is not None and scale is not None:
                draw_colour_bar(part, list(axes), drawn, scale, label)
        figure.supxlabel(self._caption(), fontsize=pt(9), color="0.3")

    def _groups(self) -> list[tuple[str, list[np.ndarray], str, str]]:
        """The surfaces that share a scale: title, values of each checkpoint, colours, label."""
        first = self.subjects[0].surface
        groups = [("Loss", [s.surface.loss for s in self.subjects], "viridis", first.loss_label)]
        accuracies = [100 * s.surface.accuracy for s in self.subjects if s.surface.accuracy is not None]
        if len(accuracies) == len(self.subjects) == 2:
            groups.append(("Accuracy", accuracies, "cividis", f"{first.split_word} accuracy (%)"))
        return groups

    def _caption(self) -> str:
        first, surface = self.subjects[0], self.subjects[0].surface
        report = first.report
        return (
            f"spectra and surfaces over {report.samples:,} {surface.split_word} samples; error bars: error bounds"
            f"{crossed([s.report.eigen.converged for s in self.subjects])}; "
            f"{density_caption([s.report for s in self.subjects])}\n{surface.recipe}; white dots: the models"
        )


def compare(
    checkpoints: Sequence[str | Path],
    out: str | Path,
    *,
    top: int = 10,
    points: int = 21,
    span: float = 1.0,
    trace_tolerance: float = 0.02,
    trace_probes: int = 100,
    probes: int = 8,
    steps: int = 40,
    seed: int = 0,
    source: Source | None = None,
    style: PictureStyle | StyleName = "screen",
    progress: bool = False,
) -> Comparison:
    """Measure checkpoints in the same way and write one sheet and one table.

    Args:
        checkpoints: two to seven checkpoint files of the same data set.
        out: the folder for ``compare.png``, ``compare.txt``, ``compare.csv`` and the measurements
            (``cache/``); the next call reads them again, and continues those that were interrupted.
        top: how many eigenvalues.
        points, span: of the loss surfaces, as in :func:`analysis.surface.measure.measure_surface`.
        trace_tolerance: standard error wanted of the trace, as a share of it.
        trace_probes: random probes of the trace at most.
        probes, steps: of the spectral densities, as in :func:`analysis.hessian.density.estimate.estimate_density`.
        seed: of all random vectors; the surfaces of all checkpoints share their random numbers.
        source: data, device and arithmetic.
        style: of the sheet, for the screen or a paper.
        progress: show progress on stderr.

    Raises:
        FedscapeError: fewer than two checkpoints or more than seven, checkpoints of different data, one that cannot be
            loaded, a folder that cannot be written.
    """
    _require_number(len(checkpoints))
    source = source or Source()
    loaded = [open_checkpoint(path, **source.naming) for path in checkpoints]
    _require_one_data_set(loaded)
    folder = make_directory(out)
    measure = Measurements(Store(folder / "cache"), source, seed, progress)
    comparison = compare_measured(
        [(path, checkpoint, measure) for path, checkpoint in zip(checkpoints, loaded, strict=True)],
        top=top,
        points=points,
        span=span,
        trace_tolerance=trace_tolerance,
        trace_probes=trace_probes,
        probes=probes,
        steps=steps,
    )
    sheet = folder / "compare.png"
    comparison.plot(sheet, style)
    return Comparison(comparison.subjects, [sheet, *comparison.table().save(folder / "compare")])


def compare_measured(
    models: Sequence[tuple[str | Path, Checkpoint, Measurements]],
    *,
    top: int = 10,
    points: int = 21,
    span: float = 1.0,
    trace_tolerance: float = 0.02,
    trace_probes: int = 100,
    probes: int = 8,
    steps: int = 40,
) -> Comparison:
    """:func:`compare` of checkpoints that have been opened, each measured in a store of its own; nothing is drawn.

    Args:
        models: of each its file, what is in it, and how it is measured.
        top, points, span, trace_tolerance, trace_probes, probes, steps: as in :func:`compare`.

    Raises:
        FedscapeError: fewer than two checkpoints or more than seven, or checkpoints of different data.
    """
    loaded = [checkpoint for _, checkpoint, _ in models]
    _require_number(len(models))
    _require_one_data_set(loaded)
    spectrum = {
        "top": top,
        "trace_tolerance": trace_tolerance,
        "trace_probes": trace_probes,
        "density": True,
        "density_probes": probes,
        "density_steps": steps,
    }
    return Comparison(
        [
            Subject(
                label,
                checkpoint,
                _metrics(checkpoint),
                measure.test(file, checkpoint),
                measure.hessian(file, checkpoint, **spectrum),
                measure.surface(file, checkpoint, points=points, span=span, exact=True),
            )
            for label, (file, checkpoint, measure) in zip(distinct_labels(loaded), models, strict=True)
        ]
    )


def _require_number(count: int) -> None:
    if not 2 <= count <= _MOST:
        raise FedscapeError(f"{count} checkpoints are given: compare 2 to {_MOST}")


def _require_one_data_set(loaded: Sequence[Checkpoint]) -> None:
    data = sorted({str(checkpoint.data.get("name")) for checkpoint in loaded})
    if len(data) > 1:
        raise FedscapeError(f"the checkpoints are of different data ({', '.join(data)}): compare those of one data set")


def _metrics(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    files = [] if checkpoint.foreign else run_files(checkpoint.path, "metrics.jsonl")
    return [m for file in files[:1] for m in RunDirectory(file.parent).metrics() if m["round"] <= checkpoint.round]
