"""The numbers that a paper prints."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Printed:
    """A number as a paper prints it.

    Attributes:
        text: the value, such as ``40.90`` or ``500+``.
        deviation: what is printed after ±; ``None``: nothing.
        unit: in words.
    """

    text: str
    deviation: float | None
    unit: str

    @property
    def value(self) -> float | None:
        """The value; ``None`` where it is no number (``500+``, ``-``)."""
        try:
            return float(self.text)
        except ValueError:
            return None

    def __str__(self) -> str:
        return self.text if self.deviation is None else f"{self.text} ± {self.deviation:g}"


@cache
def printed_numbers(paper: str) -> Mapping[tuple[str, str, str], Printed]:
    """The numbers of a paper by item, row and column.

    Example:
        >>> from figures.printed import printed_numbers
        >>> str(printed_numbers("man")["T1", "FedAvg", "CIFAR-100 delta=0.3 accuracy"])
        '40.90 ± 0.62'
    """
    text = files("figures.printed").joinpath(f"{paper}.csv").read_text(encoding="utf-8")
    return {
        (row["item"], row["row"], row["column"]): Printed(
            row["value"], float(row["std"]) if row["std"] else None, row["unit"]
        )
        for row in csv.DictReader(text.splitlines())
    }
