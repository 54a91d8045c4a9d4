"""Tables of results, as text and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from landscape.files import write_text


@dataclass(frozen=True)
class Table:
    """Column names and rows; numbers keep all their digits in CSV and are rounded in text."""

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
        """Comma-separated values with a header line; an unknown value is empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if value is None else value for value in row] for row in self.rows)
        return text.getvalue()

    def save(self, stem: Path) -> Sequence[Path]:
        """Write ``stem.txt`` and ``stem.csv``; the files written."""
        files = stem.with_suffix(".txt"), stem.with_suffix(".csv")
        write_text(files[0], f"{self}\n")
        write_text(files[1], self.csv())
        return files


def _text(value: str | float | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}"
