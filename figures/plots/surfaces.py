"""Loss surfaces in the papers' layouts: rows with own or joint scales, one over others, planes of three models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from analysis import Surface
from analysis.surface.plots.captions import (
    NOT_TO_SCALE,
    Quantity,
    check_comparable,
    interpolated_mask,
    label_of,
    to_scale,
    values_of,
    wrapped,
)
from analysis.surface.plots.panels import (
    COLOUR_MAPS,
    Panel,
    check_planes,
    draw_colour_bar,
    draw_panel,
    scales,
    signs,
    smoothed,
)
from analysis.surface.plots.reliefs import VIEW, draw_relief, dress_relief, plot_superimposed, relief_axes
from analysis.surface.plots.scales import Scale, ScaleKind
from figures.plots.layout import CAPTION, Grid, check_panels, grid, shape, with_signs
from landscape import FedscapeError
from landscape.storage.style import current_style

CAP = 10.0
"""zmax of Caldarola et al. (ECCV 2022), Figure 1, in three of its panels; 20 in the fourth."""


@dataclass(frozen=True, eq=False)
class SurfacePanel:
    """One panel: its title, a surface, and the loss above which it is flat."""

    title: str
    surface: Surface
    cap: float = CAP

    @property
    def heights(self) -> np.ndarray:
        """ln(min(loss, cap) + 0.1), [ny, nx]."""
        return capped_log(self.surface.loss, self.cap)


@dataclass(frozen=True, eq=False)
class PlanePanel:
    """One panel: its title, a surface, and the quantity shown: ``loss``, ``error`` or ``accuracy``."""

    title: str
    surface: Surface
    quantity: Quantity = "loss"

    @property
    def values(self) -> np.ndarray:
        """What is shown: the loss, or accuracy or error in percent, [ny, nx]."""
        return values_of(self.surface, self.quantity)

    @property
    def group(self) -> tuple[str, str, str]:
        """What panels on one scale have in common: the quantity, the split and the loss."""
        return self.quantity, self.surface.provenance.split, self.surface.loss_label


def capped_log(loss: np.ndarray, cap: float) -> np.ndarray:
    """ln(min(loss, cap) + 0.1), the height in files of Li et al. (2018) for ParaView; infinity is at the cap.

    Raises:
        FedscapeError: the cap is not above 0.

    Example:
        >>> import numpy as np
        >>> capped_log(np.array([0.9, 50.0]), 9.9).round(3).tolist()
        [0.0, 2.303]
    """
    if not 0 < cap < math.inf:
        raise FedscapeError(f"a loss cannot be cut at {cap}: give a cap above 0, such as {CAP:g}")
    return np.log(np.minimum(loss, cap) + 0.1)


def plot_loss_surfaces(
    panels: Sequence[SurfacePanel],
    *,
    kind: Literal["relief", "contours"] = "relief",
    joint: bool = False,
    columns: int | None = None,
    view: tuple[float, float] = VIEW,
    title: str = "",
    caption: str = "",
) -> Figure:
    """Draw loss surfaces with the height ln(min(loss, cap) + 0.1) (Caldarola et al., ECCV 2022, Figure 1).

    Args:
        panels: in reading order.
        kind: ``relief`` in three dimensions, or ``contours`` from above.
        joint: one scale, one colour bar and one cap, the largest, for all panels; else each has its own, as in the
            paper, and heights of two panels cannot be compared, which the caption then says.
        columns: panels in a row.
        view: of reliefs: elevation and azimuth in degrees.
        title, caption: of the figure.

    Raises:
        FedscapeError: nothing to draw, lines, a surface without a finite loss, a cap that is not above 0; on a joint
            scale, surfaces that differ in loss or split.
    """
    check_panels(panels, "surfaces")
    check_planes([panel.surface for panel in panels])
    if kind not in ("relief", "contours"):
        raise FedscapeError(f"unknown kind of picture '{kind}': give relief or contours")
    if joint:
        largest = max(panel.cap for panel in panels)
        panels = [replace(panel, cap=largest) for panel in panels]
    values = [panel.heights for panel in panels]
    own = [_scale(panel.title, z) for panel, z in zip(panels, values, strict=True)]
    if joint:
        check_comparable([panel.surface for panel in panels], [panel.title for panel in panels])
        own = [_scale("the panels", np.concatenate([z.ravel() for z in values]))] * len(panels)
    labels = [f"ln(min({p.surface.split_word} loss, {p.cap:g}) + 0.1)" for p in panels]
    drawings = [_Drawing(*parts) for parts in zip(panels, values, own, labels, strict=True)]
    told = "one scale for all panels" if joint else "each panel has a scale of its own: heights and colours differ"
    surfaces = [panel.surface for panel in panels]
    text = with_signs(caption, told, *signs(surfaces), *_scales_of_axes(surfaces))
    if kind == "contours":
        text = with_signs(text, *_dots(surfaces))
    if kind == "contours":
        return _contours(drawings, columns, joint).finish(title, text)
    return _reliefs(drawings, columns, joint, view, title, text)


def plot_over(
    above: tuple[str, Surface],
    below: Sequence[tuple[str, Surface]],
    *,
    quantity: Quantity = "loss",
    scale: ScaleKind = "auto",
    view: tuple[float, float] = VIEW,
    title: str = "",
    caption: str = "",
) -> Figure:
    """Draw one surface as a grid over each of the others, a panel each (Sun et al., ICML 2023, Figure 3).

    Args:
        above: label and surface of the grid, there FedSMOO's.
        below: labels and surfaces, there FedAvg's, SCAFFOLD's and MoFedSAM's.
        quantity, scale, view: as :func:`analysis.surface.plots.reliefs.plot_superimposed` has them; the scale is joint.
        title, caption: in place of those that tell the surfaces' provenance; empty: these.

    Raises:
        FedscapeError: no surface below, or surfaces that differ in loss or split.
    """
    check_panels(below, "a surface below the grid")
    names, surfaces = [above[0], *(name for name, _ in below)], [above[1], *(surface for _, surface in below)]
    figure = plot_superimposed(surfaces, names, quantity=quantity, scale=scale, view=view)
    if title:
        figure.suptitle(title, parse_math=False)
    if caption:
        sign = f"grid: {above[0]}; it vanishes where it lies below the solid surface"
        text = wrapped(with_signs(caption, sign), float(figure.get_figwidth()))
        figure.supxlabel(text, fontsize=CAPTION, color="0.3", parse_math=False)
    return figure


def plot_planes(
    panels: Sequence[PlanePanel],
    *,
    scale: ScaleKind = "auto",
    columns: int | None = None,
    title: str = "",
    caption: str = "",
) -> Figure:
    """Draw planes through models from above, with the models marked (Caldarola et al., ECCV 2022, Figure 2).

    The panels of one quantity, split and loss have one scale, and one colour bar beside the last of them, so that
    heights can be compared; axes are each plane's own.

    Args:
        panels: in reading order; those of one quantity beside each other.
        scale: of the loss; error and accuracy are linear.
        columns: panels in a row.
        title, caption: of the figure.

    Raises:
        FedscapeError: nothing to draw, lines, a surface without the quantity or without a finite value.
    """
    check_panels(panels, "planes")
    check_planes([panel.surface for panel in panels])
    groups: dict[tuple[str, str, str], list[Panel]] = {}
    for p in panels:
        groups.setdefault(p.group, []).append(Panel(p.surface, p.quantity, p.title))
    common: dict[tuple[str, str, str], Scale] = {}
    for key, group in groups.items():
        found = scales([group], scale)[group[0].quantity]
        if found is None:
            raise FedscapeError(f"no {key[0]} of '{group[0].title}' is finite: there is nothing to draw")
        common[key] = found
    made = grid(len(panels), columns, size=(4.4, 4.1))
    shown: dict[tuple[str, str, str], list[tuple[Axes, Any]]] = {}
    for ax, p in zip(made.axes, panels, strict=True):
        drawn = draw_panel(ax, p.surface, p.values, common[p.group], COLOUR_MAPS[p.quantity])
        ax.set_title(p.title, parse_math=False)
        shown.setdefault(p.group, []).append((ax, drawn))
    for key, those in shown.items():
        label = label_of([panel.surface for panel in groups[key]], groups[key][0].quantity)
        drawn = next(found for _, found in those if found is not None)
        draw_colour_bar(made.body, [ax for ax, _ in those], drawn, common[key], label)
    surfaces = [panel.surface for panel in panels]
    told = ["one scale for all panels of a quantity"] if len(panels) > len(groups) else []
    told += [*signs(surfaces), *_scales_of_axes(surfaces), *_dots(surfaces)]
    return made.finish(title, caption, *told)


def _scale(title: str, z: np.ndarray) -> Scale:
    found = Scale.of(z, "linear")
    if found is None:
        raise FedscapeError(f"no loss of {title} is finite: there is nothing to draw")
    return found


def _scales_of_axes(surfaces: Sequence[Surface]) -> list[str]:
    return [] if all(to_scale(surface) for surface in surfaces) else [NOT_TO_SCALE]


def _dots(surfaces: Sequence[Surface]) -> list[str]:
    """What the other marks in pictures from above mean, of those that there are, and how contours are drawn."""
    told = smoothed(surfaces)
    told += ["small dots: measured, the rest interpolated"] * any(interpolated_mask(s).any() for s in surfaces)
    return told + ["dashed: the triangle of three models"] * any(s.kind == "three" for s in surfaces)


@dataclass(frozen=True)
class _Drawing:
    """What is drawn in one panel: heights, [ny, nx], with their scale and label."""

    panel: SurfacePanel
    heights: np.ndarray
    scale: Scale
    label: str


def _contours(drawings: Sequence[_Drawing], columns: int | None, joint: bool) -> Grid:
    made = grid(len(drawings), columns, size=(4.4, 3.9))
    drawn = []
    for ax, one in zip(made.axes, drawings, strict=True):
        drawn.append(draw_panel(ax, one.panel.surface, one.heights, one.scale, COLOUR_MAPS["loss"]))
        ax.set_title(one.panel.title, parse_math=False)
    for i, one in enumerate(drawings[:1] if joint else drawings):
        draw_colour_bar(made.body, made.axes if joint else [made.axes[i]], drawn[i], one.scale, one.label)
    return made


def _reliefs(
    drawings: Sequence[_Drawing], columns: int | None, joint: bool, view: tuple[float, float], title: str, caption: str
) -> Figure:
    rows, across = shape(len(drawings), columns)
    figure, axes = relief_axes(rows, across, view, title, caption)
    there = list(axes.ravel()[: len(drawings)])
    for ax in axes.ravel()[len(drawings) :]:
        ax.remove()
    for ax, one in zip(there, drawings, strict=True):
        height = "" if current_style().paper else one.label  # the colour bar says it too
        dress_relief(ax, [one.panel.surface], one.scale, height, one.panel.title)
        draw_relief(ax, one.panel.surface, one.heights, one.scale, COLOUR_MAPS["loss"])
    for i, one in enumerate(drawings[:1] if joint else drawings):
        drawn = ScalarMappable(one.scale.norm, COLOUR_MAPS["loss"]), None
        place = {"shrink": 0.6 / (rows if joint else 1), "pad": 0.14 / (across if joint else 1)}
        draw_colour_bar(figure, there if joint else [there[i]], drawn, one.scale, one.label, **place)
    return figure
