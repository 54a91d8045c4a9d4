"""Loss surfaces in three dimensions: side by side, or superimposed, one of them as a grid."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from scipy.interpolate import RegularGridInterpolator

from analysis.surface_plots import COLOUR_MAPS, Scale, ScaleKind, check_planes, draw_colour_bar, quantities_of
from analysis.surface_words import (
    Quantity,
    axis_labels,
    caption_of,
    check_comparable,
    label_of,
    marks_of,
    title_of,
    values_of,
    wrapped,
)
from landscape import FedscapeError

if TYPE_CHECKING:
    from analysis.surface import Surface

VIEW = (28.0, -58.0)
"""Elevation and azimuth of the eye, in degrees."""

SOLID, GRID = "#9ECAE1", "#8C2D04"
"""Light and dark: told apart in greyscale too."""

MOST_LINES = 26
"""Of the grid, in each direction."""

MOST_CELLS = 100
"""Of a solid surface, in each direction."""


def plot_reliefs(
    surfaces: Sequence[Surface],
    labels: Sequence[str] | None = None,
    *,
    quantity: Quantity | None = None,
    scale: ScaleKind = "auto",
    view: tuple[float, float] = VIEW,
) -> Figure:
    """Surfaces as reliefs in a row, on common axes with one colour bar; of one surface, accuracy too.

    Args:
        surfaces: of one loss and one split.
        labels: one for each; ``None`` names what tells them apart.
        quantity: ``loss``, ``accuracy`` or ``error``; ``None``: loss, and accuracy of a single surface.
        scale: of the loss; accuracy and error are linear.
        view: elevation and azimuth in degrees.

    Raises:
        FedscapeError: as :func:`analysis.surface_plots.plot_surfaces` does.
    """
    names = check_comparable(surfaces, labels)
    check_planes(surfaces)
    if quantity is not None or len(surfaces) > 1:
        quantity = quantity or "loss"
        groups = [[(surface, quantity) for surface in surfaces]]
        titles = names
    else:
        groups = [[(surfaces[0], name)] for name in quantities_of(surfaces)]
        titles = [("" if labels is None else f"{names[0]}: ") + name for name in quantities_of(surfaces)]
    figure, axes = _axes(len(titles), view)
    remaining = iter(zip(axes, titles, strict=True))
    for group in groups:
        common = _common_scale([s for s, _ in group], group[0][1], scale)
        used = []
        for surface, name in group:
            ax, title = next(remaining)
            used.append(ax)
            values = values_of(surface, name)
            _dress(ax, [s for s, _ in group], common, label_of(surface, name), title)
            if common is None:
                continue
            cells, means = _cells(surface, values, common, MOST_CELLS)
            colours = colormaps[COLOUR_MAPS[name]](common.norm(means))
            _add(ax, cells, colours, (0.0, 0.0, 0.0, 0.25), 0.25)
            _models(ax, surface, values, common)
        if common is not None:
            colours = ScalarMappable(common.norm, COLOUR_MAPS[group[0][1]])
            draw_colour_bar(
                figure, used, (colours, None), common, label_of(*group[0]), shrink=0.6, pad=0.14 / len(used)
            )
    figure.suptitle(title_of(surfaces), fontsize=12, parse_math=False)
    _caption(figure, caption_of(surfaces))
    return figure


def plot_superimposed(
    surfaces: Sequence[Surface],
    labels: Sequence[str] | None = None,
    *,
    quantity: Quantity = "loss",
    scale: ScaleKind = "auto",
    view: tuple[float, float] = VIEW,
) -> Figure:
    """The first surface as a grid over each of the others, solid, a panel each (Sun et al. 2023, figure 3).

    What lies behind is hidden: where the grid vanishes, it is below.

    Args:
        surfaces: two or more, of one loss and one split.
        labels, quantity, scale, view: as in :func:`plot_reliefs`.

    Raises:
        FedscapeError: fewer than two surfaces, or as :func:`analysis.surface_plots.plot_surfaces` does.
    """
    names = check_comparable(surfaces, labels)
    check_planes(surfaces)
    if len(surfaces) < 2:
        raise FedscapeError("one surface has nothing to be superimposed on: give two or more")
    common = _common_scale(surfaces, quantity, scale)
    above, name = surfaces[0], names[0]
    figure, axes = _axes(len(surfaces) - 1, view)
    for ax, surface, other in zip(axes, surfaces[1:], names[1:], strict=True):
        _dress(ax, surfaces, common, label_of(surface, quantity), f"{name} on {other}")
        if common is None:
            continue
        solid, _ = _cells(surface, values_of(surface, quantity), common, MOST_CELLS)
        grid, _ = _cells(above, values_of(above, quantity), common, MOST_LINES - 1)
        faces = np.concatenate([_shaded(solid), np.zeros((len(grid), 4))])
        edges = np.concatenate([_shaded(solid), np.tile(_rgba(GRID), (len(grid), 1))])
        _add(ax, np.concatenate([solid, grid]), faces, edges, 0.7)
        ax.legend(
            handles=[Patch(facecolor=SOLID, label=other), Line2D([], [], color=GRID, label=name)],
            loc="upper left",
            fontsize=8,
        )
    figure.suptitle(title_of(surfaces), fontsize=12, parse_math=False)
    _caption(figure, f"grid: {name}; it vanishes where it lies below the solid surface; {caption_of(surfaces)}")
    return figure


def heights(values: np.ndarray, scale: Scale) -> np.ndarray:
    """The values as they are drawn: within the scale, and their decimal logarithm where it is logarithmic."""
    if not scale.logarithmic:
        return np.where(np.isfinite(values), values, np.nan)
    clipped = np.clip(values, scale.levels[0], scale.levels[-1])
    return np.log10(np.where(np.isfinite(values), clipped, np.nan))


def _common_scale(surfaces: Sequence[Surface], quantity: Quantity, scale: ScaleKind) -> Scale | None:
    values = np.concatenate([values_of(surface, quantity).ravel() for surface in surfaces])
    return Scale.of(values, scale if quantity == "loss" else "linear")


def _axes(panels: int, view: tuple[float, float]) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(6.2 * panels + 0.4, 6.0))
    axes = figure.subplots(1, panels, squeeze=False, subplot_kw={"projection": "3d", "computed_zorder": False})[0]
    figure.subplots_adjust(left=0.02, right=1 - 0.45 / panels / 6.2, bottom=0.14, top=0.86, wspace=0.12)
    for ax in axes:
        ax.view_init(*view)
    return figure, list(axes)


def _dress(ax: Any, surfaces: Sequence[Surface], scale: Scale | None, label: str, title: str) -> None:
    """Limits, ticks and labels: the same for all surfaces."""
    x, y = (np.concatenate([getattr(surface, name) for surface in surfaces]) for name in "xy")
    ax.set(xlim=(x.min(), x.max()), ylim=(y.min(), y.max()))
    across, up = axis_labels(surfaces[0])
    ax.set_xlabel(_short_lines(across), fontsize=8, labelpad=6, parse_math=False)
    ax.set_ylabel(_short_lines(up), fontsize=8, labelpad=6, parse_math=False)
    ax.set_title(title, parse_math=False)
    ax.tick_params(labelsize=8)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5))
    if scale is None:
        ax.text2D(0.5, 0.5, "no finite value", transform=ax.transAxes, ha="center")
        return
    bottom, top = heights(scale.levels[[0, -1]], scale)
    ax.set_zlim(bottom, top)
    ax.set_zlabel(_short_lines(scale.label(label)), fontsize=8, labelpad=6, parse_math=False)
    if scale.logarithmic:
        ticks = scale.ticks if isinstance(scale.ticks, list) else scale.ticks.tick_values(*scale.levels[[0, -1]])
        places = np.log10(ticks)
        ax.zaxis.set_major_locator(FixedLocator(places[(places >= bottom) & (places <= top)]))
        ax.zaxis.set_major_formatter(FuncFormatter(lambda z, _: f"{10**z:.3g}"))


def _short_lines(label: str) -> str:
    """Axes in perspective are short."""
    return textwrap.fill(label, 26, break_on_hyphens=False)


def _cells(surface: Surface, values: np.ndarray, scale: Scale, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Quadrilaterals [m, 4, 3] between at most ``most`` + 1 grid lines a side, and the mean value of each, [m].

    Those with a corner that has no value are left out.
    """
    rows, columns = (_lines(len(along), most) for along in (surface.y, surface.x))
    part = np.ix_(rows, columns)
    x, y = np.meshgrid(surface.x[columns], surface.y[rows])
    points = np.stack([x, y, heights(values[part], scale)], axis=-1)
    corners = np.stack([points[:-1, :-1], points[:-1, 1:], points[1:, 1:], points[1:, :-1]], axis=2).reshape(-1, 4, 3)
    whole = corners[np.isfinite(corners).all(axis=(1, 2))]
    means = whole[:, :, 2].mean(axis=1)
    return whole, 10**means if scale.logarithmic else means


def _lines(count: int, most: int) -> np.ndarray:
    """Which grid lines are drawn: the first, the last and evenly between."""
    return np.unique(np.linspace(0, count - 1, min(count, most + 1)).round().astype(int))


def _add(ax: Any, cells: np.ndarray, faces: Any, edges: Any, width: float) -> None:
    """One collection, so that what is in front hides what is behind."""
    if len(cells):
        ax.add_collection3d(Poly3DCollection(cells, facecolors=faces, edgecolors=edges, linewidths=width))


def _rgba(colour: str) -> np.ndarray:
    return np.array([*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)), 1.0])


def _shaded(cells: np.ndarray) -> np.ndarray:
    """The solid's colour, lit from the upper left, [m, 4]."""
    size = np.maximum(np.ptp(cells.reshape(-1, 3), axis=0), 1e-300) if len(cells) else np.ones(3)
    sides = (cells[:, [2, 3]] - cells[:, [0, 1]]) / size
    normal = np.cross(sides[:, 0], sides[:, 1])
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-300)
    light = 0.72 + 0.28 * np.abs(normal @ np.array([-0.41, -0.41, 0.82]))
    colours = np.tile(_rgba(SOLID), (len(cells), 1))
    colours[:, :3] *= light[:, None]
    return colours


def _models(ax: Any, surface: Surface, values: np.ndarray, scale: Scale) -> None:
    """Models and trajectory on the relief, never hidden by it."""
    height = RegularGridInterpolator((surface.y, surface.x), heights(values, scale), bounds_error=False)
    if surface.trajectory is not None:
        x, y = surface.trajectory.T
        ax.plot(x, y, height((y, x)), "-", color="black", linewidth=2.4, zorder=5)
        ax.plot(x, y, height((y, x)), "-", color="white", linewidth=1.2, zorder=6)
    for mark in marks_of(surface):
        z = float(height((mark.y, mark.x)))
        if np.isfinite(z):
            ax.plot([mark.x], [mark.y], [z], "o", markerfacecolor="white", markeredgecolor="black", zorder=7)
            top = z + 0.06 * np.ptp(ax.get_zlim())
            ax.text(mark.x, mark.y, top, mark.label, fontsize=8, zorder=8, ha="center", parse_math=False)


def _caption(figure: Figure, text: str) -> None:
    figure.supxlabel(wrapped(text, figure.get_figwidth()), fontsize=8, color="0.3", parse_math=False)
