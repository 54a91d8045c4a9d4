"""An interactive page of loss surfaces: one HTML file that loads nothing else."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.surface.plots.captions import (
    WORDS,
    axis_labels,
    by_split,
    caption_of,
    check_comparable,
    computed_mask,
    interpolated_mask,
    label_of,
    line_labels,
    title_of,
    to_scale,
)
from analysis.surface.plots.panels import quantities_of, signs
from analysis.surface.plots.scales import Scale, ScaleKind
from landscape import FedscapeError
from landscape.storage.files import write_text

if TYPE_CHECKING:
    from analysis.surface.values import Surface

_HERE = Path(__file__).parent


def save_page(
    surfaces: Sequence[Surface],
    path: str | Path,
    labels: Sequence[str] | None = None,
    scale: ScaleKind = "auto",
) -> None:
    """Write the page of :func:`page`, atomically.

    Raises:
        FedscapeError: as :func:`page` does; the file cannot be written.
    """
    check_page(path)
    write_text(path, page(surfaces, labels, scale))


def check_page(path: str | Path) -> None:
    """Refuse, before anything is measured, a file that cannot be written as a page.

    Raises:
        FedscapeError: the name ends neither in .html nor in .htm, or Plotly is not installed.
    """
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise FedscapeError(f"{path} is no name of a page: end it in .html")
    plotly_script()


def page(surfaces: Sequence[Surface], labels: Sequence[str] | None = None, scale: ScaleKind = "auto") -> str:
    """The page as HTML, with the data and Plotly in it: a relief that can be turned, a map or lines.

    The value of each point is shown under the pointer.  A form switches between relief and map, loss, accuracy and
    λ_max, linear and logarithmic scale, training and test data where all have both (lines show both); each of several
    surfaces is shown solid, as a grid or not at all.  A content security policy forbids the page to load anything.

    Args:
        surfaces: planes or lines of one loss and one split.
        labels: one for each; ``None``: the shortest that differ.
        scale: of the loss when the page is opened.

    Raises:
        FedscapeError: Plotly is not installed; nothing to draw, surfaces that differ in loss or split, planes
            together with lines, a logarithmic scale of values that cannot have one.
    """
    names = check_comparable(surfaces, labels)
    if len({surface.is_line for surface in surfaces}) > 1:
        raise FedscapeError("lines and planes do not fit one page: make one of each")
    if labels is None and surfaces[0].is_line:
        names = line_labels(surfaces)
    splits = by_split(surfaces)
    losses = np.concatenate([surface.loss.ravel() for split in splits for surface in split])
    finite = losses[np.isfinite(losses)]
    wanted = Scale.of(losses, scale)
    logarithmic = Scale.of(finite, "log") if finite.size and finite.min() >= 0 and finite.max() > 0 else None
    quantities, both = quantities_of(surfaces), [surface for split in splits for surface in split]
    title = title_of(surfaces)
    contents: dict[str, Any] = {
        "surfaces": [
            {**_data(surfaces[k], name), "values": [_values(split[k], surfaces[k]) for split in splits]}
            for k, name in enumerate(names)
        ],
        "quantities": list(quantities),
        "splits": [split[0].split_word for split in splits],
        "words": WORDS,
        "labels": [{q: label_of(surfaces if q == "lambda_max" else split, q) for q in quantities} for split in splits],
        "common_labels": {q: label_of(surfaces if q == "lambda_max" else both, q) for q in quantities},
        "to_scale": all(to_scale(surface) for surface in surfaces),
        "scale": "log" if wanted is not None and wanted.logarithmic else "linear",
        "log": logarithmic.levels[[0, -1]].tolist() if logarithmic is not None and logarithmic.logarithmic else None,
    }
    return Template((_HERE / "page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(title.replace("\n", ", ")),
        heading=html.escape(title).replace("\n", "<br>"),
        caption=html.escape(caption_of(surfaces) + _models(surfaces)),
        # Without '<', no text in the data can end the script element that holds it.
        data=json.dumps(contents, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        plotly=plotly_script(),
        script=(_HERE / "page.js").read_text(encoding="utf-8"),
    )


def plotly_script() -> str:
    """Plotly's JavaScript, from its Python package.

    Raises:
        FedscapeError: it is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise FedscapeError(
            "interactive pages need Plotly, which is not installed: pip install 'fedscape[html]'"
        ) from None
    return str(get_plotlyjs())


def _data(surface: Surface, label: str) -> dict[str, Any]:
    """What the splits of a surface have in common, as JSON."""
    estimated = "" if surface.estimated_error is None else f"{100 * surface.estimated_error:.3g} %"
    return {
        "label": label,
        "line": surface.is_line,
        "axes": axis_labels(surface),
        "x": surface.x.tolist(),
        "y": surface.y.tolist(),
        "measured": computed_mask(surface).astype(int).tolist(),
        "estimated": estimated or ("unknown" if interpolated_mask(surface).any() else ""),
        "marks": [vars(mark) for mark in surface.marks] or [{"label": "", "x": 0.0, "y": 0.0}],
        "trajectory": None if surface.trajectory is None else surface.trajectory.tolist(),
        "checkpoint": surface.provenance.checkpoint,
    }


def _values(surface: Surface, first: Surface) -> dict[str, list[list[float | None]] | None]:
    """The values of one split, without rounding, ``null`` where one is not finite; λ_max is that of ``first``."""
    return {
        "loss": _rows(surface.loss),
        "accuracy": None if surface.accuracy is None else _rows(100 * surface.accuracy),
        "loss_stderr": None if surface.loss_stderr is None else _rows(surface.loss_stderr),
        "accuracy_stderr": None if surface.accuracy_stderr is None else _rows(100 * surface.accuracy_stderr),
        "lambda_max": None if first.lambda_max is None else _rows(first.lambda_max),
    }


def _rows(values: np.ndarray) -> list[list[float | None]]:
    return [[value if np.isfinite(value) else None for value in row] for row in values.tolist()]


def _models(surfaces: Sequence[Surface]) -> str:
    """What the marks and dots mean."""
    interpolated = any(interpolated_mask(surface).any() for surface in surfaces)
    if surfaces[0].is_line:
        tests = "; solid: training, dashed: test" if len(by_split(surfaces)) > 1 else ""
        return "; dotted: the models" + tests + ("; rings: interpolated" if interpolated else "")
    dots = "; small dots on the map: measured" if interpolated else ""
    return "; ".join(["", *signs(surfaces)]) + dots
