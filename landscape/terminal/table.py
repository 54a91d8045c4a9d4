"""Tables of results, as text, CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from landscape.storage.files import write_text


@dataclass(frozen=True)
class Table:
    """Column names and rows; numbers keep all their digits in CSV and are rounded in text.

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

    def csv(self) -> str:
        """Comma-separated values with a header line; ``None`` is empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if value is None else value for value in row] for row in self.rows)
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

    def save(self, stem: Path) -> Sequence[Path]:
        """Write ``stem.txt`` and ``stem.csv`` and return these paths."""
        files = stem.with_suffix(".txt"), stem.with_suffix(".csv")
        write_text(files[0], f"{self}\n")
        write_text(files[1], self.csv())
        return files


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
