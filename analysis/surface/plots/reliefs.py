"""Pictures of loss surfaces in three dimensions: side by side, or one as a grid over another."""

from __future__ import annotations

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

from analysis.surface.plots.captions import (
    Quantity,
    axis_labels,
    caption_of,
    check_comparable,
    label_of,
    marks_of,
    title_of,
    to_scale,
    wrapped,
)
from analysis.surface.plots.panels import (
    COLOUR_MAPS,
    LABEL_BOX,
    Panel,
    Scale,
    ScaleKind,
    draw_colour_bar,
    panels,
    placed,
    scales,
    signs,
)
from landscape import FedscapeError
from landscape.storage.canvas import across, new_figure, panel_width, phrases, pt
from landscape.storage.style import current_style

if TYPE_CHECKING:
    from analysis.surface.values import Surface

VIEW = (28.0, -58.0)
"""Elevation and azimuth of the viewer, in degrees."""

SOLID, GRID = "#9ECAE1", "#8C2D04"
"""Light and dark, so that they differ in greyscale too."""

MOST_LINES = 26
"""The most lines of a grid in each direction."""

MOST_CELLS = 100
"""The most cells of a solid surface in each direction."""


def plot_reliefs(
    surfaces: Sequence[Surface],
    labels: Sequence[str] | None = None,
    *,
    quantity: Quantity | None = None,
    scale: ScaleKind = "auto",
    view: tuple[float, float] = VIEW,
) -> Figure:
    """Draw surfaces as reliefs side by side, on common axes with one colour bar; of one surface, accuracy too.

    Args:
        surfaces: of one loss and one split; where all have test data, these have a row of their own below.
        labels: one for each; ``None``: the shortest that differ.
        quantity: ``loss``, ``accuracy`` or ``error``; ``None``: loss, and accuracy of a single surface.
        scale: of the loss; accuracy and error are linear.
        view: elevation and azimuth in degrees.

    Raises:
        FedscapeError: as :func:`analysis.surface.plots.panels.plot_surfaces` does.
    """
    grid = panels(surfaces, labels, None if quantity is None else [quantity])
    text = "; ".join([caption_of(surfaces), *signs(surfaces)])
    figure, axes = relief_axes(len(grid), len(grid[0]), view, title_of(surfaces), text)
    common = scales(grid, scale)
    shown: dict[Quantity, list[tuple[Any, Panel]]] = {}
    for ax, panel in placed(axes, grid):
        surface, name, one = panel.surface, panel.quantity, common[panel.quantity]
        shown.setdefault(name, []).append((ax, panel))
        height = "" if current_style().paper else label_of([surface], name)  # the colour bar says it too
        dress_relief(ax, surfaces, one, height, panel.title)
        if one is not None:
            draw_relief(ax, surface, panel.values, one, COLOUR_MAPS[name])
    for name, those in shown.items():
        if (one := common[name]) is not None:
            label, used = label_of([panel.surface for _, panel in those], name), [ax for ax, _ in those]
            place = {"shrink": 0.6 / len(grid), "pad": 0.14 / (len(used) // len(grid))}
            draw_colour_bar(figure, used, (ScalarMappable(one.norm, COLOUR_MAPS[name]), None), one, label, **place)
    return figure


def plot_superimposed(
    surfaces: Sequence[Surface],
    labels: Sequence[str] | None = None,
    *,
    quantity: Quantity = "loss",
    scale: ScaleKind = "auto",
    view: tuple[float, float] = VIEW,
) -> Figure:
    """Draw the first surface as a grid over each of the others, a panel each (Sun et al. 2023, figure 3).

    The others are solid and hide what is behind them: where the grid cannot be seen, it is below.

    Args:
        surfaces: two or more, of one loss and one split.
        labels, quantity, scale, view: as in :func:`plot_reliefs`.

    Raises:
        FedscapeError: fewer than two surfaces, or as :func:`analysis.surface.plots.panels.plot_surfaces` does.
    """
    if len(surfaces) < 2:
        raise FedscapeError("one surface has nothing to be superimposed on: give two or more")
    names, grid = check_comparable(surfaces, labels), panels(surfaces, labels, [quantity])
    common = scales(grid, scale)[quantity]
    name = names[0]
    text = f"grid: {name}; it vanishes where it lies below the solid surface; {caption_of(surfaces)}"
    figure, axes = relief_axes(len(grid), len(surfaces) - 1, view, title_of(surfaces), text)
    paper = current_style().paper
    for k, (ax, panel) in enumerate(placed(axes, [row[1:] for row in grid])):
        above, other = grid[k // (len(names) - 1)][0], names[1 + k % (len(names) - 1)]
        # On a page's width the label of one panel would reach into the next; the scale is joint.
        labelled = not paper or ax.get_subplotspec().is_last_col() or other == names[-1]
        label = label_of([panel.surface], quantity) if labelled else ""
        dress_relief(ax, surfaces, common, label, f"{name} on {panel.title}")
        if common is None:
            continue
        solid, _ = _cells(panel.surface, panel.values, common, MOST_CELLS)
        lines, _ = _cells(above.surface, above.values, common, MOST_LINES - 1)
        faces = np.concatenate([_shaded(solid), np.zeros((len(lines), 4))])
        edges = np.concatenate([_shaded(solid), np.tile(_rgba(GRID), (len(lines), 1))])
        _add(ax, np.concatenate([solid, lines]), faces, edges, 0.7)
        ax.legend(
            handles=[Patch(facecolor=SOLID, label=other), Line2D([], [], color=GRID, label=name)],
            loc="upper left",
            fontsize=pt(8),
            **({"handlelength": 1.0, "handletextpad": 0.4, "borderpad": 0.2, "labelspacing": 0.2} if paper else {}),
        )
    return figure


def heights(values: np.ndarray, scale: Scale) -> np.ndarray:
    """The values as they are drawn: within the scale, and their decimal logarithm where it is logarithmic; on a rise
    as they are, because there the colours alone show the bottom."""
    if not scale.logarithmic:
        return np.where(np.isfinite(values), values, np.nan)
    clipped = np.clip(values, scale.levels[0], scale.levels[-1])
    return np.log10(np.where(np.isfinite(values), clipped, np.nan))


def relief_axes(
    rows: int, columns: int, view: tuple[float, float], title: str, caption: str
) -> tuple[Figure, np.ndarray]:
    """A figure with axes for so many reliefs, [rows, columns], between the title and the caption."""
    width, height = 6.2 * columns + 0.4, 6.0 * rows
    caption, beside = wrapped(caption, width), across(columns, 2.2)
    rows *= -(-columns // beside)
    figure = new_figure((width, height), rows, beside, panel_height=min(2.6, 0.95 * panel_width(beside)))
    axes = figure.subplots(rows, beside, squeeze=False, subplot_kw={"projection": "3d", "computed_zorder": False})
    inches = {"bottom": 0.35 + 0.15 * (caption.count("\n") + 1), "top": height - 0.95}
    right = 0.45 / columns / 6.2
    if current_style().paper:  # title and caption are not in the picture
        right = 0.6 / figure.get_figwidth()
        height = figure.get_figheight()
        inches = {"bottom": 0.1, "top": height - 0.25}
    sides = {"left": 0.02, "right": 1 - right, "wspace": 0.12, "hspace": 0.1}
    figure.subplots_adjust(**{name: at / height for name, at in inches.items()}, **sides)
    for ax in axes.flat:
        ax.view_init(*view)
    figure.suptitle(title, y=1 - 0.12 / height, fontsize=pt(12), parse_math=False)
    figure.supxlabel(caption, y=0.1 / height, va="bottom", fontsize=pt(8), color="0.3", parse_math=False)
    return figure, axes


def draw_relief(ax: Any, surface: Surface, values: np.ndarray, scale: Scale, colours: str) -> None:
    """Draw the values, [ny, nx], as a coloured relief with the models on it, on axes in three dimensions."""
    cells, means = _cells(surface, values, scale, MOST_CELLS)
    _add(ax, cells, colormaps[colours](scale.norm(means)), (0.0, 0.0, 0.0, 0.25), 0.25)
    _models(ax, surface, values, scale)


def dress_relief(ax: Any, surfaces: Sequence[Surface], scale: Scale | None, label: str, title: str) -> None:
    """Set limits, ticks and labels of a relief, the same for all surfaces; ``label`` is that of the values."""
    x, y = (np.concatenate([getattr(surface, name) for surface in surfaces]) for name in "xy")
    ax.set(xlim=(x.min(), x.max()), ylim=(y.min(), y.max()))
    paper = current_style().paper
    zoom = 0.87 if paper else 1.0  # beside smaller axes there is room for the labels
    if all(to_scale(surface) for surface in surfaces):
        longest = max(np.ptp(x), np.ptp(y))
        ax.set_box_aspect((np.ptp(x) / longest, np.ptp(y) / longest, 0.75), zoom=zoom)
    elif paper:
        ax.set_box_aspect(None, zoom=zoom)
    across, up = axis_labels(surfaces[0])
    ax.set_xlabel(_short_lines(across), fontsize=pt(8), labelpad=-3 if paper else 6, parse_math=False)
    ax.set_ylabel(_short_lines(up), fontsize=pt(8), labelpad=-3 if paper else 6, parse_math=False)
    ax.set_title(title, parse_math=False)
    ax.tick_params(labelsize=pt(8), **({"pad": 0} if paper else {}))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5))
    if scale is None:
        ax.text2D(0.5, 0.5, "no finite value", transform=ax.transAxes, ha="center")
        return
    bottom, top = heights(scale.levels[[0, -1]], scale)
    ax.set_zlim(bottom, top)
    if label:
        ax.set_zlabel(
            _short_lines(scale.label(label) if scale.logarithmic else label),
            fontsize=pt(8),
            labelpad=3 if paper else 6,
            parse_math=False,
        )
    if scale.logarithmic:
        places = np.log10(scale.ticks)
        ax.zaxis.set_major_locator(FixedLocator(places[(places >= bottom) & (places <= top)]))
        ax.zaxis.set_major_formatter(FuncFormatter(lambda z, _: f"{10**z:.3g}"))


def _short_lines(label: str) -> str:
    """Break a label into lines that fit an axis in perspective, which is short."""
    return phrases(label, 34)


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
    """Which grid lines are drawn: the first, the last and evenly spaced ones between."""
    return np.unique(np.linspace(0, count - 1, min(count, most + 1)).round().astype(int))


def _add(ax: Any, cells: np.ndarray, faces: Any, edges: Any, width: float) -> None:
    """Add the cells as one collection, so that those in front hide those behind."""
    if len(cells):
        ax.add_collection3d(Poly3DCollection(cells, facecolors=faces, edgecolors=edges, linewidths=width))


def _rgba(colour: str) -> np.ndarray:
    return np.array([*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)), 1.0])


def _shaded(cells: np.ndarray) -> np.ndarray:
    """The colours of the cells of a solid surface, lit from the upper left, [m, 4]."""
    size = np.maximum(np.ptp(cells.reshape(-1, 3), axis=0), 1e-300) if len(cells) else np.ones(3)
    sides = (cells[:, [2, 3]] - cells[:, [0, 1]]) / size
    normal = np.cross(sides[:, 0], sides[:, 1])
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-300)
    light = 0.72 + 0.28 * np.abs(normal @ np.array([-0.41, -0.41, 0.82]))
    colours = np.tile(_rgba(SOLID), (len(cells), 1))
    colours[:, :3] *= light[:, None]
    return colours


def _models(ax: Any, surface: Surface, values: np.ndarray, scale: Scale) -> None:
    """Draw models and trajectory on the relief, in front of it."""
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
            if len(marks_of(surface)) > 1 and mark.label:
                style: dict[str, Any] = {"fontsize": pt(8), "zorder": 8, "ha": "center", "bbox": LABEL_BOX}
                ax.text(mark.x, mark.y, top, mark.label, parse_math=False, **style)
