"""Subscripts of the formulas in a picture's texts, set below the line while it is written to a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from matplotlib.figure import Figure, SubFigure
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FuncFormatter

_LETTER = r"(?<![A-Za-z0-9_Α-ω./])([A-Za-zΑ-ω])_(max|min|[A-Za-z0-9])(?![A-Za-z0-9_]|\.\w)"
_NORM = r"‖²_([A-Z])(?![A-Za-z0-9_])"


def typeset(text: str) -> str | None:
    """A text with its subscripts as Matplotlib's formulas; ``None`` where it has none, or would not be read as meant.

    A subscript is one letter's, so that names such as ``digits_mlp`` stay as they are.

    Example:
        >>> from landscape.storage.formulas import typeset
        >>> print(typeset("λ_max of f at w_i"))
        $\\mathregular{λ_{max}}$ of f at $\\mathregular{w_{i}}$
        >>> typeset("digits_mlp") is None
        True
    """
    if "$" in text or "\\" in text:
        return None
    found = re.sub(_LETTER, r"$\\mathregular{\1_{\2}}$", text)
    found = re.sub(_NORM, r"‖$\\mathregular{^{2}_{\1}}$", found)
    return None if found == text else found


@contextmanager
def subscripts(figure: Figure) -> Iterator[None]:
    """Inside, subscripts of a figure's texts that are drawn as they are (without formulas) stand below the line."""
    changed = []
    for text in written(figure):
        plain = text.get_text()
        if not text.get_parse_math() and (formula := typeset(plain)) is not None:
            changed.append((text, plain))
            text.set(text=formula, parse_math=True)
    try:
        yield
    finally:
        for text, plain in changed:
            text.set(text=plain, parse_math=False)


def written(part: Figure | SubFigure) -> Iterator[Text]:
    """The texts of a figure that somebody wrote, and of ticks those that were given names."""
    whole = (getattr(part, name, None) for name in ("_suptitle", "_supxlabel", "_supylabel"))
    yield from (text for text in whole if text is not None)
    yield from part.texts
    legends = [*part.legends, *(ax.get_legend() for ax in part.axes)]
    for legend in legends:
        if legend is not None:
            yield from (*legend.get_texts(), legend.get_title())
    for ax in part.axes:
        yield from (ax.title, *ax.texts)
        for axis in ax._axis_map.values():  # x, y and, in three dimensions, z
            yield axis.label
            if isinstance(axis.get_major_formatter(), FixedFormatter | FuncFormatter):
                yield from axis.get_ticklabels()
    for inner in part.subfigs:
        yield from written(inner)
