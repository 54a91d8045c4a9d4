"""Pictures of layers: eigenvalues of the Hessian's blocks above the activation norms that bound them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.hessian.layers import Activations, LayerEigenvalues
from analysis.style import COLOURS, DASHES, MARKERS, cross_out, crossed, log_axis
from landscape.storage.canvas import new_figure, panel_width, pt

Measured = tuple[str, LayerEigenvalues, Activations]
"""A label, and the results for a model's layers."""

_DECADES = 1.5
"""An axis is logarithmic where its values span more decades."""
_PANEL, _INCHES_PER_LAYER, _INCHES_PER_LETTER, _INCHES_PER_LINE = 2.4, 0.24, 0.075, 0.18
_HORIZONTAL = 8
_ABOVE = 0.08
"""Free room above the highest marker of an axis from 0, as a share of its length."""
"""Labels are horizontal for up to this many layers with names of up to this many letters."""


def plot_layers(measured: Sequence[Measured]) -> Figure:
    """Layer by layer, several models on common axes.

    At the top λ_max of each layer's block of the Hessian, with its error bound.  In the middle, for the same layers,
    the mean squared norm of the layer's input, which bounds λ_max up to a factor α_l of the layer (MAN, Theorems 2
    and 3); normalisation layers have none.  At the bottom E‖a_l‖² of each activation, below the layer it follows; where
    one follows several layers (at a shortcut) they have an axis of their own, in the order of execution.
    """
    layers = _union([[_shown(name) for name in blocks.layers] for _, blocks, _ in measured])
    outputs = _union([list(norms.outputs) for _, _, norms in measured])
    if outputs and set(outputs) <= set(layers):
        outputs = layers  # each activation is after one layer: all three panels share their places
    width = min(max(6.4, 1.6 + _INCHES_PER_LAYER * len(layers)), 24.0)
    height = 3 * _PANEL + _room(layers) + _room(outputs) + _INCHES_PER_LINE * len(measured)
    figure = _empty((width, height), layers, outputs, len(measured))
    eigen, bound, after = figure.subplots(3, 1)
    for i, (label, blocks, norms) in enumerate(measured):
        shift = 0.3 * ((i + 0.5) / len(measured) - 0.5)
        names, numbers = map(_shown, blocks.layers), zip(blocks.values[:, 0], blocks.bounds[:, 0], strict=True)
        values = dict(zip(names, numbers, strict=True))
        places = np.array([layers.index(_shown(name)) for name in blocks.layers]) + shift
        cross_out(eigen, places, blocks.values[:, 0], blocks.converged[:, 0])
        weights = {name: value for name, value in values.items() if name in norms.inputs}
        others = {name: value for name, value in values.items() if name not in norms.inputs}
        _draw(eigen, layers, weights, i, shift, label=label)
        _draw(eigen, layers, others, i, shift, linestyle="", markerfacecolor="white")
        _draw(bound, layers, _exact(norms.inputs), i, shift)
        _draw(after, outputs, _exact(norms.outputs), i, shift)
    eigen.set(ylabel="λ_max of the block", title="Largest eigenvalue of each layer's Hessian")
    bound.set(ylabel="mean ‖input‖²", title="What the layer takes in: bounds λ_max, up to a factor of the layer")
    after.set(ylabel="mean a²", title="MAN's activation norms: after the non-linearity that follows the layer")
    for ax, axis_names in ((eigen, layers), (bound, layers), (after, outputs)):
        _name(ax, axis_names)
        ax.title.set_fontsize(pt(10))
        ax.grid(alpha=0.3)
        _scale(ax)
    eigen.sharex(bound)
    eigen.tick_params(labelbottom=False)
    after.set_xlabel("layer")
    if not outputs:
        after.text(0.5, 0.5, "the model has no non-linearity", transform=after.transAxes, ha="center")
    if len(measured) > 1:
        figure.legend(*eigen.get_legend_handles_labels(), loc="outside upper center", fontsize=pt(8))
    else:
        figure.suptitle(measured[0][0], fontsize=pt(11))
    caption = "error bars: error bounds of the eigenvalues" + crossed(
        [blocks.converged[:, 0] for _, blocks, _ in measured]
    )
    if any(_shown(name) not in norms.inputs for _, blocks, norms in measured for name in blocks.layers):
        caption += "; hollow: layers without an input norm, such as normalisation"
    figure.supxlabel(caption, fontsize=pt(8), color="0.3")
    return figure


def _empty(screen: tuple[float, float], layers: list[str], outputs: list[str], curves: int) -> Figure:
    """A figure for three panels below each other; in a paper as wide as the text where a column has no room for the
    layers' names."""
    small = pt(1)
    wide = _INCHES_PER_LAYER * small * len(layers) > panel_width(1) - 0.6
    room = small * (_room(layers) + _room(outputs)) + 0.14 * curves
    return new_figure(screen, 3, panel_height=1.35, room=room, wide=wide, layout="constrained")


def _draw(
    ax: Axes, names: list[str], points: Mapping[str, tuple[float, float]], i: int, shift: float, **look: Any
) -> None:
    """Points (height, error) by name, in the i-th model's colours."""
    known = [name for name in names if name in points]
    places = np.array([names.index(name) for name in known]) + shift
    heights, errors = np.array([points[name] for name in known], dtype=float).reshape(-1, 2).T
    marker = MARKERS[(i + i // 7) % 7]  # beyond the seventh the colours come again with other markers
    style = {"color": COLOURS[i % 7], "marker": marker, "linestyle": DASHES[i % 7], "linewidth": 0.8}
    ax.errorbar(places, heights, errors if errors.any() else None, **style | look, markersize=pt(4), capsize=pt(3))


def _exact(values: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    return {name: (value, 0.0) for name, value in values.items()}


def _shown(layer: str) -> str:
    """A layer's name as in :class:`landscape.activations.Recorder`, which names the model itself too."""
    return layer or "model"


def _name(ax: Axes, names: list[str]) -> None:
    """Put the layers' names below an axis."""
    ax.set_xticks(range(len(names)), map(_broken, names), rotation=0 if _horizontal(names) else 90, fontsize=pt(8))
    ax.set_xlim(-0.6, max(len(names), 1) - 0.4)


def _broken(name: str) -> str:
    return name.replace(" + ", "\n+ ")


def _horizontal(names: list[str]) -> bool:
    """Whether there is room for horizontal labels."""
    return len(names) <= _HORIZONTAL and max(map(len, names), default=0) <= _HORIZONTAL


def _scale(ax: Axes) -> None:
    """A logarithmic axis where the values are positive and span decades, else an axis from 0."""
    heights = np.concatenate([np.array(line.get_ydata(), dtype=float) for line in ax.get_lines()])
    heights = heights[np.isfinite(heights)]
    if heights.size and heights.min() > 0 and np.log10(heights.max() / heights.min()) > _DECADES:
        log_axis(ax)
    elif heights.size:
        bottom, top = ax.get_ylim()
        ax.set_ylim(min(0.0, bottom), max(top, heights.max() + _ABOVE * (heights.max() - min(0.0, heights.min()))))


def _union(lists: list[list[str]]) -> list[str]:
    """All names, each once, in the order of the first list that has them."""
    return list(dict.fromkeys(name for names in lists for name in names))


def _room(names: list[str]) -> float:
    """Inches of height that the longest of the labels takes."""
    if _horizontal(names):
        return _INCHES_PER_LINE
    return _INCHES_PER_LETTER * max(len(line) for name in names for line in _broken(name).split("\n"))
