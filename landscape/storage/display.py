"""How results show themselves: a short line in a console, facts and a picture in a notebook."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST = 240
"""Characters of a short line: it fits on three lines of a terminal."""
_NARROW, _WIDE, _DOTS = 700, 1600, 100
"""Pixels of a picture's width at least and at most, and an inch between."""


class Shown:
    """A result that shows itself: in a console by a short line, in a notebook by its facts and its picture.

    A subclass says what is to be told.  One that is a dataclass asks for ``repr=False``, unless the dataclass's own
    line is short enough.  Names and titles come from files, so nothing of them is obeyed: in HTML all text is escaped,
    and characters that a terminal would obey are left out.

    Example:
        >>> from landscape.storage.display import Shown
        >>> class Peak(Shown):
        ...     def _heading(self):
        ...         return "at <w>"
        ...
        ...     def _facts(self):
        ...         return {"height": "2.5", "samples": "40"}
        >>> Peak()
        Peak(at <w>; height 2.5, samples 40)
        >>> print(Peak()._repr_html_())
        <p><b>Peak</b> at &lt;w&gt;</p>
        <table>
        <tr><th scope="row">height</th><td>2.5</td></tr>
        <tr><th scope="row">samples</th><td>40</td></tr>
        </table>
    """

    def _heading(self) -> str:
        """What it is of, in a few words."""
        return ""

    def _facts(self) -> Mapping[str, str]:
        """The main numbers as text, by name; unless a subclass says others, the numbers and texts among its fields."""
        if not is_dataclass(self):
            return {}
        plain = {field.name.replace("_", " "): getattr(self, field.name) for field in fields(self)}
        return {name: told(value) for name, value in plain.items() if isinstance(value, (int, float, str))}

    def _picture(self) -> Figure | None:
        """Its picture, where it has one."""
        return None

    def _table(self) -> str:
        """In a notebook, what is below the picture, as HTML: the facts, unless a subclass says more."""
        return facts_table(self._facts())

    def __repr__(self) -> str:
        return short_line(type(self).__name__, self._heading(), self._facts())

    def _repr_html_(self) -> str:
        lines = [f"<p><b>{type(self).__name__}</b> {escaped(self._heading())}".rstrip() + "</p>"]
        if (figure := self._picture()) is not None:
            picture = base64.b64encode(png(figure)).decode()
            lines.append(
                f'<img alt="{type(self).__name__}" style="max-width:100%" src="data:image/png;base64,{picture}">'
            )
        return "\n".join([*lines, self._table()])


def png(figure: Figure) -> bytes:
    """A figure as a PNG for a notebook: 100 pixels an inch, and from 700 to 1600 pixels wide.

    Example:
        >>> from landscape.storage.display import png
        >>> from landscape.storage.canvas import new_figure
        >>> image = png(new_figure((20, 1)))
        >>> image[:8], int.from_bytes(image[16:20], "big"), int.from_bytes(image[20:24], "big")
        (b'\\x89PNG\\r\\n\\x1a\\n', 1600, 80)
    """
    width = float(figure.get_size_inches()[0])
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=min(max(_DOTS * width, _NARROW), _WIDE) / width)
    return picture.getvalue()


def short_line(kind: str, heading: str, facts: Mapping[str, str]) -> str:
    """``Kind(heading; fact 1, other 2)`` of at most 240 characters, all of which can be printed."""
    told = ", ".join(f"{name} {value}" for name, value in facts.items())
    words = "".join(c if c.isprintable() else " " for c in "; ".join(part for part in (heading, told) if part))
    room = _LONGEST - len(kind) - 2
    return f"{kind}({words if len(words) <= room else words[: room - 1].rstrip() + '…'})"


def facts_table(facts: Mapping[str, str]) -> str:
    """Names and what is told of them as an HTML table; empty where there is nothing to tell."""
    rows = [f'<tr><th scope="row">{escaped(name)}</th><td>{escaped(value)}</td></tr>' for name, value in facts.items()]
    return "\n".join(["<table>", *rows, "</table>"]) if rows else ""


def escaped(text: str) -> str:
    """Text for HTML, without characters that nobody can see."""
    return html.escape("".join(c if c.isprintable() else " " for c in text))


def told(value: float | str | bool) -> str:
    """A plain value as text: numbers with four digits, counts with all of theirs.

    Example:
        >>> from landscape.storage.display import told
        >>> [told(value) for value in (0.123456, 12345, "cpu", True)]
        ['0.1235', '12,345', 'cpu', 'yes']
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else f"{value:.4g}"
