"""Samples by client and class as heat maps; samples by class with against without replacement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from figures.plots.layout import LegendPlace, add_legend, array, check_panels, grid
from landscape import FedscapeError
from trainers.plots.partitions import draw_heat_map


@dataclass(frozen=True, eq=False)
class CountPanel:
    """One panel: its title, and samples by client and class, [clients, classes]."""

    title: str
    counts: np.ndarray


@dataclass(frozen=True, eq=False)
class HistogramPanel:
    """One panel: samples of each class that all clients have together.

    Attributes:
        title: above it.
        with_replacement, without: [classes] each.
    """

    title: str
    with_replacement: np.ndarray
    without: np.ndarray


def plot_heat_maps(
    panels: Sequence[CountPanel], *, columns: int | None = None, title: str = "", caption: str = ""
) -> Figure:
    """Draw client × class heat maps on one scale with one colour bar (Sun et al., ICML 2023, Figure 5).

    Raises:
        FedscapeError: nothing to draw, counts that are not [clients, classes], or negative ones.
    """
    check_panels(panels, "counts")
    counts = [array(panel.counts, f"the counts of '{panel.title}'", 2) for panel in panels]
    if min(float(numbers.min()) for numbers in counts) < 0:
        raise FedscapeError("a client has fewer than 0 samples of a class: give counts")
    made = grid(len(panels), columns, size=(4.6, 4.0))
    most = max(float(numbers.max()) for numbers in counts)
    image: Any = None
    for ax, panel, numbers in zip(made.axes, panels, counts, strict=True):
        image = draw_heat_map(ax, numbers, most)
        ax.set_title(panel.title, parse_math=False)
    made.body.colorbar(image, ax=made.axes, label="samples", pad=0.02)
    return made.finish(title, caption, "grey by the square root of the count")


def plot_class_histograms(
    panels: Sequence[HistogramPanel],
    *,
    columns: int | None = None,
    legend: LegendPlace = "below",
    title: str = "",
    caption: str = "",
) -> Figure:
    """Draw samples by class with and without replacement (Sun et al., ICML 2023, Figures 2 and 6).

    The bars are those with replacement, the line those without; each panel says the standard deviations over the
    classes, with divisor C.

    Raises:
        FedscapeError: nothing to draw, or numbers of different classes.
    """
    check_panels(panels, "samples by class")
    made = grid(len(panels), columns, size=(5.2, 3.4))
    handles: dict[str, Any] = {}
    for place, (ax, panel) in enumerate(zip(made.axes, panels, strict=True)):
        drawn, plain = (
            array(v, f"the samples by class of '{panel.title}'") for v in (panel.with_replacement, panel.without)
        )
        if len(drawn) != len(plain):
            raise FedscapeError(f"'{panel.title}' has {len(drawn)} classes with replacement and {len(plain)} without")
        few = len(drawn) <= 40
        style: dict[str, Any] = {"color": "#009E73", "edgecolor": "black" if few else "none", "linewidth": 0.6}
        bars = ax.bar(np.arange(len(drawn)), drawn, width=0.9 if few else 1.0, **style)
        edges = np.arange(len(plain) + 1) - 0.5
        line = ax.stairs(plain, edges, baseline=None, color="#D55E00", linewidth=2, linestyle="--")
        handles |= {"with replacement": bars, "without replacement": line}
        text = f"deviation {drawn.std():.2f} with,\n{plain.std():.2f} without replacement"
        ax.text(0.98, 0.97, text, transform=ax.transAxes, ha="right", va="top", fontsize="small")
        ax.set_title(panel.title, parse_math=False)
        ax.set(xlabel="class", ylabel="samples of all clients" if made.left(place) else "")
        ax.set_xlim(-0.7, len(drawn) - 0.3)
        ax.set_ylim(0, 1.3 * max(drawn.max(), plain.max()))
        ax.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    add_legend(made, handles, legend)
    return made.finish(title, caption)
