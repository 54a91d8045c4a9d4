"""Draw surfaces as the kind of figure that is asked for, or that fits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from matplotlib.figure import Figure

from analysis.surface.plots.captions import Quantity
from analysis.surface.plots.lines import plot_lines
from analysis.surface.plots.panels import PanelKind, plot_surfaces, plot_three
from analysis.surface.plots.reliefs import plot_reliefs, plot_superimposed
from analysis.surface.plots.scales import ScaleKind
from landscape import FedscapeError

if TYPE_CHECKING:
    from analysis.surface.values import Surface

FigureKind = Literal["auto", "contours", "heatmap", "relief", "superimposed", "line"]


def draw(
    surfaces: Sequence[Surface],
    labels: Sequence[str] | None = None,
    kind: FigureKind = "auto",
    scale: ScaleKind = "auto",
    quantity: Quantity | None = None,
) -> Figure:
    """Draw surfaces in one figure, with their test data where all have them.

    Args:
        surfaces: of one loss and one split.
        labels: one for each; ``None``: the shortest that differ.
        kind: ``contours``, ``heatmap`` or ``relief``, a panel each; ``superimposed``: the first as a grid over each of
            the others; ``line`` for lines.  ``auto``: lines as lines, planes as contours, a single plane of three
            models as its training loss beside its test error where it has test data of classes.
        scale: of the loss: ``linear``, ``log``, or ``auto``.
        quantity: draw this alone: ``loss``, ``accuracy``, ``error`` or ``lambda_max``.

    Raises:
        FedscapeError: a quantity that was not measured, an unknown kind or one that these surfaces cannot have,
            surfaces that cannot share a scale.
    """
    only = None if quantity is None else [quantity]
    check_figure(kind, len(surfaces), line=any(surface.is_line for surface in surfaces))
    if kind == "line" or (kind == "auto" and surfaces and surfaces[0].is_line):
        return plot_lines(surfaces, labels, scale, only)
    if kind == "relief":
        return plot_reliefs(surfaces, labels, quantity=quantity, scale=scale)
    if kind == "superimposed":
        return plot_superimposed(surfaces, labels, quantity=quantity or "loss", scale=scale)
    test = surfaces[0].test if len(surfaces) == 1 and surfaces[0].kind == "three" else None
    if kind == "auto" and quantity is None and test is not None and test.accuracy is not None:
        return plot_three(surfaces[0], test, scale, None if labels is None else labels[0])
    maps: PanelKind = "heatmap" if kind == "heatmap" else "contours"
    return plot_surfaces(surfaces, labels, kind=maps, quantities=only, scale=scale)


def check_figure(kind: str, count: int, *, line: bool) -> None:
    """Refuse, before anything is measured, a kind of figure that so many planes or lines cannot have.

    Raises:
        FedscapeError: an unknown kind, a line drawn as a plane or a plane as a line, nothing to superimpose on.
    """
    if kind not in get_args(FigureKind):
        raise FedscapeError(f"unknown kind of figure '{kind}': give {', '.join(get_args(FigureKind))}")
    if kind == "line" and not line:
        raise FedscapeError("a plane is no line: draw it as contours")
    if kind not in ("auto", "line") and line:
        raise FedscapeError(f"a line has no second axis and cannot be drawn as '{kind}': draw it as a line")
    if kind == "superimposed" and count < 2:
        raise FedscapeError("one surface has nothing to be superimposed on: give two or more")
