"""One sheet that compares checkpoints: training, spectrum, loss surface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from analysis.source import Source
from analysis.style import COLOURS
from figures.alike import Recipe
from figures.graph import Store
from figures.measurements import Measurements
from figures.sheet import Subject, draw_sheet
from landscape import Checkpoint, FedscapeError
from landscape.checkpoints.checkpoint import run_files
from landscape.checkpoints.foreign import open_checkpoint
from landscape.checkpoints.names import distinct_labels
from landscape.storage.display import Shown, escaped
from landscape.storage.files import make_directory
from landscape.storage.outputs import Output, pictures
from landscape.storage.pictures import draw_picture, save_figures
from landscape.storage.style import PictureStyle, StyleName
from landscape.terminal.table import Share, Table
from trainers.runs.directory import RunDirectory
from trainers.runs.protocol import differences, protocol

_MOST = len(COLOURS)


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
                (s.label, str(s.checkpoint.round), _share(s.test.accuracy), s.test.loss, _share(s.report.accuracy),
                 s.report.loss,
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
        """Training curves (where a run is known), eigenvalues, densities, and maps of loss and accuracy, on the width
        of a page."""
        return draw_sheet(self.subjects)


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
        out: the folder for ``compare.png``, ``compare.pdf``, ``compare.svg``, ``compare.txt``, ``compare.csv`` and the
            measurements (``cache/``); the next call reads them again, and continues those that were interrupted.
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
        FedscapeError: fewer than two checkpoints or more than seven, or no list of them; checkpoints of different data,
            one that cannot be loaded, a folder that cannot be written.
    """
    if isinstance(checkpoints, str | Path):
        raise FedscapeError(f"compare takes a list of checkpoints and a folder: compare(['{checkpoints}', ...], out)")
    _require_number(len(checkpoints))
    source = source or Source()
    loaded = [open_checkpoint(path, **source.naming) for path in checkpoints]
    require_one_data_set(loaded)
    folder = make_directory(out)
    measure = Measurements(Store(folder / "cache"), source, seed, progress)
    comparison = compare_measured(
        [(path, checkpoint, measure) for path, checkpoint in zip(checkpoints, loaded, strict=True)],
        Recipe(top, points, span, trace_tolerance, trace_probes, probes, steps, seed),
    )
    stem, chosen = folder / "compare", PictureStyle.of(style)
    drawn = save_figures(draw_picture(comparison.sheet, style=chosen), stem, ("png", "pdf", "svg"), chosen, dpi=120)
    return Comparison(comparison.subjects, [*drawn, *comparison.table().save(stem)])


def compare_measured(models: Sequence[tuple[str | Path, Checkpoint, Measurements]], recipe: Recipe) -> Comparison:
    """:func:`compare` of checkpoints that have been opened, each measured in a store of its own; nothing is drawn.

    Args:
        models: of each its file, what is in it, and how it is measured.
        recipe: what is measured; the seed is that of the measurements.

    Raises:
        FedscapeError: fewer than two checkpoints or more than seven, or checkpoints of different data.
    """
    loaded = [checkpoint for _, checkpoint, _ in models]
    _require_number(len(models))
    require_one_data_set(loaded)
    return Comparison(
        [
            Subject(
                label,
                checkpoint,
                _metrics(checkpoint),
                measure.test(file, checkpoint),
                measure.hessian(file, checkpoint, **recipe.spectrum),
                measure.surface(file, checkpoint, **recipe.surface),
            )
            for label, (file, checkpoint, measure) in zip(distinct_labels(loaded), models, strict=True)
        ]
    )


def _share(value: float | None) -> Share | None:
    return None if value is None else Share(value)


def written(option: str, out: Path, *, paper: bool = False) -> list[Output]:
    """The files that :func:`compare` writes into a folder, for the check before the work."""
    table = ("model", "round", "test accuracy")
    files = [Output(option, out / "compare.txt", "text", table), Output(option, out / "compare.csv", "csv", table)]
    drawn = [Output(option, out / f"compare.{kind}", "picture") for kind in ("pdf", "svg")]
    return [*pictures(option, out / "compare.png", paper=paper), *drawn, *files]


def _require_number(count: int) -> None:
    if not 2 <= count <= _MOST:
        raise FedscapeError(f"{count} checkpoints are given: compare 2 to {_MOST}")


def require_one_data_set(loaded: Sequence[Checkpoint]) -> None:
    """Refuse checkpoints of different data.

    Raises:
        FedscapeError: they are.
    """
    data = sorted({str(checkpoint.data.get("name")) for checkpoint in loaded})
    if len(data) > 1:
        raise FedscapeError(f"the checkpoints are of different data ({', '.join(data)}): compare those of one data set")


def _metrics(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    files = [] if checkpoint.foreign else run_files(checkpoint.path, "metrics.jsonl")
    return [m for file in files[:1] for m in RunDirectory(file.parent).metrics() if m["round"] <= checkpoint.round]
