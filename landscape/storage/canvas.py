"""Sizes while drawing, which depend on the style: on the screen those that are asked for, in a paper the venue's."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Annotation, Text
from matplotlib.transforms import BboxBase

from landscape.storage.display import png
from landscape.storage.formulas import subscripts
from landscape.storage.style import current_style

_SCREEN_FONT, _SCREEN_LINE = 10.0, 1.5
"""Matplotlib's font size and line width, in which sizes for the screen are thought."""
_LABELS, _ASPECT = 0.4, 0.6
"""Inches of height for the labels of a panel in a paper, and the share of its width that its height is beside."""


def pt(size: float) -> float:
    """A size of text or of a marker, in points: on the screen ``size``, in a paper as much smaller as its font is.

    Example:
        >>> from landscape.storage.canvas import pt
        >>> from landscape.storage.style import PictureStyle
        >>> pt(8)
        8
        >>> with PictureStyle("paper").drawing():
        ...     pt(8)
        6.4
    """
    return size * rcParams["font.size"] / _SCREEN_FONT if current_style().paper else size


def stroke(width: float) -> float:
    """The width of a line in points: on the screen ``width``, in a paper as much thinner as its lines are.

    Example:
        >>> from landscape.storage.canvas import stroke
        >>> from landscape.storage.style import PictureStyle
        >>> stroke(1.5)
        1.5
        >>> with PictureStyle("paper").drawing():
        ...     stroke(1.5)
        1.0
    """
    return width * rcParams["lines.linewidth"] / _SCREEN_LINE if current_style().paper else width


def across(panels: int, inches: float = 1.8) -> int:
    """How many of so many panels are beside each other: on the screen all, in a paper as many as are ``inches`` wide.

    Example:
        >>> from landscape.storage.canvas import across
        >>> from landscape.storage.style import PictureStyle
        >>> across(4)
        4
        >>> with PictureStyle("paper").drawing():  # 6.75 inches hold three, so two and two
        ...     across(4)
        2
    """
    if not current_style().paper:
        return panels
    most = max(1, int(current_style().width(several=panels > 1) / inches + 1e-6))
    rows = -(-panels // most)
    return -(-panels // rows)


class Picture(Figure):
    """A figure that a notebook shows as a picture, as a cell's last expression: without pyplot, which keeps figures and
    shows them again, and without ``%matplotlib inline``, which may be there."""

    def savefig(self, fname: Any, **options: Any) -> None:
        """As Matplotlib's, with subscripts (``λ_max``, ``f_i``) below the line."""
        with subscripts(self):
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        return png(self)


def new_figure(
    screen: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    *,
    room: float = 0.0,
    panel_height: float | None = None,
    wide: bool | None = None,
    **options: Any,
) -> Figure:
    """An empty figure for panels in so many rows and columns.

    Args:
        screen: width and height on the screen, in inches.
        rows, columns: of panels; they decide on the size in a paper.
        room: in a paper, inches of height beside those of the panels, as for a legend.
        panel_height: of a panel with its labels in a paper, in inches; from its width unless given.
        wide: whether it is as wide as the text in a paper; unless given, with panels beside each other.
        options: of :class:`matplotlib.figure.Figure`.
    """
    style = current_style()
    if not style.paper:
        return Picture(figsize=screen, **options)
    width = style.width(several=columns > 1 if wide is None else wide)
    height = panel_height if panel_height is not None else _LABELS + _ASPECT * width / columns
    return Picture(figsize=(width, rows * height + room), **options)


def panel_width(columns: int) -> float:
    """Inches that each of so many panels beside each other has in a paper."""
    return current_style().width(several=columns > 1) / columns


def fit_texts(figure: Figure) -> None:
    """Break labels, titles and entries of legends that are longer than what they belong to into lines, and move notes
    at points that lie on each other."""
    for _ in range(2):  # each break changes the layout
        figure.draw_without_rendering()
        changed = [_fit(text, room, upright) for text, room, upright in _texts(figure)]
        if not any(changed):
            break
    _settle(figure)
    for ax in figure.axes:
        notes = [text for text in ax.texts if isinstance(text, Annotation) and text.get_text()]
        _separate(notes, ax.get_window_extent())


_ENDS = re.compile(r"(?<=[,;|·]) | (?=[(])")
"""Where phrases end: behind a separator or before a bracket; not inside of brackets."""
_SUM = "\u00a0+\u00a0"
"""No line ends before the last term of a sum."""


def phrases(text: str, width: int) -> str:
    """``text`` in lines of up to so many letters, broken between phrases: behind a comma or a semicolon, or before a
    bracket.  A phrase that is longer than a line is broken behind a colon, or else at its spaces; a word never is.

    Example:
        >>> from landscape.storage.canvas import phrases
        >>> print(phrases("mean training loss (cross-entropy, nats), log scale", 42))
        mean training loss (cross-entropy, nats),
        log scale
        >>> print(phrases("mean training loss (cross-entropy, nats), log scale", 30))
        mean training loss
        (cross-entropy, nats),
        log scale
    """
    lines: list[str] = []
    for phrase in _phrases(text):
        joined = f"{lines[-1]} {phrase}" if lines else phrase
        if lines and len(joined) <= width:
            lines[-1] = joined
        else:
            parts = phrase.replace(": ", ":\n").split("\n") if len(phrase) > width else [phrase]
            for part in parts:
                lines += textwrap.wrap(part, width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_SUM, " + ")


def _phrases(text: str) -> Iterator[str]:
    """The phrases of a text; what stands in brackets is one with its brackets."""
    start, words = 0, text.replace("\n", " ").replace(" + ", _SUM)
    for end in _ENDS.finditer(words):
        before = words[: end.start()]
        if before.count("(") == before.count(")"):
            yield words[start : end.start()]
            start = end.end()
    yield words[start:]


def elided(text: str, most: int) -> str:
    """``text``, without its middle where it is longer than ``most`` letters.

    Example:
        >>> from landscape.storage.canvas import elided
        >>> elided("fedavg_dirichlet01_seed3_round200", 21), elided("fedavg", 21)
        ('fedavg_dir…3_round200', 'fedavg')
    """
    if len(text) <= most:
        return text
    last = (most - 1) // 2
    return f"{text[: most - 1 - last]}…{text[len(text) - last :]}"


def _settle(figure: Figure) -> None:
    """Draw until the layout stays: the first draws of axes to scale leave labels outside of the figure."""
    before = None
    for _ in range(6):
        figure.draw_without_rendering()
        now = [ax.get_window_extent().bounds for ax in figure.axes]
        if before is not None and np.allclose(now, before, atol=0.2):
            break
        before = now


def only_axes(figure: Figure) -> Axes | None:
    """The figure's axes if it has one apart from colour bars."""
    axes = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    return axes[0] if len(axes) == 1 else None


def _texts(figure: Figure) -> Iterator[tuple[Text, float, bool]]:
    """Each text that may be too long, the pixels there are for it, and whether it is upright."""
    for ax in figure.axes:
        if hasattr(ax, "get_zlim"):  # labels of perspective axes are broken where they are drawn
            continue
        box = ax.get_window_extent()
        yield ax.title, box.width, False
        yield ax.xaxis.label, 1.1 * box.width, False
        yield ax.yaxis.label, 1.05 * box.height, True
        yield from _entries(ax.get_legend(), box.width)
    for legend in figure.legends:
        yield from _entries(legend, figure.bbox.width)


def _entries(legend: Legend | None, room: float) -> Iterator[tuple[Text, float, bool]]:
    if legend is not None and (excess := legend.get_window_extent().width - 0.98 * room) > 0:
        widest = max(text.get_window_extent().width for text in legend.get_texts())
        for text in legend.get_texts():
            yield text, widest - excess, False


def _fit(text: Text, room: float, upright: bool) -> bool:
    """Break one text between its phrases, or else at its spaces; whether that changed it."""
    words = text.get_text()
    extent = text.get_window_extent()
    length = extent.height if upright else extent.width
    if not words or not text.get_visible() or length <= room:
        return False
    whole = words.replace("-\n", "-").replace("\n", " ")
    longest = max(map(len, words.split("\n")))
    lines = phrases(whole, max(8, int(longest * room / length)))
    text.set_text(lines)
    text.set_linespacing(1.0)
    return lines != words


def _separate(notes: Sequence[Annotation], inside: BboxBase) -> None:
    """Move a note that lies on an earlier one: to another side of its point, or a line farther from it; rather within
    the axes than outside of them."""
    for k, note in enumerate(notes):
        earlier = [other.get_window_extent() for other in notes[:k]]
        if not any(note.get_window_extent().overlaps(box) for box in earlier):
            continue
        (x, y), best = note.xyann, (2, 2)
        line = 1.5 * float(note.get_fontsize())
        places = [(x, y), (x, -y), (-x, y), (-x, -y), (x, y + line), (x, -y - line)]
        for place in places:
            _place(note, *place)
            box = note.get_window_extent()
            overlaps = any(box.overlaps(other) for other in earlier)
            within = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
            found = int(overlaps), int(not within)
            if found < best:
                best, chosen = found, place
        _place(note, *chosen)


def _place(note: Annotation, x: float, y: float) -> None:
    """Put a note so far from its point, on the side that the signs say."""
    note.xyann = (x, y)
    note.set_verticalalignment("bottom" if y >= 0 else "top")
    if x:
        note.set_horizontalalignment("left" if x > 0 else "right")
