"""Pictures of partitions: heat maps and histograms, as in Figures 2, 5 and 6 of Sun et al., ICML 2023 (FedSMOO)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from landscape.storage.canvas import across, new_figure, pt
from landscape.storage.style import current_style

_EDGE = 40
"""Most bars that are drawn with dark edges: the edges of more bars would hide them."""


def plot_partitions(titles: Sequence[str], counts: Sequence[np.ndarray], available: np.ndarray) -> Figure:
    """One row for each partition: heat map, samples per class, sizes of clients, classes per client.

    Args:
        titles: of the rows.
        counts: samples per client and class, [clients, classes] each; [clients, 1] if there are no classes.
        available: samples of each class in the data, [classes]; empty if there are no classes.
    """
    labelled = bool(len(available))
    columns = across(4 if labelled else 1, 1.6)
    lines = 4 // columns if labelled else 1  # of panels for each partition
    size = (16 if labelled else 5, 0.6 + 3.6 * len(counts))
    figure = new_figure(size, lines * len(counts), columns, panel_height=1.6, room=0.25, layout="constrained")
    rows = figure.subfigures(len(counts), 1, squeeze=False)[:, 0]
    drawn = []
    for row, title, numbers in zip(rows, titles, counts, strict=True):
        row.suptitle(title, fontsize=pt(12))
        if not labelled:
            draw_sizes(row.subplots(), numbers)
            continue
        ratios = [1.5, 1.1, 1, 1] if lines == 1 else None
        axes = row.subplots(lines, columns, squeeze=False, width_ratios=ratios).ravel()
        drawn.append(axes)
        figure.colorbar(draw_heat_map(axes[0], numbers), ax=axes[0], label="samples", pad=0.02)
        draw_class_totals(axes[1], numbers, available)
        draw_sizes(axes[2], numbers)
        draw_held_classes(axes[3], numbers)
    # The same scale in all rows, to compare class totals with and without replacement (Figures 2 and 6).
    top = max((axes[1].get_ylim()[1] for axes in drawn), default=1)
    for axes in drawn:
        axes[1].set_ylim(0, top)
    return figure


def draw_heat_map(ax: Axes, counts: np.ndarray, most: float | None = None) -> AxesImage:
    """Samples of each class (row) that each client (column) has: Figure 5.

    Args:
        ax: to draw on.
        counts: [clients, classes].
        most: the count that is black, where panels share a scale; ``None``: the largest here.

    Returns the image, for a colour bar.
    """
    # The square root shows the difference between few samples and none.
    scale = PowerNorm(0.5, vmin=0, vmax=max(1, counts.max() if most is None else most))
    image = ax.imshow(counts.T, norm=scale, cmap="Greys", aspect="auto", interpolation="nearest", origin="lower")
    ax.set(xlabel="client", ylabel="class", title="Samples by client and class")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(_whole_numbers())
    return image


def draw_class_totals(ax: Axes, counts: np.ndarray, available: np.ndarray) -> None:
    """Samples of each class that all clients have together, and that the data have: Figures 2 and 6."""
    totals = counts.sum(axis=0)
    classes = np.arange(len(totals))
    edge = "black" if len(totals) <= _EDGE else "0.55"
    ax.bar(classes, totals, width=0.9 if len(totals) <= _EDGE else 1.0, color="0.7", edgecolor=edge, linewidth=0.6)
    ax.stairs(available, np.arange(len(totals) + 1) - 0.5, color="black", linestyle="--", label="in the data")
    ax.set(xlabel="class", ylabel="samples", title=f"All clients, deviation {totals.std():.4g}")
    ax.set_ylim(0, _headroom() * max(totals.max(), available.max()))
    ax.xaxis.set_major_locator(_whole_numbers())
    ax.legend(loc="upper right", fontsize=pt(8))


def draw_sizes(ax: Axes, counts: np.ndarray) -> None:
    """Histogram of the clients' numbers of samples."""
    _histogram(ax, counts.sum(axis=1))
    ax.set(xlabel="samples of a client", title="Sizes")


def draw_held_classes(ax: Axes, counts: np.ndarray) -> None:
    """Histogram of the clients' numbers of classes."""
    _histogram(ax, (counts > 0).sum(axis=1))
    ax.set(xlabel="classes of a client", title="Classes")


def _whole_numbers() -> MaxNLocator:
    """Ticks at whole numbers; few on the small panels of a paper."""
    return MaxNLocator(4 if current_style().paper else "auto", integer=True, min_n_ticks=1)


def _headroom() -> float:
    """How much higher than the bars the axis is, for the legend above them."""
    return 1.5 if current_style().paper else 1.25


def _histogram(ax: Axes, values: np.ndarray) -> None:
    """Histogram of whole numbers: one bar for each value if there are few values, else bars of equal width."""
    low, high = int(values.min()), int(values.max())
    width = -(-(high - low + 1) // 20)
    edges = np.arange(low, high + width + 1, width) - 0.5
    ax.hist(values, bins=edges.tolist(), color="0.7", edgecolor="black", linewidth=0.6)
    ax.axvline(values.mean(), color="black", linestyle="--", label=f"mean {values.mean():.4g}")
    ax.set_ylabel("clients")
    ax.set_xlim(edges[0] - 0.5 * width, edges[-1] + 0.5 * width)
    ax.set_ylim(0, _headroom() * ax.get_ylim()[1])
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(_whole_numbers())
    ax.legend(loc="upper right", fontsize=pt(8))
