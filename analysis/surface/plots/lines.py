"""Pictures of loss and accuracy along lines: one curve for each label, with a band and the barrier marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.style import COLOURS, DASHES, MARKERS, log_axis
from analysis.surface.barrier import Barrier
from analysis.surface.planes import EIGENVECTORS
from analysis.surface.plots.captions import (
    Quantity,
    axis_labels,
    by_split,
    caption_of,
    check_comparable,
    computed_mask,
    interpolated_mask,
    label_of,
    line_labels,
    stderr_of,
    title_of,
    values_of,
    wrapped,
)
from analysis.surface.plots.panels import quantities_of
from analysis.surface.plots.scales import Scale, ScaleKind
from landscape import FedscapeError
from landscape.storage.canvas import across, new_figure, pt, stroke

if TYPE_CHECKING:
    from analysis.surface.values import Surface


def plot_lines(
    surfaces: Sequence[Surface],
    labels: Sequence[str] | None = None,
    scale: ScaleKind = "auto",
    quantities: Sequence[Quantity] | None = None,
) -> Figure:
    """Draw loss and, where all have them, accuracy and λ_max along lines.

    Args:
        surfaces: of one loss and one split, each row a line; where all have test data, these are dashed curves beside
            the solid ones.
        labels: one for each; all lines of one label are drawn as one curve, their mean, in a band from the smallest to
            the largest; but each line along an eigenvector is a curve of its own.  A curve of a single line has a band
            of two standard errors, where they are known.
        scale: of the loss.
        quantities: some of ``loss``, ``accuracy``, ``error``, ``lambda_max``; all that were measured unless given.

    Raises:
        FedscapeError: nothing to draw, surfaces that are no lines or lack a quantity, or that differ in loss or split,
            surfaces of one label at different points.
    """
    check_comparable(surfaces, labels)
    if not all(surface.is_line for surface in surfaces):
        raise FedscapeError("a plane is no line: draw it as contours")
    names = line_labels(surfaces) if labels is None else labels
    curves: dict[str, list[Surface]] = {}
    for name, surface in zip(names, surfaces, strict=True):
        if surface.provenance.normalisation == EIGENVECTORS:  # no random sample: a mean over them says nothing
            curves |= {f"{name}, eigenvector {k + 1}": [surface.row(k)] for k in range(len(surface.y))}
        else:
            curves.setdefault(name, []).append(surface)
    for name, several in curves.items():
        if any(not np.array_equal(s.x, several[0].x) for s in several):
            raise FedscapeError(f"the lines called '{name}' have different points: give them different labels")
    quantities, splits = quantities or quantities_of(surfaces), by_split(surfaces)
    both = len(splits) > 1
    columns = across(len(quantities), 2.1)
    rows = -(-len(quantities) // columns)
    figure = new_figure((5.6 * len(quantities) + 0.4, 4.9), rows, columns, room=0.2 * rows, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes[len(quantities) :]:
        ax.remove()
    for ax, quantity in zip(axes, quantities, strict=False):
        for i, (name, several) in enumerate(curves.items()):
            for split in by_split(several) if both and quantity != "lambda_max" else [several]:
                _draw_curve(
                    ax, split, f"{name}, {split[0].split_word}" if both else name, quantity, _style(i, split, both)
                )
        drawn = splits[:1] if quantity == "lambda_max" else splits
        _dress(ax, [surface for split in drawn for surface in split], quantity, scale)
        if both or labels is not None or len(curves) > 1 or any(surface.barrier is not None for surface in surfaces):
            ax.legend(fontsize=pt(8))
    figure.suptitle(title_of(surfaces), fontsize=pt(12), parse_math=False)
    told = ["solid: training, dashed: test"] if both else []
    text = "; ".join([*told, *_bands(curves), caption_of(surfaces)])
    figure.supxlabel(wrapped(text, figure.get_figwidth()), fontsize=pt(8), color="0.3", parse_math=False)
    return figure


class _Style(NamedTuple):
    """The style of a curve; ``fill`` is the colour in its markers, and in its band where it is the curve's colour."""

    colour: str
    dashes: Any
    marker: str
    fill: str


def _style(number: int, surfaces: Sequence[Surface], both: bool) -> _Style:
    """The style of a label's curve: with ``both`` splits, dashes mean test data and only colours and markers differ."""
    colour, marker, tested = COLOURS[number % 7], MARKERS[number % 7], surfaces[0].provenance.split == "test"
    if not both:
        return _Style(colour, DASHES[number % 7], marker, colour)
    return _Style(colour, "--" if tested else "-", marker, "white" if tested else colour)


def _draw_curve(ax: Axes, surfaces: Sequence[Surface], name: str, quantity: Quantity, style: _Style) -> None:
    x = surfaces[0].x
    rows = np.concatenate([values_of(surface, quantity) for surface in surfaces])
    rows = np.where(np.isfinite(rows), rows, np.nan)
    middle = rows.mean(axis=0)
    spread = stderr_of(surfaces[0], quantity) if len(rows) == 1 else None
    low, high = (middle - 2 * spread[0], middle + 2 * spread[0]) if spread is not None else (rows.min(0), rows.max(0))
    rise = surfaces[0].barrier if quantity == "loss" and len(surfaces) == 1 else None
    label = name if rise is None else f"{name}: barrier {rise.height:.3g}" if rise.height else f"{name}: no barrier"
    known = np.concatenate([computed_mask(surface) for surface in surfaces]).all(axis=0)
    ax.plot(x, middle, color=style.colour, linestyle=style.dashes, linewidth=stroke(1.5), label=label)
    ax.plot(x[known], middle[known], style.marker, color=style.colour, markerfacecolor=style.fill, markersize=pt(3))
    if len(rows) > 1 or spread is not None:
        if style.fill == style.colour:
            ax.fill_between(x, low, high, color=style.colour, alpha=0.2, linewidth=0)
        else:  # only the edges, because it lies over another band
            ax.fill_between(x, low, high, facecolor="none", edgecolor=style.colour, linestyle="--", linewidth=0.6)
    if rise is not None and rise.height > 0:
        _draw_barrier(ax, surfaces[0], rise, style.colour)


def _draw_barrier(ax: Axes, surface: Surface, rise: Barrier, colour: str) -> None:
    """Draw the line between the two losses, and an arrow where the loss is farthest above it."""
    ends = sorted(mark.x for mark in surface.marks)[:: len(surface.marks) - 1]
    x = np.linspace(ends[0], ends[1], 200)  # many points, because a straight line is curved on a logarithmic axis
    chord = np.interp(x, ends, np.interp(ends, surface.x, surface.loss[0]))
    ax.plot(x, chord, ":", color=colour, linewidth=1)
    arrow = {"arrowstyle": "<->", "color": colour, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (rise.x, rise.loss), (rise.x, rise.loss - rise.height), arrowprops=arrow)


def _dress(ax: Axes, surfaces: Sequence[Surface], quantity: Quantity, scale: ScaleKind) -> None:
    ax.set_xlabel(axis_labels(surfaces[0])[0], parse_math=False)
    label = label_of(surfaces, quantity)
    if quantity == "loss":
        values = np.concatenate([surface.loss.ravel() for surface in surfaces])
        common = Scale.of(values, scale)
        if common is not None and common.logarithmic:
            label = common.label(label)
            log_axis(ax)
    ax.set_ylabel(label, parse_math=False)
    labels: dict[float, list[str]] = {}
    for mark in dict.fromkeys(mark for surface in surfaces for mark in surface.marks):
        labels.setdefault(mark.x, []).append(mark.label)
    for x, several in labels.items():
        ax.axvline(x, color="0.4", linewidth=0.8, linestyle=(0, (2, 2)))
        style: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        text = "\n".join(dict.fromkeys(several))
        ax.annotate(text, (x, 1), (0, 3), ha="center", fontsize=pt(8), parse_math=False, **style)
    ax.grid(alpha=0.3)


def _bands(curves: dict[str, list[Surface]]) -> list[str]:
    """What the bands and dots mean."""
    words = []
    counts = [sum(len(surface.y) for surface in several) for several in curves.values()]
    if max(counts) > 1:
        words.append(f"curves: means over {_span(counts)} directions; bands: smallest to largest")
    elif any(several[0].loss_stderr is not None for several in curves.values()):
        words.append("bands: two standard errors over the samples")
    if any(interpolated_mask(surface).any() for several in curves.values() for surface in several):
        words.append("dots: measured, lines between them: interpolated")
    else:
        words.append("dots: measured")
    return words


def _span(counts: Sequence[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
