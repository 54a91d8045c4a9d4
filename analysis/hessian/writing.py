"""The files that ``python -m analysis.hessian`` writes and reads again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.hessian.command import Command
from analysis.hessian.report import HessianReport, comparison_table
from landscape import FedscapeError
from landscape.storage.files import atomic_write, write_json, write_text


def read_numbers(path: Path) -> list[dict[str, Any]]:
    """What a JSON file of this command says of each checkpoint, fit for :meth:`HessianReport.from_dict`.

    Raises:
        FedscapeError: it cannot be read or is none.
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


def write_numbers(
    command: Command, reports: Sequence[HessianReport], numbers: list[dict[str, Any]], files: Sequence[Path | None]
) -> None:
    """Print the comparison of several reports; write all numbers to the JSON files, and the table where asked for.

    Raises:
        FedscapeError: a file cannot be written.
    """
    table = comparison_table(reports)
    if len(reports) > 1:
        print(table)
    contents = numbers[0] if len(numbers) == 1 else {"checkpoints": numbers}
    for file in files:
        if file is not None:
            write_json(file, contents)
            print(f"numbers: {file}")
    if command.output.csv is not None:
        write_text(command.output.csv, table.csv())
        print(f"table: {command.output.csv}")


def write_arrays(path: Path, reports: Sequence[HessianReport]) -> None:
    """Write the reports' arrays as ``.npz``: ``0_eigenvalues``, ``0_residuals``, ``0_density_grid``, ...

    Raises:
        FedscapeError: it cannot be written.
    """
    arrays: dict[str, Any] = {}
    for i, report in enumerate(reports):
        arrays |= {f"{i}_eigenvalues": report.eigen.values, f"{i}_residuals": report.eigen.residuals}
        if report.density is not None:
            for name in ("grid", "values", "stderr", "nodes", "weights"):
                arrays[f"{i}_density_{name}"] = getattr(report.density, name)
    with atomic_write(path) as file:
        np.savez(file, **arrays)


def save_picture(command: Command, out: Path, paths: Sequence[Path], reports: Sequence[HessianReport]) -> None:
    """Draw ``hessian.png``: the spectra on common axes, or with ``--rounds`` their curves over each run's rounds.

    Raises:
        FedscapeError: it cannot be written, or the curves' checkpoints are no rounds/NNNNN.pt.
    """
    from analysis.hessian.plots.spectrum import plot_rounds, plot_spectra
    from landscape.storage.pictures import save_figure

    picture = out / "hessian.png"
    if command.rounds:
        runs: dict[str, list[tuple[int, HessianReport]]] = {}
        for file, report in zip(paths, reports, strict=True):
            if not file.stem.isdigit():
                raise FedscapeError(f"{file} is none of a run's rounds/NNNNN.pt: leave out --rounds")
            runs.setdefault(file.parent.parent.name, []).append((int(file.stem), report))
        figure = plot_rounds(runs)
    else:
        figure = plot_spectra(reports, None, command.output.eigenvalue_axis, command.output.density_axis)
    save_figure(figure, picture)
    print(f"plot: {picture}")
