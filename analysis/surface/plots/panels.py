"""Pictures of loss surfaces: filled contours and heat maps; several side by side share axes, scale and colour bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Polygon
from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import FuncFormatter

from analysis.surface.plots.captions import (
    WORDS,
    Quantity,
    axis_labels,
    by_split,
    caption_of,
    check_comparable,
    computed_mask,
    interpolated_mask,
    label_of,
    marks_of,
    title_of,
    to_scale,
    values_of,
    wrapped,
)
from analysis.surface.plots.scales import Scale, ScaleKind
from analysis.surface.plots.smooth import ENOUGH, between
from landscape import FedscapeError
from landscape.storage.canvas import across, new_figure, panel_width, phrases, pt, stroke

if TYPE_CHECKING:
    from analysis.surface.values import Surface

PanelKind = Literal["contours", "heatmap"]

COLOUR_MAPS: dict[Quantity, str] = {
    "loss": "viridis",
    "accuracy": "cividis",
    "error": "cividis",
    "lambda_max": "magma",
}
"""Lightness increases along each, so that the order is the same in greyscale and for colour-blind readers."""

LABEL_BOX: dict[str, Any] = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
"""A box behind the labels of models, which can be read on any colour."""

MOST_LABELS = 12
"""With more models in a plane, their labels are left out."""


def draw_panel(
    ax: Axes, surface: Surface, values: np.ndarray, scale: Scale | None, colours: str, kind: PanelKind = "contours"
) -> Any:
    """Draw the values as seen from above, with the models; small dots are measured points, if others are interpolated.

    ``contours`` has a thin line at every fourth level, and between the points of a coarse grid what
    :func:`analysis.surface.plots.smooth.between` has (:func:`smoothed` says so in captions); ``heatmap`` has a cell
    around every point, without interpolation.

    Returns what :func:`draw_colour_bar` takes, or ``None`` where no value is finite.
    """
    drawn: tuple[Any, Any] | None = None
    ax.set_facecolor("0.8")
    ax.set(xlim=_reach(surface.x, kind), ylim=_reach(surface.y, kind))
    if scale is not None and np.isfinite(values).any():
        visible = np.ma.masked_invalid(values)
        if kind == "heatmap":
            cells = ax.pcolormesh(surface.x, surface.y, visible, cmap=colours, norm=scale.norm, shading="nearest")
            drawn = cells, None
        else:
            x, y, finer = between(
                surface.x, surface.y, np.ma.maximum(visible, scale.levels[0]).filled(np.nan), scale.norm
            )
            finer = np.ma.masked_invalid(finer)
            style: dict[str, Any] = {"levels": scale.levels, "norm": scale.norm}
            filled = ax.contourf(x, y, finer, cmap=colours, extend=scale.extend, **style)
            lines = ax.contour(x, y, finer, scale.levels[::4], colors="black", linewidths=0.4, alpha=0.6)
            drawn = filled, lines
    else:
        ax.text(0.5, 0.6, "no finite value", transform=ax.transAxes, ha="center")
    if interpolated_mask(surface).any():
        rows, columns = np.nonzero(computed_mask(surface))
        at = surface.x[columns], surface.y[rows]  # white with a black edge: visible on every colour
        ax.plot(*at, ".", markersize=pt(4), markerfacecolor="white", markeredgecolor="black", markeredgewidth=0.4)
    draw_models(ax, surface)
    ax.locator_params(nbins=5)
    ax.set_aspect("equal" if to_scale(surface) else "auto")
    across, up = axis_labels(surface)
    ax.set_xlabel(across, parse_math=False)
    ax.set_ylabel(up, parse_math=False)
    return drawn


def _reach(along: np.ndarray, kind: PanelKind) -> tuple[float, float]:
    """From the first point to the last; of a heat map, to the outer edges of their cells."""
    first, last = (along[1] - along[0], along[-1] - along[-2]) if kind == "heatmap" else (0.0, 0.0)
    return along[0] - first / 2, along[-1] + last / 2


def draw_models(ax: Axes, surface: Surface) -> None:
    """Draw the trajectory as a line that starts at a square, and the models as white dots with their labels."""
    outlined = [Stroke(linewidth=stroke(3), foreground="black"), Normal()]
    if surface.trajectory is not None:
        x, y = surface.trajectory.T
        ax.plot(x, y, "-", color="white", linewidth=stroke(1.4), path_effects=outlined, label="trajectory")
        ax.plot(x, y, ".", color="black", markersize=pt(3))
        ax.plot(x[:1], y[:1], "s", markersize=pt(7), markerfacecolor="white", markeredgecolor="black", zorder=3)
    marks = marks_of(surface)
    if surface.kind == "three":
        corners = [(mark.x, mark.y) for mark in marks]
        ax.add_patch(
            Polygon(corners, fill=False, linestyle="--", edgecolor="white", linewidth=stroke(1), path_effects=outlined)
        )
    ax.plot(
        [mark.x for mark in marks],
        [mark.y for mark in marks],
        "o",
        markersize=pt(6),
        markerfacecolor="white",
        markeredgecolor="black",
        label="models",
    )
    for mark in marks if 1 < len(marks) <= MOST_LABELS else ():  # the caption names a single model
        left = mark.x > 0.7 * surface.x[-1] + 0.3 * surface.x[0]
        below = mark.y > 0.85 * surface.y[-1] + 0.15 * surface.y[0]
        ax.annotate(
            mark.label,
            (mark.x, mark.y),
            (-7 if left else 7, -7 if below else 7),
            textcoords="offset points",
            ha="right" if left else "left",
            va="top" if below else "bottom",
            fontsize=pt(8),
            parse_math=False,
            annotation_clip=True,
            bbox=LABEL_BOX if mark.label else None,
        )


def draw_colour_bar(
    figure: Figure | SubFigure, axes: Sequence[Axes], drawn: Any, scale: Scale, label: str, **place: float
) -> None:
    """Draw one colour bar for all panels in ``axes``, which share ``scale``; ``drawn`` is what any of them shows.

    ``place`` is Matplotlib's ``pad``, ``fraction``, ``shrink``.
    """
    filled, lines = drawn
    options: dict[str, Any] = {"fraction": 0.046, "pad": 0.03, **place}
    if lines is None:  # filled contours have their own
        options["extend"] = scale.extend
    number = FuncFormatter(lambda value, _: f"{value:.4g}")
    bar = figure.colorbar(filled, ax=list(axes), ticks=scale.ticks, format=number, **options)
    bar.ax.minorticks_off()
    if lines is not None:
        bar.add_lines(lines)
    bar.set_label(phrases(scale.label(label), 42), parse_math=False)


def quantities_of(surfaces: Sequence[Surface]) -> tuple[Quantity, ...]:
    """The quantities that all surfaces have: loss, accuracy, λ_max."""
    found: list[Quantity] = ["loss"]
    if all(surface.accuracy is not None for surface in surfaces):
        found.append("accuracy")
    if all(surface.lambda_max is not None for surface in surfaces):
        found.append("lambda_max")
    return tuple(found)


def plot_surface(surface: Surface, kind: PanelKind = "contours", scale: ScaleKind = "auto") -> Figure:
    """Draw one surface as :func:`plot_surfaces` does."""
    return plot_surfaces([surface], kind=kind, scale=scale)


def plot_surfaces(
    surfaces: Sequence[Surface],
    labels: Sequence[str] | None = None,
    *,
    kind: PanelKind = "contours",
    quantities: Sequence[Quantity] | None = None,
    scale: ScaleKind = "auto",
) -> Figure:
    """Draw surfaces from above, on common axes; each quantity has one scale and one colour bar.

    Several surfaces are side by side, in a row of panels for each quantity; of one surface, the quantities are side by
    side.  Where all have test data, these have a row of their own below the training data's.

    Args:
        surfaces: of one loss and one split.
        labels: one for each; ``None``: the shortest that differ.
        kind: ``contours`` or ``heatmap``.
        quantities: of ``loss``, ``accuracy``, ``error``, ``lambda_max`` (which the training data's row alone has);
            ``None``: loss and accuracy of one surface, and λ_max where it has no test data; loss of several.
        scale: of loss and λ_max; accuracy and error are linear.

    Raises:
        FedscapeError: nothing to draw, surfaces that differ in loss or split, lines (draw those with
            :func:`analysis.surface.plots.lines.plot_lines`), a scale or a quantity that cannot be.
    """
    if kind not in ("contours", "heatmap"):
        raise FedscapeError(f"unknown kind of panel '{kind}': give contours or heatmap")
    grid = panels(surfaces, labels, quantities)
    return _figure(grid, kind, scale, title_of(surfaces), caption_of(surfaces))


class Panel(NamedTuple):
    """One panel of a figure: a quantity of a surface, and the title above it."""

    surface: Surface
    quantity: Quantity
    title: str

    @property
    def values(self) -> np.ndarray:
        """The values it shows, [ny, nx]."""
        return values_of(self.surface, self.quantity)


def panels(
    surfaces: Sequence[Surface], labels: Sequence[str] | None = None, quantities: Sequence[Quantity] | None = None
) -> list[list[Panel]]:
    """The rows of panels of a figure, as :func:`plot_surfaces` describes them.

    Raises:
        FedscapeError: nothing to draw, surfaces that differ in loss or split, lines.
    """
    names = check_comparable(surfaces, labels)
    check_planes(surfaces)
    splits = by_split(surfaces)
    if len(surfaces) > 1:
        ends = [f", {split[0].split_word}" if len(splits) > 1 else "" for split in splits]
        return [
            [Panel(surface, quantity, name + end) for surface, name in zip(split, names, strict=True)]
            for quantity in quantities or ("loss",)
            for split, end in zip(splits, ends, strict=True)
            if quantity != "lambda_max" or split is splits[0]
        ]
    alone = "" if labels is None else f"{names[0]}: "
    if quantities is None:
        # λ_max is measured on the training data only: the row of the test data would be shorter.
        quantities = [q for q in quantities_of(surfaces) if q != "lambda_max" or len(splits) == 1]
    elif "lambda_max" in quantities:
        splits = splits[:1]
    starts = [alone + (f"{split[0].split_word} " if len(splits) > 1 else "") for split in splits]
    return [
        [Panel(split[0], quantity, start + WORDS.get(quantity, quantity)) for quantity in quantities]
        for split, start in zip(splits, starts, strict=True)
    ]


def scales(grid: Sequence[Sequence[Panel]], scale: ScaleKind) -> dict[Quantity, Scale | None]:
    """One scale for each quantity, over all panels that show it; accuracy and error are linear."""
    wanted: dict[Quantity, ScaleKind] = {"loss": scale, "lambda_max": "auto" if scale == "log" else scale}
    values: dict[Quantity, list[np.ndarray]] = {}
    for panel in (panel for row in grid for panel in row):
        values.setdefault(panel.quantity, []).append(panel.values.ravel())
    return {
        quantity: Scale.of(np.concatenate(several), wanted.get(quantity, "linear"))
        for quantity, several in values.items()
    }


def plot_three(train: Surface, test: Surface, scale: ScaleKind = "auto", label: str | None = None) -> Figure:
    """Draw the plane of three models: training loss beside test error (Caldarola et al. 2022, figure 2).

    Raises:
        FedscapeError: the surfaces are of two planes or of one split, or have no accuracy.
    """
    check_planes([train, test])
    if train.provenance.plane != test.provenance.plane:
        raise FedscapeError("the two surfaces are of different planes: measure both splits in one plane")
    if (train.provenance.split, test.provenance.split) != ("train", "test"):
        raise FedscapeError("give the surface of the training split first, that of the test split second")
    start, both = "" if label is None else f"{label}: ", replace(train, test=test)
    row = [Panel(train, "loss", f"{start}training loss"), Panel(test, "error", f"{start}test error")]
    return _figure([row], "contours", scale, title_of([both]), caption_of([both]))


def _figure(grid: Sequence[Sequence[Panel]], kind: PanelKind, scale: ScaleKind, title: str, caption: str) -> Figure:
    """Draw panels on common axes; those of one quantity share a colour bar beside them."""
    several = len({panel.quantity for panel in grid[0]}) > 1
    width = 5.6 if several else 4.4
    first = grid[0][0].surface
    shape = np.clip(np.ptp(first.y) / np.ptp(first.x), 0.75, 1.5)
    rows, columns = len(grid), len(grid[0])
    size = (0.4 + width * columns + (not several), 1.2 + rows * (0.9 + float(shape) * (width - 1 - several)))
    caption = "; ".join([caption, *_signs_of_maps(grid, kind)])
    if several and across(columns, 2.1) < columns:  # a row for each quantity then, with its colour bar
        grid, several = list(zip(*grid, strict=True)), False
        rows, columns = columns, rows
    columns = across(columns, 2.1 if several else 1.6)
    margins = 1.0 if several else 1.0 / columns + 0.1
    inches = 0.6 + float(shape) * (panel_width(columns) - margins)  # their width limits axes to scale, not their height
    rows *= -(-len(grid[0]) // columns)
    figure = new_figure(size, rows, columns, panel_height=inches, layout=ConstrainedLayoutEngine(h_pad=0.07))
    axes = figure.subplots(rows, columns, squeeze=False)
    common = scales(grid, scale)
    shown: dict[Quantity, list[tuple[Axes, Panel, Any]]] = {}
    for ax, panel in placed(axes, grid):
        drawn = draw_panel(ax, panel.surface, panel.values, common[panel.quantity], COLOUR_MAPS[panel.quantity], kind)
        ax.set_title(panel.title, parse_math=False)
        shown.setdefault(panel.quantity, []).append((ax, panel, drawn))
    _share_axes([[ax for ax in row if ax in figure.axes] for row in axes], beside=not several)
    for quantity, those in shown.items():
        drawn, its_scale = next((drawn for *_, drawn in those if drawn is not None), None), common[quantity]
        if drawn is not None and its_scale is not None:
            label = label_of([panel.surface for _, panel, _ in those], quantity)
            draw_colour_bar(figure, [ax for ax, *_ in those], drawn, its_scale, label)
    figure.suptitle(title, fontsize=pt(12), parse_math=False)
    figure.supxlabel(wrapped(caption, size[0]), fontsize=pt(8), color="0.3", parse_math=False)
    return figure


def placed(axes: np.ndarray, grid: Sequence[Sequence[Panel]]) -> list[tuple[Any, Panel]]:
    """Each panel with its axes; rows that are longer than those of ``axes`` go on below, and axes left over vanish."""
    lines = len(axes) // len(grid)
    pairs: list[tuple[Any, Panel]] = []
    for k, row in enumerate(grid):
        places = axes[k * lines : (k + 1) * lines].ravel()
        pairs += zip(places, row, strict=False)
        for ax in places[len(row) :]:
            ax.remove()
    return pairs


def _share_axes(axes: Sequence[Sequence[Axes]], *, beside: bool) -> None:
    """Set common limits; labels that are all the same stay at the bottom only and, if ``beside``, at the left only."""
    every = [ax for row in axes for ax in row]
    x, y = [ax.get_xlim() for ax in every], [ax.get_ylim() for ax in every]
    same = len({(ax.get_xlabel(), ax.get_ylabel()) for ax in every}) == 1
    for ax in every:
        ax.set(xlim=(np.min(x), np.max(x)), ylim=(np.min(y), np.max(y)))
    covered = [ax for row, below in pairwise(axes) for ax in row[: len(below)]]
    for ax in covered if same else ():
        ax.set_xlabel("")
        ax.tick_params(labelbottom=False)
    for ax in (ax for row in axes for ax in row[1:]) if same and beside else ():
        ax.set_ylabel("")
        ax.tick_params(labelleft=False)


def check_planes(surfaces: Sequence[Surface]) -> None:
    """Refuse lines.

    Raises:
        FedscapeError: one has a single row or column.
    """
    if any(surface.is_line or len(surface.x) == 1 for surface in surfaces):
        raise FedscapeError("a line has no second axis: draw it as a line, or measure a plane")


def signs(surfaces: Sequence[Surface]) -> list[str]:
    """What the dots and lines of the models mean, for the caption."""
    several = len({mark for surface in surfaces for mark in marks_of(surface)}) > 1 or len(set(surfaces)) > 1
    found = ["white dots: the models" if several else "white dot: the checkpoint"]
    for surface in surfaces:
        if surface.trajectory is not None:
            x, y = surface.trajectory.T
            inside = (x >= surface.x[0]) & (x <= surface.x[-1]) & (y >= surface.y[0]) & (y <= surface.y[-1])
            outside = "" if inside.all() else f", {int((~inside).sum())} of them outside the picture"
            found.append(f"line: {len(x)} models on the way{outside}")
    return list(dict.fromkeys(found))


def smoothed(surfaces: Sequence[Surface]) -> list[str]:
    """How contours of these surfaces are drawn between the points of their grids, where these are coarse."""
    sizes = [f"{len(s.x)} × {len(s.y)}" for s in surfaces if min(len(s.x), len(s.y)) < ENOUGH]
    return [f"contours interpolated between the {' and the '.join(dict.fromkeys(sizes))} points"] if sizes else []


def _signs_of_maps(grid: Sequence[Sequence[Panel]], kind: PanelKind) -> list[str]:
    """How contours are drawn, and what the marks in pictures from above mean, for the caption."""
    surfaces = [panel.surface for row in grid for panel in row]
    found = [*(smoothed(surfaces) if kind == "contours" else []), *signs([panel.surface for panel in grid[0]])]
    if any(surface.trajectory is not None for surface in surfaces):
        found.append("square: the first of them")
    if any(interpolated_mask(surface).any() for surface in surfaces):
        found.append("small dots: measured")
    if any(surface.kind == "three" for surface in surfaces):
        found.append("dashed: their triangle")
    if not all(np.isfinite(surface.loss).all() for surface in surfaces):
        found.append("grey: around points without a value")
    return found
