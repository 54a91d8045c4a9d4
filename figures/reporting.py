"""Models measured alike, and the report page of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.source import Source
from analysis.surface.plots.page import check_page
from figures.alike import Recipe
from figures.comparison import require_one_data_set
from figures.graph import Store
from figures.measurements import Measurements
from figures.report import Origin, Subject, contents, grouped, named, report_page
from figures.runs import open_run
from landscape import FedscapeError
from landscape.storage.files import write_text


def write_report(
    checkpoints: Sequence[str | Path],
    out: str | Path,
    recipe: Recipe | None = None,
    *,
    source: Source | None = None,
    surfaces: bool = True,
    command: str = "",
    progress: bool = False,
) -> list[Subject]:
    """Measure models in the same way and write one page of them, which needs no network.

    Runs that differ in their seed alone are one group; the verdict compares each group with the first.

    Args:
        checkpoints: run directories (their last models) or checkpoints of one data set.
        out: the page, ``.html``.  Measurements are kept in a folder of its name without the ending: the next call
            reads them again, and continues those that were interrupted.
        recipe: what is measured.
        source: data, device and arithmetic.
        surfaces: whether to measure surfaces.
        command: what makes the page again, to be told in it.
        progress: show progress on stderr.

    Raises:
        FedscapeError: no model, models of different data, one that cannot be loaded or measured; Plotly is not
            installed; the page cannot be written.
    """
    out = Path(out)
    check_page(out)
    given = source or Source()
    subjects = measured(
        checkpoints, out.with_suffix(""), recipe or Recipe(), given, surfaces=surfaces, progress=progress
    )
    write_text(out, report_page(contents(subjects, command)))
    return subjects


def measured(
    paths: Sequence[str | Path],
    folder: str | Path,
    recipe: Recipe,
    source: Source,
    *,
    surfaces: bool = True,
    progress: bool = False,
) -> list[Subject]:
    """Measure models, or read what is kept of them.

    Args:
        paths: run directories or checkpoints.
        folder: where measurements are kept, in ``measurements``.
        recipe, source, surfaces, progress: as in :func:`write_report`.

    Raises:
        FedscapeError: no model, one given twice, models of different data, one that cannot be loaded or measured.
    """
    opened = [open_run(path, **source.naming, device=source.device) for path in paths]
    if not opened:
        raise FedscapeError("a report is of at least one model: give run directories or checkpoints")
    require_one_data_set([run.checkpoint for run in opened])
    files = [str(Path(run.file).resolve()) for run in opened]
    if twice := [file for file in files if files.count(file) > 1]:
        raise FedscapeError(f"{twice[0]} is given twice")
    origins = [Origin(run.file, run.checkpoint, run.run, run.algorithm, run.settings) for run in opened]
    groups = grouped(origins)
    measure = Measurements(Store(Path(folder)), source, recipe.seed, progress)
    found: list[Subject] = []
    for origin, group, label in zip(origins, groups, named(origins, groups), strict=True):
        if progress:
            print(f"{len(found) + 1} of {len(opened)}: {label}", file=sys.stderr)
        of = origin.file, origin.checkpoint
        around = measure.surface(*of, **recipe.surface) if surfaces else None
        found.append(Subject(label, group, origin, measure.test(*of), measure.hessian(*of, **recipe.spectrum), around))
    return found
