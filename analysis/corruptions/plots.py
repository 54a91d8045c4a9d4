"""Pictures of accuracy under corruption."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.corruptions.robustness import Robustness
from analysis.style import COLOURS, DASHES, MARKERS, in_percent, percent_axis
from landscape.storage.canvas import across, new_figure, pt, stroke


def plot_corruptions(found: Robustness) -> Figure:
    """Draw each corruption at the highest severity (flat-minima, fig. 6), and the mean over corruptions by severity."""
    panels = 2 if len(found.severities) > 1 else 1
    width = max(5.5, 1.5 + 0.42 * (len(found.corruptions) + 2))
    columns = across(panels, 2.6)
    rows, legend = panels // columns, -(-len(found.labels) // (2 * columns))
    size = (width + 4.2 * (panels - 1), 4.8)
    figure = new_figure(size, rows, columns, panel_height=2.5, room=0.15 * legend, layout="constrained")
    ratios = [width, 3.6][:columns]
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True, width_ratios=ratios).ravel()
    _draw_names(axes[0], found)
    if panels == 2:
        _draw_severities(axes[1], found)
    highest = max(found.clean_accuracy.max(), found.accuracy[..., -1].max(), found.by_severity.max())
    axes[0].set_ylim(0, min(1.02, 1.15 * highest + 0.01))
    for ax in axes[::columns]:
        ax.set_ylabel(in_percent("accuracy"))
        percent_axis(ax.yaxis)
    for ax in axes:
        ax.grid(alpha=0.3)
        ax.title.set_fontsize(pt(10))
    figure.suptitle(found.title.replace(", corruptions", "\ncorruptions"), fontsize=pt(11))
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2 * columns if columns < panels else 4,
        fontsize=pt(8),
    )
    return figure


def _style(i: int) -> dict[str, Any]:
    return {"color": COLOURS[i % 7], "marker": MARKERS[(i + i // 7) % 7], "markersize": pt(5)}


def _draw_names(ax: Axes, found: Robustness) -> None:
    """Draw clean accuracy, then each corruption, then their mean."""
    names = ["clean", *(name.replace("_", " ") for name in found.corruptions), "mean"]
    for i, label in enumerate(found.labels):
        worst = found.accuracy[i, :, -1]
        heights = [found.clean_accuracy[i], *worst, worst.mean()]
        places = np.arange(len(names)) + 0.5 * ((i + 0.5) / len(found.labels) - 0.5)
        ax.plot(places, heights, linestyle="", label=label, **_style(i))
    for place in (0.5, len(names) - 1.5):
        ax.axvline(place, color="0.6", linewidth=0.8)
    ax.set_xticks(range(len(names)), names, rotation=90, fontsize=pt(8))
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_title(f"Severity {found.severities[-1]}")


def _draw_severities(ax: Axes, found: Robustness) -> None:
    """Draw the mean over the corruptions by severity; severity 0 is clean."""
    for i, label in enumerate(found.labels):
        heights = [found.clean_accuracy[i], *found.by_severity[i]]
        ax.plot(
            (0, *found.severities), heights, linestyle=DASHES[i % 7], linewidth=stroke(1.2), label=label, **_style(i)
        )
    ax.set_xticks((0, *found.severities), ["clean", *map(str, found.severities)])
    ax.set(xlabel="severity", title=f"Mean over {len(found.corruptions)} corruptions")
