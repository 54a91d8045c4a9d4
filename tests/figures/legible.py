"""Whether a figure can be read: no text too small, cut off, or on another."""

from itertools import combinations

from matplotlib.figure import Figure
from matplotlib.text import Text

SMALLEST = 5.0
"""Points that the smallest text must have."""


def texts(figure: Figure) -> list[Text]:
    """The texts that are drawn; of perspective axes, whose labels are oblique, the titles and legends."""
    found = [*figure.texts, *(text for part in figure.subfigs for text in part.texts)]
    legends = [*figure.legends]
    for ax in figure.axes:
        found += [ax.title, *ax.texts]
        legends += [ax.get_legend()] * (ax.get_legend() is not None)
        if hasattr(ax, "get_zlim") or not ax.axison:
            continue
        for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            ticks = [tick for tick in axis.get_major_ticks() if min(limits) <= tick.get_loc() <= max(limits)]
            found += [axis.label, *(label for tick in ticks for label in (tick.label1, tick.label2))]
    found += [text for legend in legends for text in legend.get_texts()]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def faults(figure: Figure) -> list[str]:
    """What is wrong with it, in words."""
    figure.draw_without_rendering()
    drawn = [(text, text.get_window_extent()) for text in texts(figure)]
    whole = figure.bbox.padded(1.5)
    wrong = [f"small: {text.get_text()!r}" for text, _ in drawn if text.get_fontsize() < SMALLEST]
    wrong += [
        f"cut off: {text.get_text()!r}"
        for text, box in drawn
        if box.x0 < whole.x0 or box.x1 > whole.x1 or box.y0 < whole.y0 or box.y1 > whole.y1
    ]
    wrong += [
        f"overlap: {a.get_text()!r} and {b.get_text()!r}"
        for (a, box), (b, other) in combinations(drawn, 2)
        if box.padded(-1).overlaps(other.padded(-1))
    ]
    return wrong
