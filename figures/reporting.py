"""Models measured alike, and the report page of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.surface.plots.page import check_page
from figures.report import Origin, Subject, contents, grouped, labelled, report_page
from figures.runs import open_run
from landscape import FedscapeError
from landscape.storage.files import write_text

_OPENING = ("model", "data", "data_dir", "normalise", "key", "loader", "device", "store")


def write_report(
    checkpoints: Sequence[str | Path],
    out: str | Path,
    *,
    top: int = 10,
    points: int = 21,
    span: float = 1.0,
    surfaces: bool = True,
    trace_tolerance: float = 0.02,
    trace_probes: int = 100,
    probes: int = 8,
    steps: int = 40,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    command: str = "",
    progress: bool = False,
) -> list[Subject]:
    """Measure models in the same way and write one page of them, which needs no network.

    Runs that differ in their seed alone are one group; the verdict compares each group with the first.

    Args:
        checkpoints: run directories (their last models) or checkpoints of one data set.
        out: the page, ``.html``.  Measurements are kept in a folder of its name without the ending: the next call
            reads them again, and continues those that were interrupted.
        top: how many eigenvalues.
        points, span: of the loss surfaces, as in :func:`analysis.measure_surface`.
        surfaces: whether to measure them.
        trace_tolerance: standard error wanted of the trace, as a share of it.
        trace_probes: random probes of the trace at most.
        probes, steps: of the spectral densities.
        seed: of all random vectors; the surfaces share their random numbers.
        options: of :func:`figures.open_run` and of the data (``samples``, ``split``, ``device``, ...).
        command: what makes the page again, to be told in it.
        progress: show progress on stderr.

    Raises:
        FedscapeError: no model, models of different data, one that cannot be loaded or measured; Plotly is not
            installed; the page cannot be written.
    """
    out = Path(out)
    check_page(out)
    spectrum = {
        "top": top,
        "trace_tolerance": trace_tolerance,
        "trace_probes": trace_probes,
        "density": True,
        "density_probes": probes,
        "density_steps": steps,
        "seed": seed,
    }
    subjects = measured(
        checkpoints,
        options={**(options or {}), "store": out.with_suffix("")},
        spectrum=spectrum,
        surface={"points": points, "span": span, "exact": True, "seed": seed} if surfaces else None,
        progress=progress,
    )
    write_text(out, report_page(contents(subjects, command)))
    return subjects


def measured(
    paths: Sequence[str | Path],
    *,
    options: Mapping[str, Any],
    spectrum: Mapping[str, Any],
    surface: Mapping[str, Any] | None,
    progress: bool,
) -> list[Subject]:
    """Measure models, or read what is kept of them.

    Args:
        paths: run directories or checkpoints.
        options: of :func:`figures.open_run`, and of the data (``samples``, ``split``, ``dtype``, ...).
        spectrum, surface: what to measure; no surface with ``None``.
        progress: show progress on stderr.

    Raises:
        FedscapeError: no model, one given twice, models of different data, one that cannot be loaded or measured.
    """
    opening = {name: value for name, value in options.items() if name in _OPENING}
    rest = {name: value for name, value in options.items() if name not in _OPENING}
    opened = [open_run(path, **opening) for path in paths]
    if not opened:
        raise FedscapeError("a report is of at least one model: give run directories or checkpoints")
    names = sorted({str(run.checkpoint.data.get("name")) for run in opened})
    if len(names) > 1:
        raise FedscapeError(f"the models are of different data ({', '.join(names)}): give those of one")
    files = [str(Path(run.file).resolve()) for run in opened]
    if twice := [file for file in files if files.count(file) > 1]:
        raise FedscapeError(f"{twice[0]} is given twice")
    origins = [Origin(run.file, run.checkpoint, run.run, run.algorithm, run.settings) for run in opened]
    groups = grouped(origins)
    arithmetic = {name: value for name, value in rest.items() if name in ("dtype", "batch_size", "stream")}
    found: list[Subject] = []
    for run, origin, group, label in zip(opened, origins, groups, labelled(origins, groups), strict=True):
        if progress:
            print(f"{len(found) + 1} of {len(opened)}: {label}", file=sys.stderr)
        test = run.landscape(split="test", **arithmetic).evaluate()
        report = run.spectrum(progress=progress, **rest, **spectrum)
        around = None if surface is None else run.surface(progress=progress, **rest, **surface)
        found.append(Subject(label, group, origin, test, report, around))
    return found
