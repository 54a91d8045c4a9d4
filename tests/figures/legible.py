"""Whether a figure can be read: no text too small, cut off, or on another."""

from itertools import combinations, pairwise

from matplotlib.axis import Axis
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


def labels_of(axis: Axis) -> list[Text]:
    """The labels of its ticks, of minor ones too, that are drawn."""
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * (high - low)
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    labels = [
        label for tick in ticks if low - slack <= tick.get_loc() <= high + slack for label in (tick.label1, tick.label2)
    ]
    return [label for label in labels if label.get_visible() and label.get_text().strip()]


def crowded(figure: Figure) -> list[str]:
    """Horizontal labels of ticks with less than a third of a letter's height between them."""
    wrong = []
    for ax in figure.axes:
        if hasattr(ax, "get_zlim") or not ax.axison:
            continue
        labels = [label for label in labels_of(ax.xaxis) if label.get_rotation() == 0]
        boxes = sorted(((label.get_window_extent(), label) for label in labels), key=lambda pair: pair[0].x0)
        for (box, label), (after, other) in pairwise(boxes):
            if after.x0 - box.x1 < box.height / 3 and after.x0 > box.x0:
                wrong.append(f"crowded: {label.get_text()!r} and {other.get_text()!r}")
    return wrong


def bare(figure: Figure) -> list[str]:
    """Logarithmic axes with fewer than two labelled ticks, colour bars among them."""
    return [
        f"bare: the {axis.axis_name} axis of {ax.get_title() or ax.get_label()!r} from {axis.get_view_interval()}"
        for ax in figure.axes
        for axis in (() if hasattr(ax, "get_zlim") else (ax.xaxis, ax.yaxis))
        if axis.get_scale() == "log" and len(labels_of(axis)) < 2 and ax.axison and shown(axis)
    ]


def shown(axis: Axis) -> bool:
    """Whether it has labels at all: those of inner panels that share an axis have not."""
    return any(tick.label1.get_visible() or tick.label2.get_visible() for tick in axis.get_major_ticks())


def faults(figure: Figure) -> list[str]:
    """What is wrong with it, in words."""
    figure.draw_without_rendering()
    drawn = [(text, text.get_window_extent()) for text in texts(figure)]
    whole = figure.bbox.padded(0.5)
    wrong = [f"small: {text.get_text()!r}" for text, _ in drawn if text.get_fontsize() < SMALLEST]
    wrong += [
        f"cut off: {text.get_text()!r}"
        for text, box in drawn
        if box.x0 < whole.x0 or box.x1 > whole.x1 or box.y0 < whole.y0 or box.y1 > whole.y1
    ]
    wrong += crowded(figure) + bare(figure)
    wrong += [
        f"overlap: {a.get_text()!r} and {b.get_text()!r}"
        for (a, box), (b, other) in combinations(drawn, 2)
        if box.padded(-1).overlaps(other.padded(-1))
    ]
    return wrong
