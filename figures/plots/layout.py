"""What all kinds of pictures share: a grid of panels, looks that stay with a label, legends, captions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from analysis.style import COLOURS, DASHES, MARKERS, log_axis, percent_axis
from analysis.surface.plots.captions import wrapped
from landscape import FedscapeError
from landscape.storage.canvas import Picture
from landscape.storage.style import current_style

LegendPlace = Literal["auto", "inside", "right", "below"]
CAPTION = "small"
"""Size of captions, relative to Matplotlib's ``font.size``."""

_MORE_COLOURS = ("#882255", "#7F7F7F", "#332288", "#44AA99", "#AA4499")
_MORE_MARKERS = "<>hp*"
_MORE_DASHES = (
    (0, (7, 1, 1, 1, 1, 1)), (0, (3, 3)), (0, (7, 2, 3, 2)), (0, (2, 1, 2, 3)), (0, (9, 3)),
)  # fmt: skip
_ALL_COLOURS = (*COLOURS, *_MORE_COLOURS)
_ALL_MARKERS = MARKERS + _MORE_MARKERS
_ALL_DASHES = (*DASHES, *_MORE_DASHES)
_NARROWEST, _WIDE = 1.5, 6.0
"""Width and height in inches below which a panel has no room beside its labels, and the width on the screen from which
one is as wide as a paper's text."""
MOST = len(_ALL_COLOURS)
"""The most things of one picture that have looks of their own."""


@dataclass(frozen=True)
class Look:
    """How one thing is drawn in all panels: no two things share a colour, a marker or a dash."""

    colour: str
    marker: str
    dash: Any


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """The looks of labels, in the order in which they first appear; the first seven are the package's.

    Raises:
        FedscapeError: there are more labels than looks.
    """
    distinct = list(dict.fromkeys(labels))
    if len(distinct) > MOST:
        raise FedscapeError(
            f"{len(distinct)} curves cannot be told apart in one picture: give {MOST} at most, or several pictures"
        )
    every = zip(_ALL_COLOURS, _ALL_MARKERS, _ALL_DASHES, strict=True)
    return {label: Look(*look) for label, look in zip(distinct, every, strict=False)}


def check_panels(panels: Sequence[Any], what: str) -> None:
    """Refuse a picture of nothing.

    Raises:
        FedscapeError: there is no panel.
    """
    if not panels:
        raise FedscapeError(f"there is nothing to draw: give one panel of {what} or more")


def array(values: Any, what: str, axes: int = 1) -> np.ndarray:
    """The values as numbers with so many axes.

    Raises:
        FedscapeError: they have another number of axes, or there are none.
    """
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise FedscapeError(f"{what} are no numbers: {error}") from error
    if found.ndim != axes or not found.size:
        raise FedscapeError(f"{what} have the shape {list(found.shape)}: give numbers with {axes} axes, one or more")
    return found


def same_length(what: str, **arrays: np.ndarray | None) -> None:
    """Refuse arrays that do not belong together.

    Raises:
        FedscapeError: their lengths differ.
    """
    lengths = {name: len(values) for name, values in arrays.items() if values is not None}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{length} of {name}" for name, length in lengths.items())
        raise FedscapeError(f"the values of {what} do not belong together ({told}): give as many of each")


@dataclass(frozen=True)
class Level:
    """A horizontal line for reference: a target, or what centralised training reaches."""

    label: str
    value: float


_LEVELS = (("0.35", (0, (6, 2))), ("0.6", (0, (1, 1.5))), ("0.0", (0, (3, 1, 1, 1))))


def draw_levels(ax: Axes, levels: Sequence[Level], names: Sequence[str], look_of: Mapping[str, Look]) -> dict[str, Any]:
    """Draw horizontal lines, and return those that the legend has not yet, by label.

    One with a curve's label looks like the curve; the others are grey, in the order of ``names``, those of all panels.

    Raises:
        FedscapeError: there are more of them than greys.
    """
    grey = [name for name in dict.fromkeys(names) if name not in look_of]
    if len(grey) > len(_LEVELS):
        raise FedscapeError(f"{len(grey)} horizontal lines cannot be told apart: give {len(_LEVELS)} at most")
    drawn = {}
    for level in levels:
        look = look_of.get(level.label)
        colour, dash = _LEVELS[grey.index(level.label)] if look is None else (look.colour, look.dash)
        drawn[level.label] = ax.axhline(level.value, color=colour, linestyle=dash, linewidth=line_width(0.8), zorder=1)
    return {label: line for label, line in drawn.items() if label in grey}


@dataclass(frozen=True)
class Grid:
    """A figure with its panels, row by row.

    Attributes:
        figure: the whole.
        body: the part between title and caption, with panels and legend: Matplotlib would put a legend below the
            panels over the caption.
        axes: those of the panels, without empty places.
        columns: panels in a row.
        styled: whether a style has set the width.
    """

    figure: Figure
    body: SubFigure
    axes: list[Axes]
    columns: int
    styled: bool = False

    def left(self, place: int) -> bool:
        """Whether the panel is the first of its row."""
        return place % self.columns == 0

    def finish(self, title: str, caption: str, *signs: str) -> Figure:
        """Write the title and the caption with what the signs in the picture mean, broken to the figure's width."""
        if signs:
            caption = with_signs(caption, *signs)
        if title:
            self.figure.suptitle(title, parse_math=False)
        if caption:
            text = wrapped(caption, float(self.figure.get_figwidth()))
            self.figure.supxlabel(text, fontsize=CAPTION, color="0.3", parse_math=False)
        return self.figure


def with_signs(caption: str, *signs: str) -> str:
    """A caption that ends with what the signs in the picture mean; an empty one is of a sign that there is not.

    Example:
        >>> with_signs("Two clients.", "dotted: the default", "", "×: no result")
        'Two clients; dotted: the default; ×: no result'
    """
    return "; ".join(filter(None, [caption.removesuffix("."), *signs]))


def shape(count: int, columns: int | None = None) -> tuple[int, int]:
    """Rows and columns for so many panels; without ``columns`` as :func:`grid` says.

    Raises:
        FedscapeError: fewer than one column.

    Example:
        >>> shape(4), shape(5), shape(4, 2)
        ((1, 4), (2, 3), (2, 2))
    """
    if columns is not None and columns < 1:
        raise FedscapeError(f"{columns} panels in a row are none: give 1 or more")
    across = min(columns or (count if count <= 4 else math.ceil(count / math.ceil(count / 4))), count)
    return math.ceil(count / across), across


def grid(
    count: int,
    columns: int | None = None,
    *,
    size: tuple[float, float] = (4.2, 3.3),
    sharex: Literal["none", "all", "row", "col"] = "none",
    sharey: Literal["none", "all", "row", "col"] = "none",
) -> Grid:
    """A figure of so many panels.

    In a paper's style (:class:`landscape.storage.style.PictureStyle`) the width is that of a column of the venue, or of
    its text where panels stand beside each other or one is wide: the panels have what there is, and there are fewer in
    a row where they would be narrower than 1.5 inches.

    Args:
        count: of panels.
        columns: panels in a row; ``None``: all of up to four, else rows that are as equal as can be.
        size: of a panel in inches, with its labels, unless a style has set the width.
        sharex, sharey: which panels share an axis.

    Raises:
        FedscapeError: fewer than one column.
    """
    rows, across = shape(count, columns)
    width, style = size[0] * across + 0.3, current_style()
    if styled := style.paper:
        width = style.width(several=across > 1 or size[0] > _WIDE)
        rows, across = shape(count, max(1, min(across, int(width // _NARROWEST))))
    one = width / across if styled else size[0]
    figure = Picture(
        figsize=(width, max(_NARROWEST, one * size[1] / size[0]) * rows + (0.2 if styled else 0.5)),
        layout=ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.06, hspace=0.03, wspace=0.03),
    )
    body = figure.subfigures(1, 1, squeeze=False)[0, 0]
    axes = body.subplots(rows, across, squeeze=False, sharex=sharex, sharey=sharey).ravel()
    for ax in axes[count:]:
        ax.remove()
    return Grid(figure, body, list(axes[:count]), across, styled)


def rounds_axis(ax: Axes) -> None:
    """Whole numbers on x."""
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def value_axis(ax: Axes, *, percent: bool, log: bool) -> None:
    """The y axis: shares in percent (labelled by :func:`analysis.style.in_percent`), or a logarithm; a light grid."""
    if log:
        log_axis(ax)
    if percent:
        percent_axis(ax.yaxis)
    ax.grid(alpha=0.3)


def check_value_axis(*, percent: bool, log: bool) -> None:
    """Refuse an axis that cannot be.

    Raises:
        FedscapeError: percentages on a logarithmic axis.
    """
    if percent and log:
        raise FedscapeError("shares in percent have a linear axis: give percent or log_y, not both")


def add_legend(made: Grid, handles: Mapping[str, Any], place: LegendPlace) -> None:
    """One legend for all panels.

    ``auto`` is inside where there is one panel with up to four entries, else to the right, or below where a style has
    set the width.

    Raises:
        FedscapeError: an unknown place.
    """
    if place not in ("auto", "inside", "right", "below"):
        raise FedscapeError(f"unknown place of the legend '{place}': give auto, inside, right or below")
    if not handles:
        return
    if place == "auto":
        place = "inside" if len(made.axes) == 1 and len(handles) <= 4 else "below" if made.styled else "right"
    entries: tuple[list[Any], list[str]] = (list(handles.values()), list(handles))
    if place == "inside":
        made.axes[0].legend(*entries)
        return
    # Room for the legend, so that the panels keep their size; a style's width stays.
    width, height = made.figure.get_size_inches()
    points = float(FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points())
    longest = points / 72 * (0.6 * max(map(len, handles)) + 4.5)  # letters, the handle, the space around them
    if place == "right":
        made.figure.set_size_inches(width + (0 if made.styled else longest), height)
        made.body.legend(*entries, loc="outside right center")
    else:
        columns = int(np.clip(width // longest, 1, len(handles)))
        made.figure.set_size_inches(width, height + points / 45 * math.ceil(len(handles) / columns))
        made.body.legend(*entries, loc="outside lower center", ncols=columns)


def line_width(factor: float = 1.0) -> float:
    """A line's width in points, in multiples of Matplotlib's setting, so that a style can make all lines thinner."""
    return factor * float(rcParams["lines.linewidth"])


def marker_size(factor: float = 1.0) -> float:
    """A marker's size in points, in multiples of Matplotlib's setting."""
    return factor * float(rcParams["lines.markersize"])
