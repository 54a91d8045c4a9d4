"""The files that ``python -m analysis.hessian`` writes and reads again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.hessian.client_results import ClientCurves
from analysis.hessian.report import DensityAxis, EigenvalueAxis, HessianReport
from analysis.hessian.supplements import Supplement
from landscape import FedscapeError
from landscape.storage.files import atomic_write, write_json
from landscape.storage.style import PictureStyle, StyleName


def read_numbers(path: Path) -> list[dict[str, Any]]:
    """The entries of a JSON file of this command, one for each checkpoint, fit for :meth:`HessianReport.from_dict`.

    Raises:
        FedscapeError: the file cannot be read or is none.
    """
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FedscapeError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise FedscapeError(f"{path} is no JSON file: give one that --json or --out wrote ({error})") from error
    try:
        entries = [{"checkpoint": str(path), **entry} for entry in contents.get("checkpoints", [contents])]
        for entry in entries:
            HessianReport.from_dict(entry)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FedscapeError(f"{path} holds no Hessian report: give a file that --json or --out wrote") from error
    return entries


def write_numbers(path: Path, entries: list[dict[str, Any]]) -> None:
    """Write the numbers of one checkpoint or several as JSON.

    Raises:
        FedscapeError: the file cannot be written.
    """
    write_json(path, entries[0] if len(entries) == 1 else {"checkpoints": entries})


def write_arrays(path: Path, reports: Sequence[HessianReport]) -> None:
    """Write the reports' arrays as ``.npz``: ``0_eigenvalues``, ``0_residuals``, ``0_error_bounds``, ...

    Raises:
        FedscapeError: the file cannot be written.
    """
    arrays: dict[str, Any] = {}
    for i, report in enumerate(reports):
        eigen = report.eigen
        named = {"eigenvalues": eigen.values, "residuals": eigen.residuals, "error_bounds": eigen.bounds}
        arrays |= {f"{i}_{name}": values for name, values in named.items()}
        if report.density is not None:
            for name in ("grid", "values", "stderr", "band", "nodes", "weights", "atoms"):
                arrays[f"{i}_density_{name}"] = getattr(report.density, name)
    with atomic_write(path) as file:
        np.savez(file, **arrays)


def save_spectra(
    path: Path,
    reports: Sequence[HessianReport],
    eigenvalue_axis: EigenvalueAxis = "auto",
    density_axis: DensityAxis = "log",
    style: PictureStyle | StyleName = "screen",
) -> None:
    """Draw the spectra on common axes.

    Raises:
        FedscapeError: the file cannot be written.
    """
    from analysis.hessian.plots.spectrum import plot_spectra
    from landscape.storage.pictures import draw_picture

    draw_picture(lambda: plot_spectra(reports, None, eigenvalue_axis, density_axis), path, style)


def save_rounds(
    path: Path,
    checkpoints: Sequence[Path],
    reports: Sequence[HessianReport],
    style: PictureStyle | StyleName = "screen",
) -> None:
    """Draw curves over the rounds of each run that the checkpoints ``rounds/NNNNN.pt`` are of.

    Raises:
        FedscapeError: the file cannot be written, or a checkpoint is none of a run's ``rounds/NNNNN.pt``.
    """
    from analysis.hessian.plots.spectrum import plot_rounds
    from landscape.storage.pictures import draw_picture

    runs: dict[Path, list[tuple[int, HessianReport]]] = {}
    for file, report in zip(checkpoints, reports, strict=True):
        if not file.stem.isdigit():
            raise FedscapeError(f"{file} is none of a run's rounds/NNNNN.pt: leave out --rounds")
        runs.setdefault(file.parent.parent, []).append((int(file.stem), report))
    distinct = len({run.name for run in runs}) == len(runs)
    named = {run.name if distinct else str(run): points for run, points in runs.items()}
    draw_picture(lambda: plot_rounds(named), path, style)


def save_supplements(
    folder: Path,
    measured: Sequence[tuple[str, Sequence[Supplement]]],
    curves: Sequence[ClientCurves] = (),
    style: PictureStyle | StyleName = "screen",
) -> list[Path]:
    """Draw ``layers.png`` and ``clients.png`` of what was measured of them, all checkpoints on common axes.

    Args:
        folder: where to.
        measured: the label of each checkpoint, and its tables.
        curves: the clients over the rounds, drawn instead of those of each checkpoint on its own.
        style: for the screen or a paper.

    Returns:
        The files written.

    Raises:
        FedscapeError: a file cannot be written.
    """
    from analysis.hessian.plots.clients import plot_client_curves, plot_clients
    from analysis.hessian.plots.layers import plot_layers
    from landscape.storage.pictures import draw_picture

    results = [(label, {one.key: one.result for one in several}) for label, several in measured]
    written = []
    layers = [(label, found["layers"], found["activations"]) for label, found in results if "layers" in found]
    if layers:
        written.append(folder / "layers.png")
        draw_picture(lambda: plot_layers(layers), written[-1], style)
    clients = [found["clients"] for _, found in results if "clients" in found]
    if clients:
        written.append(folder / "clients.png")
        draw_picture(lambda: plot_client_curves(curves) if curves else plot_clients(clients), written[-1], style)
    return written
