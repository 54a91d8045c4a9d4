"""The files that ``python -m analysis.hessian`` writes and reads again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from analysis.hessian.client_results import ClientCurves
from analysis.hessian.report import MATRICES, DensityAxis, EigenvalueAxis, HessianReport
from analysis.hessian.spectrum.operators import Product
from analysis.hessian.spectrum.wanted import Which
from analysis.hessian.supplements import Supplement
from landscape import FedscapeError
from landscape.storage.files import atomic_write, write_json
from landscape.storage.reading import parse_json, read_text
from landscape.storage.schema import (
    Agree,
    Items,
    Keyed,
    Maybe,
    Number,
    OneOf,
    Record,
    Row,
    Table,
    Text,
    Truth,
    Wrong,
    require,
)
from landscape.storage.style import PictureStyle, StyleName

_REAL = Number(-1e60, 1e60)
"""A number whose powers, up to the fourth, arithmetic can hold."""
_COUNT, _ANY = Number(0, 1 << 60, whole=True), Maybe(_REAL)
"""Numbers that are not finite are null in a JSON file."""
_LIST = Items(_ANY, least=1, most=100_000)


def _named(text: Any, place: str) -> None:
    """A rule: the name of a ratio, such as ``1/5``."""
    if not isinstance(text, str) or not re.fullmatch(r"[1-9]\d{0,5}/[1-9]\d{0,5}", text):
        raise Wrong(place, text, "a ratio such as 1/5")


_TRACE = Record(
    {"value": _REAL, "stderr": Number(0, 1e60), "probes": _COUNT, "products": _COUNT, "deflated": _COUNT},
    {"degrees": _ANY, "tolerance": _ANY, "converged": Maybe(Truth())},
    extra=False,
)
_DENSITY = Agree(
    Agree(
        Record(
            {
                "grid": Items(_REAL, least=2, most=1_000_000),
                "values": Items(_REAL, least=2),
                "stderr": Items(_REAL, least=2),
                "width": Number(0, 1e60),
                "nodes": Table(_REAL),
                "weights": Table(_REAL),
                "products": _COUNT,
            },
            {
                "atoms": Items(_REAL, most=1_000_000), "dimension": Maybe(Number(1, 1 << 60, whole=True)),
                "quadrature": Items(_REAL), "tolerance": _ANY, "converged": Maybe(Truth()),
            },
        ),
        ("grid", "values", "stderr"),
    ),
    ("nodes", "weights"),
)  # fmt: skip
_SAMPLING = Agree(
    Record(
        {
            "samples": Number(1, whole=True), "population": Number(1, whole=True), "held_out": _COUNT, "low": _LIST,
            "high": _LIST, "trace": Maybe(Row((_ANY, _ANY))), "loss_stderr": _ANY, "evenness": _LIST,
            "products": _COUNT, "sizes": Items(_COUNT),
        },
        {"tolerance": _ANY, "accuracy_stderr": _ANY},
        extra=False,
    ),
    ("low", "high", "evenness"),
)  # fmt: skip
REPORT = Agree(
    Record(
        {
            "title": Text(),
            "eigenvalues": Items(_REAL, least=1, most=100_000),
            "residuals": _LIST,
            "error_bounds": _LIST,
            "converged": Items(Truth(), least=1),
            "eigen_hvps": _COUNT,
            "trace": Maybe(_TRACE),
            "density": Maybe(_DENSITY),
            "loss": _REAL,
            "accuracy": _ANY,
            "split": Text(1000),
            "samples": Number(1, whole=True),
            "parameters": Number(1, 1 << 60, whole=True),
            "dtype": OneOf(("float32", "float64", "tf32", "float16", "bfloat16")),
            "device": Text(1000),
            "hvps": _COUNT,
            "seconds": Number(0),
        },
        {
            "which": OneOf(get_args(Which)),
            "matrix": OneOf(tuple(MATRICES)),
            "product": OneOf(get_args(Product)),
            "weight_decay": Number(),
            "man": Number(),
            "block": Items(Text(1000)),
            "ratios": Keyed(_named, _ANY),
            "sampling": Maybe(_SAMPLING),
            "refinement": Maybe(Record({"products": _COUNT, "noise": Number(0)}, extra=False)),
            "step_comparison": Maybe(Record({"products": _COUNT, "difference": Number(0)}, extra=False)),
            "search_hvps": _COUNT,
            "search_missed": _ANY,
            "asymmetry": _ANY,
            "checkpoint": Text(),
        },
    ),
    ("eigenvalues", "residuals", "error_bounds", "converged"),
)
"""What the numbers of one checkpoint must be (:meth:`HessianReport.to_dict`)."""


def read_numbers(path: Path) -> list[dict[str, Any]]:
    """The entries of a JSON file of this command, one for each checkpoint, fit for :meth:`HessianReport.from_dict`.

    Raises:
        FedscapeError: the file cannot be read or is none.
    """
    wanted = "give a file that --json or --out wrote"
    contents = parse_json(read_text(path), f"{path} is no Hessian report ({wanted}), and")
    several = isinstance(contents, dict) and "checkpoints" in contents
    entries = contents["checkpoints"] if several else [contents]
    require(entries, Items(REPORT, least=1), f"{path} holds no Hessian report ({wanted}), or")
    return [{"checkpoint": str(path), **entry} for entry in entries]


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
