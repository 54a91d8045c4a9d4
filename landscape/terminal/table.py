"""Tables of results, as text, CSV, Markdown, LaTeX, HTML and JSON."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from landscape.errors import FedscapeError
from landscape.storage.display import short_line
from landscape.storage.files import json_ready, write_text
from landscape.storage.schema import printable


class Share(float):
    """A share, such as an accuracy, in a cell of a :class:`Table`: percent where people read it, a share in CSV and
    JSON.

    Example:
        >>> from landscape.terminal.table import Share, Table
        >>> table = Table(("run", "accuracy"), (("a", Share(0.8125)),))
        >>> print(table.markdown(), table.csv(), sep="\\n", end="")
        | run | accuracy |
        | --- | ---: |
        | a | 81.25% |
        <BLANKLINE>
        run,accuracy
        a,0.8125
    """

    __slots__ = ()


class Best(str):
    """A text in a cell of a :class:`Table` that stands out: bold where there is bold type, with a * before it in plain
    text, as it is in CSV and JSON.

    Example:
        >>> from landscape.terminal.table import Best, Table
        >>> table = Table(("run", "accuracy"), (("a", Best("81.2")), ("b", "79.0")))
        >>> print(table)
        run  accuracy
        ---  --------
        a       *81.2
        b        79.0
        >>> print(table.markdown(), table.latex().splitlines()[4], table.csv(), sep="\\n", end="")
        | run | accuracy |
        | --- | ---: |
        | a | **81.2** |
        | b | 79.0 |
        <BLANKLINE>
        a & \\textbf{81.2} \\\\
        run,accuracy
        a,81.2
        b,79.0
    """

    __slots__ = ()


_BOLD = ("\033[1m", "\033[0m")


@dataclass(frozen=True, repr=False)
class Table:
    """Column names and rows; numbers keep all their digits in CSV and JSON and are rounded elsewhere.

    Shares are percent where people read them, where they are marked as such (:class:`Share`).

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
        return self._lines()

    def _lines(self, bold: bool = False) -> str:
        cells, widths = self._cells()
        values = [self.columns, *self.rows]
        lines = [
            "  ".join(
                _shown(cell.ljust(w) if i == 0 else cell.rjust(w), value, bold)
                for i, (cell, w, value) in enumerate(zip(row, widths, given, strict=True))
            )
            for row, given in zip(cells, values, strict=True)
        ]
        return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])

    def __repr__(self) -> str:
        return short_line("Table", f"{len(self.rows)} × {len(self.columns)}: {', '.join(self.columns)}", {})

    def _repr_html_(self) -> str:
        return self.html()

    def _cells(self) -> tuple[list[tuple[str, ...]], list[int]]:
        """The texts of names and rows, and how wide each column is."""
        cells = [tuple(map(_text, self.columns)), *[tuple(_text(value) for value in row) for row in self.rows]]
        return cells, [max(len(row[i]) for row in cells) for i in range(len(self.columns))]

    def folded(self, width: int, *, bold: bool = False) -> str:
        """The text in lines of ``width``: columns that do not fit follow in a block below, after the first one.

        Nothing is left out; a block of two columns may be wider. With ``bold``, what is best is in a terminal's bold.

        Example:
            >>> from landscape.terminal.table import Table
            >>> print(Table(("client", "loss", "drift"), (("a", 0.5, 2.0),)).folded(14))
            client  loss
            ------  ----
            a        0.5
            <BLANKLINE>
            client  drift
            ------  -----
            a           2
        """
        widths = self._cells()[1]
        blocks: list[list[int]] = [[]]
        for i in range(1, len(widths)):
            if blocks[-1] and widths[0] + sum(2 + widths[j] for j in (*blocks[-1], i)) > width:
                blocks.append([])
            blocks[-1].append(i)
        parts = (
            Table(tuple(self.columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in self.rows))
            for kept in ([0, *block] for block in blocks)
        )
        return "\n\n".join(part._lines(bold) for part in parts)

    def on_screen(self) -> str:
        """The text that a command prints: :meth:`folded` to the width of the terminal, whole where stdout is none."""
        if not sys.stdout.isatty():
            return str(self)
        return self.folded(shutil.get_terminal_size().columns, bold=os.environ.get("TERM") != "dumb")

    def csv(self) -> str:
        """Comma-separated values with a header line; ``None`` is empty.

        Text that a spreadsheet would compute, as it begins with =, +, -, @, a tab or a carriage return and is no
        number, has a ' before it (OWASP, CSV injection).

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
        rows = [tuple(map(_text, self.columns)), rule, *[tuple(map(_marked_down, row)) for row in self.rows]]
        return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |\n" for row in rows)

    def latex(self) -> str:
        """A LaTeX ``tabular`` with the rules of the package booktabs; numbers rounded as in text."""
        lines = [" & ".join(_escaped(_text(name)) for name in self.columns) + r" \\"]
        lines += [" & ".join(map(_in_latex, row)) + r" \\" for row in self.rows]
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
        head = "".join(f'<th scope="col">{html.escape(_text(name))}</th>' for name in self.columns)
        lines = ["<table>", *[f"<caption>{html.escape(_text(caption))}</caption>"] * bool(caption)]
        lines += ["<thead>", f"<tr>{head}</tr>", "</thead>", "<tbody>"]
        for row in self.rows:
            name, *others = map(_in_html, row)
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
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value if value[0].isprintable() else value.strip()


def _shown(cell: str, value: str | float | None, bold: bool) -> str:
    """A cell of plain text that is as wide as its column."""
    if not (bold and isinstance(value, Best)):
        return cell
    text = cell.strip()
    begin, end = _BOLD
    return cell.replace(text, f"{begin}{text.removeprefix('*')}{end}").rjust(len(cell) + len(begin + end))


def _marked_down(value: str | float | None) -> str:
    return f"**{_plain(value)}**" if isinstance(value, Best) else _plain(value)


def _in_latex(value: str | float | None) -> str:
    text = _escaped(_plain(value))
    return rf"\textbf{{{text}}}" if isinstance(value, Best) else text


def _in_html(value: str | float | None) -> str:
    text = html.escape(_plain(value))
    return f"<strong>{text}</strong>" if isinstance(value, Best) else text


def _plain(value: str | float | None) -> str:
    """The text of a cell without the mark of what is best."""
    return _text(str(value)) if isinstance(value, Best) else _text(value)


def _text(value: str | float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, Share):
        return f"{float(value):.2%}"
    if isinstance(value, str):
        return "*" * isinstance(value, Best) + printable(value, 10_000)
    return f"{value:.4g}"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "±": r"$\pm$", "−": "$-$",
    "→": r"$\to$", "×": r"$\times$",
}  # fmt: skip


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
