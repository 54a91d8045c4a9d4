"""Tables of results, as text, CSV, Markdown, LaTeX, HTML and JSON."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from landscape.display import short_line
from landscape.errors import FedscapeError
from landscape.storage.files import json_ready, write_text


@dataclass(frozen=True, repr=False)
class Table:
    """Column names and rows; numbers keep all their digits in CSV and JSON and are rounded elsewhere.

    Example:
        >>> from landscape.terminal.table import Table
        >>> print(Table(("client", "loss"), (("a", 0.123456), ("b", None))))
        client    loss
        ------  ------
        a       0.1235
        b            -
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | None, ...], ...]

    def __str__(self) -> str:
        cells = [self.columns, *[tuple(_text(value) for value in row) for row in self.rows]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]
        return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])

    def __repr__(self) -> str:
        return short_line("Table", f"{len(self.rows)} × {len(self.columns)}: {', '.join(self.columns)}", {})

    def _repr_html_(self) -> str:
        return self.html()

    def csv(self) -> str:
        """Comma-separated values with a header line; ``None`` is empty.

        Text that a spreadsheet would compute, as it begins with =, +, - or @ and is no number, has a ' before it.

        Example:
            >>> from landscape.terminal.table import Table
            >>> print(Table(("name", "change"), (("=1+1", "-0.5"),)).csv(), end="")
            name,change
            '=1+1,-0.5
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([_cell(value) for value in row] for row in (self.columns, *self.rows))
        return text.getvalue()

    def markdown(self) -> str:
        """A Markdown table; numbers rounded as in text."""
        rule = ("---", *["---:"] * (len(self.columns) - 1))
        rows = [self.columns, rule, *[tuple(_text(value) for value in row) for row in self.rows]]
        return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |\n" for row in rows)

    def latex(self) -> str:
        """A LaTeX ``tabular`` with the rules of the package booktabs; numbers rounded as in text."""
        lines = [" & ".join(_escaped(name) for name in self.columns) + r" \\"]
        lines += [" & ".join(_escaped(_text(value)) for value in row) + r" \\" for row in self.rows]
        form = "l" + "r" * (len(self.columns) - 1)
        head = [rf"\begin{{tabular}}{{{form}}}", r"\toprule", lines[0], r"\midrule"]
        return "\n".join([*head, *lines[1:], r"\bottomrule", r"\end{tabular}"]) + "\n"

    def html(self, caption: str = "") -> str:
        """An HTML ``<table>``, with the column names as headers of columns and the first cells as those of rows;
        numbers rounded as in text.

        Example:
            >>> from landscape.terminal.table import Table
            >>> print(Table(("run", "loss"), (("a<b", 0.5),)).html("at <w>"), end="")
            <table>
            <caption>at &lt;w&gt;</caption>
            <thead>
            <tr><th scope="col">run</th><th scope="col">loss</th></tr>
            </thead>
            <tbody>
            <tr><th scope="row">a&lt;b</th><td>0.5</td></tr>
            </tbody>
            </table>
        """
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in self.columns)
        lines = ["<table>", *[f"<caption>{html.escape(caption)}</caption>"] * bool(caption)]
        lines += ["<thead>", f"<tr>{head}</tr>", "</thead>", "<tbody>"]
        for row in self.rows:
            name, *others = (html.escape(_text(value)) for value in row)
            lines.append(f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>')
        return "\n".join([*lines, "</tbody>", "</table>"]) + "\n"

    def json(self) -> str:
        """A JSON list with an object for each row; numbers with all digits, those that are not finite ``null``."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return json.dumps(json_ready(rows), indent=2, ensure_ascii=False) + "\n"

    def save(self, stem: str | Path, formats: Sequence[str] = ("txt", "csv")) -> Sequence[Path]:
        """Write ``stem.txt``, ``stem.csv`` and so on, and return these paths.

        Args:
            stem: the files without their last dot and what follows.
            formats: of ``txt``, ``csv``, ``md``, ``tex``, ``html``, ``json``.

        Raises:
            FedscapeError: another format, or a file cannot be written.
        """
        texts: dict[str, Callable[[], str]] = {
            "txt": lambda: f"{self}\n", "csv": self.csv, "md": self.markdown, "tex": self.latex, "html": self.html,
            "json": self.json,
        }  # fmt: skip
        if unknown := [kind for kind in formats if kind not in texts]:
            raise FedscapeError(f"a table cannot be written as '{unknown[0]}': give {', '.join(texts)}")
        files = tuple(Path(f"{stem}.{kind}") for kind in formats)
        for file, kind in zip(files, formats, strict=True):
            write_text(file, texts[kind]())
        return files


def _cell(value: str | float | None) -> str | float:
    """A cell of CSV."""
    if value is None:
        return ""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _text(value: str | float | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "±": r"$\pm$", "−": "$-$",
    "→": r"$\to$", "×": r"$\times$",
}  # fmt: skip


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
