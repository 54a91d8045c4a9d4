"""Write pictures with Matplotlib."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure, SubFigure
from matplotlib.text import Text

from landscape.errors import FedscapeError
from landscape.storage.canvas import fit_texts, only_axes
from landscape.storage.files import atomic_write, write_text
from landscape.storage.formulas import written
from landscape.storage.outputs import PRODUCER
from landscape.storage.style import PictureStyle, StyleName

_FILES: Any = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "fedscape"}
"""TrueType fonts, because publishers refuse Type 3; text as text; the same names in each file of one picture."""
_PAPER_DPI = 300
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": PRODUCER},
    "pdf": {"Creator": PRODUCER, "CreationDate": None},
    "svg": {"Creator": PRODUCER, "Date": None},
    "ps": {"Creator": PRODUCER},
    "eps": {"Creator": PRODUCER},
}
"""Who made a picture, by which the output layer knows it again, and no date; other formats have no room for that."""


def check_picture(path: str | Path) -> str:
    """The file format of a picture by its suffix, such as ``png``.

    Raises:
        FedscapeError: Matplotlib does not write this format.
    """
    kind = Path(path).suffix[1:].lower()
    known = FigureCanvasBase.get_supported_filetypes()
    if kind not in known:
        raise FedscapeError(f"{path} is no kind of picture Matplotlib writes: end it in {', '.join(sorted(known))}")
    return kind


def draw_picture(
    draw: Callable[[], Figure],
    path: str | Path | None = None,
    style: PictureStyle | StyleName = "screen",
    dpi: int = 150,
) -> Figure:
    """Draw a figure in a style, and write it to ``path`` where one is given.

    Args:
        draw: draws it.
        path: the picture's file; in the style of a paper, title and caption go beside it (:func:`save_figure`).
        style: the style, or ``screen`` or ``paper``.
        dpi: pixels an inch; in a paper 300 at least.

    Raises:
        FedscapeError: the file cannot be written, Matplotlib does not write its format, or no such style.
    """
    chosen = PictureStyle.of(style)
    if path is not None:
        check_picture(path)
    with chosen.drawing():
        figure = draw()
        spell_out(figure)
    if path is not None:
        save_figure(figure, path, dpi, chosen)
    return figure


def save_figure(
    figure: Figure, path: str | Path, dpi: int = 150, style: PictureStyle | StyleName = "screen"
) -> list[Path]:
    """Write a figure atomically, in the format of the suffix; the same figure gives the same bytes at any time.

    PDF and PostScript have TrueType fonts, SVG has text (labels with subscripts letter by letter).  In the style of a
    paper (draw in it: :func:`draw_picture`) the picture has the venue's width, no title and no caption below it; they
    are written to ``NAME.caption.txt`` beside it.  Titles of several panels stay.

    Returns:
        The files: the picture, and in the style of a paper its caption.

    Raises:
        FedscapeError: the file cannot be written, Matplotlib does not write its format, or no such style.
    """
    return _write(figure, [Path(path)], dpi, PictureStyle.of(style))


def save_figures(
    figure: Figure,
    stem: str | Path,
    formats: Sequence[str] = ("pdf", "svg", "png"),
    style: PictureStyle | StyleName = "screen",
    dpi: int = 150,
) -> list[Path]:
    """Write one figure in several formats, as :func:`save_figure` does: ``stem.pdf``, ``stem.svg``, ...

    Returns:
        The files, in the order of the formats; in the style of a paper then ``stem.caption.txt``.

    Raises:
        FedscapeError: as :func:`save_figure`; nothing is written where one of the formats is unknown.
    """
    return _write(figure, [Path(f"{stem}.{kind}") for kind in formats], dpi, PictureStyle.of(style))


def spell_out(figure: Figure) -> None:
    """Have every text of a figure drawn as it is: names of files and models may have $, _ or ^ in them, which
    Matplotlib would take for formulas, and fail.  Labels of ticks that an axis computes are its own affair.

    :func:`draw_picture` does it; a figure that is drawn by other means may have formulas.

    Example:
        >>> from matplotlib.figure import Figure
        >>> figure = Figure()
        >>> title = figure.suptitle(r"runs/$\\frac{$.pt")
        >>> spell_out(figure)
        >>> title.get_parse_math()
        False
    """
    for text in written(figure):
        text.set_parse_math(False)


def caption_of_figure(figure: Figure) -> str:
    """What the style of a paper leaves out of a figure: the title, then the caption, then a single panel's title.

    Example:
        >>> from matplotlib.figure import Figure
        >>> figure = Figure()
        >>> _ = figure.suptitle("FedAvg"), figure.supxlabel("bars: error bounds"), figure.subplots().set_title("Trace")
        >>> caption_of_figure(figure)
        'FedAvg\\nbars: error bounds\\nTrace'
    """
    return "\n".join(text.get_text() for text in _left_out(figure))


def _write(figure: Figure, paths: Sequence[Path], dpi: int, style: PictureStyle) -> list[Path]:
    kinds = [check_picture(path) for path in paths]
    if not style.paper:
        for path, kind in zip(paths, kinds, strict=True):
            _render(figure, path, kind, dpi)
        return list(paths)
    caption = paths[0].with_suffix(".caption.txt")
    with style.drawing(), _finished(figure, style):
        for path, kind in zip(paths, kinds, strict=True):
            _render(figure, path, kind, max(dpi, _PAPER_DPI))
    write_text(caption, f"{caption_of_figure(figure)}\n")
    return [*paths, caption]


def _render(figure: Figure, path: Path, kind: str, dpi: int) -> None:
    picture = io.BytesIO()
    plain = "svg" if kind == "svgz" else kind
    with rc_context(_FILES):
        figure.savefig(picture, format=plain, dpi=dpi, metadata=_METADATA.get(plain))
    contents = picture.getvalue()
    if kind in ("ps", "eps"):
        contents = re.sub(rb"^%%CreationDate:.*\n", b"", contents, count=1, flags=re.M)
    if kind == "svgz":
        contents = gzip.compress(contents, mtime=0)
    with atomic_write(path) as file:
        file.write(contents)


@contextmanager
def _finished(figure: Figure, style: PictureStyle) -> Iterator[None]:
    """Inside, the figure is as a paper has it: without title and caption, the venue's width, no text too long."""
    shown = [text for text in _left_out(figure) if text.get_visible()]
    size = figure.get_size_inches()
    for text in shown:
        text.set_visible(False)
        text.set_in_layout(False)
    if not any(abs(size[0] - style.width(several=several)) < 1e-6 for several in (False, True)):
        width = style.width(several=only_axes(figure) is None)
        figure.set_size_inches(width, size[1] * width / size[0])  # drawn without regard to the style
    try:
        fit_texts(figure)
        yield
    finally:
        figure.set_size_inches(*size)
        for text in shown:
            text.set_visible(True)
            text.set_in_layout(True)


def _left_out(figure: Figure) -> list[Text]:
    """The texts that a paper's picture has not: titles and captions of the whole, and the title of a single panel."""
    parts = list(_parts(figure))
    titles = [getattr(part, "_suptitle", None) for part, alone in parts if alone]
    captions = [getattr(part, "_supxlabel", None) for part, _ in parts]
    ax = only_axes(figure)
    texts = [*titles, *captions, None if ax is None else ax.title]
    return [text for text in texts if text is not None and text.get_text()]


def _parts(figure: Figure | SubFigure, alone: bool = True) -> Iterator[tuple[Figure | SubFigure, bool]]:
    """The figure and its parts, with whether there is no other part beside it, whose title would name it."""
    yield figure, alone
    for part in figure.subfigs:
        yield from _parts(part, alone and len(figure.subfigs) == 1)
