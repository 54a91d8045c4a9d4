"""Loss surfaces for ParaView: a structured grid as text, XML (``.vts``) or legacy (``.vtk``).

All points have z = 0, and the values are scalars on them, exactly as they were measured:
ParaView's *Warp By Scalar* raises the relief, by ``loss`` or by ``log10_loss``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.surface.plots.captions import caption_of, computed_mask, marks_of, title_of
from landscape import FedscapeError
from landscape.storage.files import write_text
from landscape.storage.outputs import PRODUCER

if TYPE_CHECKING:
    from analysis.surface.values import Surface


def check_vtk(path: str | Path) -> None:
    """Refuse a file that is not named as VTK's files are.

    Raises:
        FedscapeError: the name ends neither in .vts nor in .vtk.
    """
    if Path(path).suffix.lower() not in (".vts", ".vtk"):
        raise FedscapeError(f"{path} is no kind of VTK file: end it in .vts (XML) or .vtk (legacy)")


def save_vtk(surface: Surface, path: str | Path) -> None:
    """Write a surface for ParaView, VTK or PyVista, atomically.

    Point data: ``loss``, ``log10_loss``, ``accuracy`` (a fraction), standard errors and ``lambda_max``, where they are
    known; the same of the test data, where they were measured too, as ``test_loss`` and so on; ``measured`` (1) against
    interpolated or missing (0).  The models are a file of their own (:func:`save_vtk_models`).

    Raises:
        FedscapeError: a name that ends neither in .vts nor in .vtk, or a file that cannot be written.
    """
    check_vtk(path)
    legacy = Path(path).suffix.lower() == ".vtk"
    write_text(path, _legacy(surface) if legacy else _xml(surface))


def save_vtk_models(surface: Surface, path: str | Path) -> None:
    """Write the models and the trajectory of a surface as legacy VTK points and a line; ``model`` numbers the models.

    Raises:
        FedscapeError: a name that does not end in .vtk, or a file that cannot be written.
    """
    if Path(path).suffix.lower() != ".vtk":
        raise FedscapeError(f"{path}: models are written as legacy VTK, end the name in .vtk")
    models = marks_of(surface)
    marks = [(mark.x, mark.y) for mark in models]
    way = [] if surface.trajectory is None else [(float(x), float(y)) for x, y in surface.trajectory]
    labels = "; ".join(f"{i}: {mark.label}" for i, mark in enumerate(models))
    lines = ["# vtk DataFile Version 3.0", _one_line(f"{PRODUCER}: models {labels}"), "ASCII", "DATASET POLYDATA"]
    lines.append(f"POINTS {len(marks) + len(way)} double")
    lines += [f"{x!r} {y!r} 0" for x, y in marks + way]
    lines += [f"VERTICES {len(marks)} {2 * len(marks)}", *(f"1 {i}" for i in range(len(marks)))]
    if way:
        numbers = " ".join(str(len(marks) + i) for i in range(len(way)))
        lines += [f"LINES 1 {len(way) + 1}", f"{len(way)} {numbers}"]
    lines += [f"POINT_DATA {len(marks) + len(way)}", "SCALARS model int 1", "LOOKUP_TABLE default"]
    lines += [str(i if i < len(marks) else -1) for i in range(len(marks) + len(way))]
    write_text(path, "\n".join(lines) + "\n")


def _arrays(surface: Surface) -> dict[str, np.ndarray]:
    """Point data by name, [ny, nx]: x runs fastest, as in VTK."""
    tests = {} if surface.test is None else {f"test_{name}": array for name, array in _values(surface.test).items()}
    return _values(surface) | tests | {"measured": computed_mask(surface).astype(np.uint8)}


def _values(surface: Surface) -> dict[str, np.ndarray]:
    """The arrays of one split."""
    with np.errstate(divide="ignore", invalid="ignore"):
        arrays = {"loss": surface.loss, "log10_loss": np.log10(surface.loss)}
    optional = {
        "accuracy": surface.accuracy,
        "loss_stderr": surface.loss_stderr,
        "accuracy_stderr": surface.accuracy_stderr,
        "lambda_max": surface.lambda_max,
    }
    return arrays | {name: values for name, values in optional.items() if values is not None}


def _points(surface: Surface) -> str:
    return "\n".join(f"{x!r} {y!r} 0" for y in surface.y.tolist() for x in surface.x.tolist())


def _numbers(values: np.ndarray) -> str:
    """One line for each row of the grid; ``repr`` rounds nothing."""
    return "\n".join(" ".join(map(repr, row)) for row in values.tolist())


def _one_line(text: str) -> str:
    """``text`` as the title of a legacy file: one line of printable ASCII, 255 characters at most."""
    return " ".join(text.split()).encode("ascii", "replace").decode()[:255]


def _legacy(surface: Surface) -> str:
    nx, ny = len(surface.x), len(surface.y)
    lines = [
        "# vtk DataFile Version 3.0",
        _one_line(f"{PRODUCER}: {title_of([surface])}; {caption_of([surface])}"),
        "ASCII",
    ]
    lines += ["DATASET STRUCTURED_GRID", f"DIMENSIONS {nx} {ny} 1", f"POINTS {nx * ny} double", _points(surface)]
    lines.append(f"POINT_DATA {nx * ny}")
    for name, values in _arrays(surface).items():
        kind = "unsigned_char" if values.dtype == np.uint8 else "double"
        lines += [f"SCALARS {name} {kind} 1", "LOOKUP_TABLE default", _numbers(values)]
    return "\n".join(lines) + "\n"


def _xml(surface: Surface) -> str:
    extent = f"0 {len(surface.x) - 1} 0 {len(surface.y) - 1} 0 0"
    recipe = " ".join(str(code) for code in [*f"{title_of([surface])}; {caption_of([surface])}".encode(), 0])
    lines = [
        '<?xml version="1.0"?>',
        f"<!-- {PRODUCER} -->",
        '<VTKFile type="StructuredGrid" version="0.1" byte_order="LittleEndian">',
        f'<StructuredGrid WholeExtent="{extent}">',
        f'<FieldData><Array type="String" Name="recipe" NumberOfTuples="1" format="ascii">{recipe}</Array></FieldData>',
        f'<Piece Extent="{extent}">',
        '<PointData Scalars="loss">',
    ]
    for name, values in _arrays(surface).items():
        kind = "UInt8" if values.dtype == np.uint8 else "Float64"
        lines.append(f'<DataArray type="{kind}" Name="{name}" format="ascii">\n{_numbers(values)}\n</DataArray>')
    lines += [
        "</PointData>",
        '<Points><DataArray type="Float64" NumberOfComponents="3" format="ascii">',
        _points(surface),
        "</DataArray></Points>",
        "</Piece></StructuredGrid></VTKFile>",
    ]
    return "\n".join(lines) + "\n"
