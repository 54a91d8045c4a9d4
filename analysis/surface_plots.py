"""Pictures of loss surfaces; panels that share a scale can stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from analysis.directions import FILTER

if TYPE_CHECKING:
    from analysis.surface import Surface


@dataclass(frozen=True)
class Scale:
    """Levels, ticks and colour norm for the values of one panel or of several.

    A logarithmic scale starts at the smallest positive value, but not eight decades below the median, and
    spans eight decades at most; what lies beyond takes the colour of the end.
    """

    levels: np.ndarray
    ticks: Any
    norm: Normalize | None = None
    extend: str = "neither"

    @classmethod
    def of(cls, values: np.ndarray, *, logarithmic: bool = False) -> Scale | None:
        """A scale for these values; logarithmic, if that is wanted, where they span more than a decade.

        ``None`` where none of them is finite.
        """
        finite = values[np.isfinite(values)]
        if not finite.size:
            return None
        low, high = float(finite.min()), float(finite.max())
        floor = max(float(finite[finite > 0].min(initial=high)), 1e-8 * float(np.median(finite)))
        if logarithmic and low >= 0 and high > 10 * floor:
            top = min(high, 1e8 * floor)
            extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get((low < floor, high > top))
            subs = (1.0,) if top > 1e4 * floor else (1.0, 2.0, 5.0)
            return cls(np.geomspace(floor, top, 29), LogLocator(subs=subs), LogNorm(floor, top), extend or "neither")
        if high - low > 1e-9 * max(abs(high), abs(low)):
            levels = np.unique(np.clip(MaxNLocator(25).tick_values(low, high), low, high))
            return cls(levels, MaxNLocator(6, steps=[1, 2, 5, 10]))
        return cls(low + np.array([-1, 1]) * max(1e-6 * abs(low), 1e-12), [low])


def draw_panel(ax: Axes, surface: Surface, values: np.ndarray, scale: Scale | None, colours: str) -> Any:
    """Filled contours, a thin line at every fourth level, the checkpoint as a white dot.

    Returns what :func:`draw_colour_bar` wants: the contours, or ``None`` where no value is finite.
    """
    drawn = None
    ax.set_facecolor("0.8")
    if scale is not None and np.isfinite(values).any():
        visible = np.ma.maximum(np.ma.masked_invalid(values), scale.levels[0])
        filled = ax.contourf(
            surface.x, surface.y, visible, scale.levels, cmap=colours, norm=scale.norm, extend=scale.extend
        )
        lines = ax.contour(surface.x, surface.y, visible, scale.levels[::4], colors="black", linewidths=0.4, alpha=0.6)
        drawn = filled, lines
    else:
        ax.text(0.5, 0.6, "no finite value", transform=ax.transAxes, ha="center")
    ax.plot(0, 0, "o", markersize=6, markerfacecolor="white", markeredgecolor="black")
    ax.locator_params(nbins=5)
    ax.set(aspect="equal", xlim=surface.x[[0, -1]], ylim=surface.y[[0, -1]])
    scaled = " (filter-normalised)" if surface.provenance.normalisation == FILTER else ""
    ax.set_xlabel(f"step along direction 1{scaled}")
    ax.set_ylabel(f"step along direction 2{scaled}")
    return drawn


def draw_colour_bar(figure: Figure | SubFigure, axes: Sequence[Axes], drawn: Any, scale: Scale, label: str) -> None:
    """One colour bar for all panels in ``axes``, which share ``scale``; ``drawn`` is any one's contours."""
    filled, lines = drawn
    number = FuncFormatter(lambda value, _: f"{value:.4g}")
    bar = figure.colorbar(filled, ax=list(axes), ticks=scale.ticks, format=number, fraction=0.046, pad=0.03)
    bar.ax.minorticks_off()
    bar.add_lines(lines)
    bar.set_label(label, parse_math=False)


def plot_surface(surface: Surface) -> Figure:
    """Loss and, where it was measured, accuracy."""
    p, word = surface.provenance, surface.split_word
    panels = [("loss", surface.loss, "viridis", surface.loss_label, True)]
    if surface.accuracy is not None:
        panels.append(("accuracy", 100 * surface.accuracy, "cividis", f"{word} accuracy (%)", False))
    figure = Figure(figsize=(0.4 + 5.6 * len(panels), 5.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (title, values, colours, label, logarithmic) in zip(axes, panels, strict=True):
        scale = Scale.of(values, logarithmic=logarithmic)
        drawn = draw_panel(ax, surface, values, scale, colours)
        ax.set_title(title)
        if drawn is not None and scale is not None:
            draw_colour_bar(figure, [ax], drawn, scale, label)
    where = "" if p.round is None else f", round {p.round}"
    of = "" if p.clients == "all" else f" of clients {p.clients}" if len(p.clients) < 30 else " of some clients"
    figure.suptitle(
        f"Loss surface around {p.algorithm}{where}\n{p.model} on {p.data}: {p.samples:,} {word} samples{of}",
        fontsize=12,
        parse_math=False,
    )
    separator = ", " if len(panels) == 2 else "\n"
    caption = (
        f"white dot: the checkpoint {p.checkpoint[:8]}; {surface.recipe}{separator}seed {p.seed}, "
        f"cosine {surface.notes.get('cosine', float('nan')):.3f}; {len(surface.x)} × {len(surface.y)} points, {p.dtype}"
    )
    missing = int((~surface.measured).sum())
    if surface.not_finite or missing:
        parts = [f"{surface.not_finite:,} not finite"] * bool(surface.not_finite)
        parts += [f"{missing:,} not measured"] * bool(missing)
        caption += f"\ngrey: around points that have no value ({', '.join(parts)})"
    figure.supxlabel(caption, fontsize=8, color="0.3")
    return figure
