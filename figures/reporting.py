"""Models measured alike, and the report page of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.source import Source
from analysis.surface.plots.page import check_page
from figures.alike import Panels, Recipe
from figures.comparison import require_one_data_set
from figures.expected import expected
from figures.graph import Store
from figures.measurements import Measurements
from figures.report import Origin, Subject, contents, grouped, named, read_alignments, report_page
from figures.runs import open_run
from landscape import FedscapeError
from landscape.several import several
from landscape.storage.files import write_text


def write_report(
    checkpoints: Sequence[str | Path] | str | Path,
    out: str | Path,
    recipe: Recipe | None = None,
    *,
    source: Source | None = None,
    panels: Panels | None = None,
    command: str = "",
    progress: bool = False,
) -> list[Subject]:
    """Measure models in the same way and write one page of them, which needs no network.

    Runs that differ in their seed alone are one group; the verdict compares each group with the first.

    Args:
        checkpoints: run directories (their last models) or checkpoints of one data set; one or several.
        out: the page, ``.html``.  Measurements are kept in a folder of its name without the ending: the next call
            reads them again, and continues those that were interrupted.
        recipe: what is measured.
        source: data, device and arithmetic.
        panels: what is shown beside verdict, training curves and spectra.
        command: what makes the page again, to be told in it.
        progress: say what there is to measure and how long it takes, and show progress on stderr.

    Raises:
        FedscapeError: no model, models of different data, one that cannot be loaded or measured; an alignment that is
            none, or of other models; Plotly is not installed; the page cannot be written.
    """
    out, panels = Path(out), panels or Panels()
    check_page(out)
    origins = opened(checkpoints, source or Source())
    aligned, others = read_alignments(panels.alignment, [one.checkpoint.digest() for one in origins])
    subjects = measured(
        origins, out.with_suffix(""), recipe or Recipe(), source or Source(), panels=panels, progress=progress
    )
    subjects = [replace(one, alignment=each) for one, each in zip(subjects, aligned, strict=True)]
    write_text(out, report_page(contents(subjects, command, others)))
    return subjects


def opened(paths: Sequence[str | Path] | str | Path, source: Source) -> list[Origin]:
    """Models with what is recorded of their runs.

    Args:
        paths: run directories or checkpoints, one or several.
        source: what files from elsewhere leave unsaid.

    Raises:
        FedscapeError: no model, one given twice, models of different data, one that cannot be loaded.
    """
    given: list[str | Path] = several(paths)
    runs = [open_run(path, **source.naming, device=source.device) for path in given]
    if not runs:
        raise FedscapeError("a report is of at least one model: give run directories or checkpoints")
    require_one_data_set([run.checkpoint for run in runs])
    files = [str(Path(run.file).resolve()) for run in runs]
    if twice := [file for file in files if files.count(file) > 1]:
        raise FedscapeError(f"{twice[0]} is given twice")
    return [Origin(run.file, run.checkpoint, run.run, run.algorithm, run.settings) for run in runs]


def measured(
    origins: Sequence[Origin],
    folder: str | Path,
    recipe: Recipe,
    source: Source,
    *,
    panels: Panels | None = None,
    progress: bool = False,
) -> list[Subject]:
    """Measure models, or read what is kept of them.

    Args:
        origins: the models (:func:`opened`).
        folder: where measurements are kept, in ``measurements``.
        recipe, source, panels, progress: as in :func:`write_report`.

    Raises:
        FedscapeError: a model that cannot be measured.
    """
    groups = grouped(origins)
    measure = Measurements(Store(Path(folder)), source, recipe.seed, progress)
    tasks = [dict(_tasks(origin, recipe, panels or Panels())) for origin in origins]
    if progress and (line := expected(measure, list(zip(origins, tasks, strict=True)))):
        print(line, file=sys.stderr)
    found: list[Subject] = []
    for origin, group, label, task in zip(origins, groups, named(origins, groups), tasks, strict=True):
        if progress:
            print(f"{len(found) + 1} of {len(origins)}: {label}", file=sys.stderr)
        of = origin.file, origin.checkpoint
        made = {name: measure.made(kind, *of, options) for name, (kind, options) in task.items()}
        missing = {}
        if "clients" not in (panels or Panels()).without and "clients" not in task:
            missing["clients"] = "the file names no partition, so nobody knows its clients"
        found.append(Subject(label, group, origin, measure.test(*of), **{"surface": None, **made}, missing=missing))
    return found


def _tasks(origin: Origin, recipe: Recipe, panels: Panels) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    """What is measured of a model beside its test: the subject's attribute, the kind of measurement, its options."""
    yield "report", ("hessian", recipe.spectrum)
    if "surfaces" not in panels.without:
        yield "surface", ("surface", recipe.surface)
    if "clients" not in panels.without and origin.checkpoint.data.get("partition"):
        yield "clients", ("clients", {"split": "train"})  # clients have no other data of their own
    if "layers" not in panels.without:
        yield "layers", ("layers", {})
    if panels.curvature_map is not None:
        yield "curvature_map", ("surface", recipe.curvature_map(panels.curvature_map))
