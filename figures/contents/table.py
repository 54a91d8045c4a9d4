"""Tables: a value of each row and column, over seeds, beside what the paper prints."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from figures.contents.content import Printings, Product, Results
from figures.graph.nodes import Node
from figures.statistics import over_seeds
from landscape.terminal.table import Table

Value = float | str | None
"""A number, a text in its place (``>800``, ``diverged``), or nothing."""


@dataclass(frozen=True)
class Entry:
    """What stands in a cell: a value of each of some nodes, one a seed.

    Attributes:
        nodes: one for each seed.
        value: of a node's result.
        deviation: of a node's result, such as that over the clients; the deviation over the seeds unless given.
        remark: why a node's value is no result, such as that the run ended at chance; ``None`` where it is one.
    """

    nodes: tuple[Node, ...]
    value: Callable[[Any], Value]
    deviation: Callable[[Any], float | None] | None = None
    remark: Callable[[Any], str | None] | None = None

    def measured(self, results: Results) -> Measured:
        """Mean and deviation of what the nodes gave."""
        found = [results.get(node) for node in self.nodes]
        values = [
            f"failed: {results.failed.get(node, 'not made')}" if result is None else self.value(result)
            for node, result in zip(self.nodes, found, strict=True)
        ]
        apart = None
        if self.deviation is not None:
            own = [self.deviation(result) for result in found if result is not None]
            known = [each for each in own if each is not None]
            apart = statistics.fmean(known) if known and len(known) == len(values) else None
        cell = Measured.of(values, apart, over="seeds" if self.deviation is None else "clients")
        told = [] if self.remark is None else [self.remark(result) for result in found if result is not None]
        return replace(cell, remarks=tuple(dict.fromkeys(each for each in told if each is not None)))


@dataclass(frozen=True)
class Joint:
    """What stands in a cell that several nodes make together, such as how many times one's rounds fit into another's.

    Attributes:
        nodes: all of them.
        value: of their results, in the order of the nodes.
    """

    nodes: tuple[Node, ...]
    value: Callable[[Sequence[Any]], Value]

    def measured(self, results: Results) -> Measured:
        """The one value; why there is none where a node has failed."""
        failed = [results.failed.get(node, "not made") for node in self.nodes if results.get(node) is None]
        return Measured.of([f"failed: {failed[0]}" if failed else self.value([results[n] for n in self.nodes])])


Cell = Entry | Joint


@dataclass(frozen=True)
class Measured:
    """A cell's value.

    Attributes:
        values: of each seed.
        mean: over the seeds; ``None`` if one of them has no number.
        deviation: over the seeds (with divisor n − 1), or as recorded over the clients; ``None`` if there is none.
        over: what the deviation is over.
        remarks: why it is no result, where it is none.
    """

    values: tuple[Value, ...]
    mean: float | None
    deviation: float | None
    over: str
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Sequence[Value], deviation: float | None = None, over: str = "seeds") -> Measured:
        """The mean of values, and their deviation unless one is given.

        Example:
            >>> from figures.contents.table import Measured
            >>> Measured.of([1.0, 3.0]).text(2), Measured.of([1.0, ">30"]).text(2), Measured.of([5]).text(1)
            ('2.00 ± 1.41', '1.00, >30', '5')
        """
        numbers = [value for value in values if isinstance(value, (int, float)) and math.isfinite(value)]
        if not numbers or len(numbers) < len(values):
            return cls(tuple(values), None, deviation, over)
        spread = over_seeds(numbers)
        return cls(tuple(values), spread.mean, spread.deviation if over == "seeds" else deviation, over)

    def text(self, digits: int) -> str:
        """As it is set: mean ± deviation with so many decimals; each seed's where one has no number."""
        if self.mean is None:
            return ", ".join(dict.fromkeys(_text(value, digits) for value in self.values)) or "-"
        if all(isinstance(value, int) for value in self.values) and len(self.values) == 1:
            return str(self.values[0])
        plain = f"{self.mean:.{digits}f}"
        return plain if self.deviation is None else f"{plain} ± {self.deviation:.{digits}f}"


@dataclass(frozen=True)
class TableOf:
    """A table.

    Attributes:
        entries: by row and column, named as in the paper's printed numbers; in the order in which they are set.
        unit: of all values, in words.
        units: as a symbol (``%``; ``1`` of ratios), by column where they differ; empty: not said.
        digits: decimals; by column where they differ.
        corner: what stands above the names of the rows.
        footnotes: below the table.
    """

    entries: Mapping[tuple[str, str], Cell]
    unit: str = ""
    digits: int | Mapping[str, int] = 2
    corner: str = ""
    footnotes: tuple[str, ...] = ()
    units: str | Mapping[str, str] = ""

    def nodes(self) -> Sequence[Node]:
        """Those of all entries."""
        return list(dict.fromkeys(node for entry in self.entries.values() for node in entry.nodes))

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The table: ours, and where the paper's numbers are given, theirs and the difference beside it."""
        measured = {place: entry.measured(results) for place, entry in self.entries.items()}
        seeds = max((len(cell.values) for cell in measured.values()), default=1)
        spread = {cell.over for cell in measured.values() if cell.deviation is not None}
        notes = [f"±: standard deviation over the {'seeds (n − 1)' if of == 'seeds' else of}." for of in sorted(spread)]
        notes += [f"{', '.join(place)}: {each}." for place, cell in measured.items() for each in cell.remarks]
        caption = " ".join([*([f"Unit: {self.unit}."] if self.unit else []), *notes, *self.footnotes])
        numbers, cells = self._numbers(measured, printed, seeds), Cells(self, measured, printed)
        return [Product("", numbers, cells, self._table(measured, printed), caption)]

    def decimals(self, column: str) -> int:
        """Decimals of a column."""
        return self.digits if isinstance(self.digits, int) else self.digits[column]

    def unit_of(self, column: str) -> str:
        """The unit of a column, as a symbol."""
        return self.units if isinstance(self.units, str) else self.units[column]

    def _table(self, measured: Mapping[tuple[str, str], Measured], printed: Printings) -> Table:
        rows = list(dict.fromkeys(row for row, _ in measured))
        columns = list(dict.fromkeys(column for _, column in measured))
        beside = [column for column in columns if any((row, column) in printed for row in rows)]
        head = [self.corner]
        for column in columns:
            head += [column, f"{column}, paper", f"{column}, difference"] if column in beside else [column]
        lines: list[tuple[str | float | None, ...]] = []
        for row in rows:
            line: list[str | float | None] = [row]
            for column in columns:
                cell, theirs = measured.get((row, column)), printed.get((row, column))
                digits = self.decimals(column)
                line.append(None if cell is None else marked(cell, digits))
                if column in beside:
                    line += [None if theirs is None else str(theirs) or "-", _difference(cell, theirs, digits)]
            lines.append(tuple(line))
        return Table(tuple(head), tuple(lines))

    def _numbers(self, measured: Mapping[tuple[str, str], Measured], printed: Printings, seeds: int) -> Table:
        each = [f"seed {i + 1} of {seeds}" for i in range(seeds)] if seeds > 1 else ["value"]
        beside = ["paper", "paper deviation"] if printed else []
        lines: list[tuple[str | float | None, ...]] = []
        for (row, column), cell in measured.items():
            theirs = printed.get((row, column))
            paper = [None if theirs is None else theirs.text, None if theirs is None else theirs.deviation]
            values = [*cell.values, *[None] * (seeds - len(cell.values))]
            lines.append((row, column, self.unit, cell.mean, cell.deviation, *values, *(paper if beside else [])))
        return Table(("row", "column", "unit", "mean", "deviation", *each, *beside), tuple(lines))


@dataclass(frozen=True)
class Cells:
    """What a table shows.

    Attributes:
        of: its declaration.
        measured: by row and column.
        printed: the paper's numbers beside them, where they are given.
    """

    of: TableOf
    measured: Mapping[tuple[str, str], Measured]
    printed: Printings


def marked(cell: Measured, digits: int) -> str:
    """A cell's text with the remarks' first words, all of which the caption has; that a run diverged it says anyway."""
    words = dict.fromkeys(each.partition(":")[0] for each in cell.remarks if not each.startswith("diverged"))
    text = cell.text(digits)
    return " ".join([text, *(f"({word})" for word in words if word not in text)])


def _text(value: Value, digits: int) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.{digits}f}"


def _difference(cell: Measured | None, theirs: Any, digits: int) -> str | None:
    if cell is None or cell.mean is None or theirs is None or theirs.value is None:
        return None
    return f"{cell.mean - theirs.value:+.{digits}f}"
