"""Sizes while drawing, which depend on the style: on the screen those that are asked for, in a paper the venue's."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Annotation, Text

from landscape.display import png
from landscape.storage.style import current_style

_SCREEN_FONT = 10.0
"""Matplotlib's font size, in which sizes for the screen are thought."""
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
    figure.draw_without_rendering()
    for ax in figure.axes:
        _separate([text for text in ax.texts if isinstance(text, Annotation) and text.get_text()])


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
    """Break one text at its spaces; whether that changed it."""
    words = text.get_text()
    extent = text.get_window_extent()
    length = extent.height if upright else extent.width
    if not words or not text.get_visible() or length <= room:
        return False
    whole = words.replace("-\n", "-").replace("\n", " ")
    longest = max(map(len, words.split("\n")))
    limits: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    lines = textwrap.fill(whole, max(8, int(longest * room / length)), **limits)
    text.set_text(lines)
    text.set_linespacing(1.0)
    return lines != words


def _separate(notes: Sequence[Annotation]) -> None:
    """Put a note that lies on an earlier one to the other side of its point, below instead of above."""
    for k, note in enumerate(notes):
        box = note.get_window_extent()
        if any(box.overlaps(other.get_window_extent()) for other in notes[:k]):
            x, y = note.xyann
            note.xyann = (x, -y)
            note.set_verticalalignment("top")
