"""Results of a grid of runs: one number of each run, by what the runs were given, mean and deviation over the seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from landscape.errors import FedscapeError
from landscape.terminal.table import Best, Table
from trainers.runs.records import RecordedRun
from trainers.tables.comparison import with_deviation
from trainers.tables.selection import check_name, check_seeds, differing, shown_value, titled, told
from trainers.tables.spread import Spread, over_seeds
from trainers.tables.values import Value, value_of

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Cell:
    """The runs of one configuration, a seed each.

    Attributes:
        spread: mean and deviation over the seeds; ``None`` where there is none.
        counted: how many runs have a number, or could have reached the target.
        reached: how many of these have reached it; ``None`` where the value is no target.
        longest: rounds of the longest run that was counted.
        runs: all of them.
        diverged, unfinished: how many of these have no result.
    """

    spread: Spread | None
    counted: int
    reached: int | None
    longest: int
    runs: int
    diverged: int
    unfinished: int

    def text(self, value: Value, *, n: bool) -> str | None:
        """What a table shows; with ``n`` over how many seeds the mean is."""
        if self.spread is None:
            if not self.counted:
                return None
            assert self.reached is not None
            return f"{self.reached} of {self.counted} reached it" if self.reached else f">{self.longest}"
        number = self.spread.times(100) if value.share else self.spread
        shown = with_deviation(number.mean, number.deviation)
        if number.deviation is None:
            shown = f"{number.mean:.2f}" if value.share else f"{number.mean:.4g}"
        return f"{shown} (n={number.n})" if n else str(shown)


@dataclass(frozen=True)
class Pivot:
    """Cells by rows and columns.

    Attributes:
        value: of each run.
        rows, columns: the options by which runs are told apart, by name.
        down, across: the values of the rows' and of the columns' options, in the order in which they are shown.
        cells: by these.
    """

    value: Value
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    down: tuple[Key, ...]
    across: tuple[Key, ...]
    cells: dict[tuple[Key, Key], Cell]

    @property
    def best(self) -> set[tuple[Key, Key]]:
        """In each column, the cells with the best mean: none where only one has a mean, or no value is better."""
        found = set()
        for column in self.across:
            means = {at: cell.spread.mean for at, cell in self.cells.items() if cell.spread and at[1] == column}
            if len(means) > 1 and self.value.better is not None:
                top = (max if self.value.better == "larger" else min)(means.values())
                found |= {at for at, mean in means.items() if mean == top}
        return found

    def table(self) -> Table:
        """What people read: a row for each value of the rows' options, a column for each of the columns'."""
        n, best = len(self._seeds()) > 1, self.best
        rows = []
        for key in self.down:
            texts: list[str | None] = []
            for column in self.across:
                cell = self.cells.get((key, column))
                text = None if cell is None else cell.text(self.value, n=n)
                texts.append(Best(text) if text is not None and (key, column) in best else text)
            rows.append((*map(shown_value, key), *texts))
        titles = [_title(self.columns, column) or self.value.title for column in self.across]
        return Table((*self.rows, *titles), tuple(rows))

    def notes(self) -> list[str]:
        """What a reader must know of the table: of what its numbers are, over how many seeds, what was left out."""
        seeds = self._seeds()
        over = f"over {next(iter(seeds))} seeds" if len(seeds) == 1 else "over n seeds"
        spread = f", mean ± deviation {over} (divisor n − 1)" if max(seeds, default=0) > 1 else ", of one seed each"
        best = "; * or bold: the best of its column" if self.best else ""
        lines = [f"{self.value.title}{spread if seeds else ''}{best}"]
        diverged = "left out" if self.value.target is None else "counted by what they had reached"
        for (row, column), cell in self.cells.items():
            where = ", ".join(filter(None, (_title(self.rows, row), _title(self.columns, column))))
            for number, what, how in (
                (cell.diverged, "diverged", diverged),
                (cell.unfinished, "unfinished", "left out"),
            ):
                if number:
                    lines.append(f"{where}: {number} of {cell.runs} runs {what}, {how}")
        return lines

    def listed(self) -> Table:
        """All cells, a row each, with all digits: for CSV and JSON."""
        best = self.best
        rows = []
        for at, cell in self.cells.items():
            mean, deviation = (cell.spread.mean, cell.spread.deviation) if cell.spread else (None, None)
            options = [None if option is None else shown_value(option) for option in (*at[0], *at[1])]
            counts = (cell.counted, cell.reached, cell.diverged, cell.unfinished)
            rows.append((self.value.name, mean, deviation, *counts, "yes" if at in best else "no", *options))
        names = ("value", "mean", "deviation", "n", "reached", "diverged", "unfinished", "best")
        return Table((*names, *self.rows, *self.columns), tuple(rows))

    def _seeds(self) -> set[int]:
        return {cell.spread.n for cell in self.cells.values() if cell.spread is not None}


def pivot(runs: Sequence[RecordedRun], rows: Sequence[str], columns: Sequence[str], value: str) -> Pivot:
    """One number of each run, by rows and columns of options, over the seeds.

    Of a run that diverged only a target that it reached before is known, so that a mean leaves it out, and a target
    counts it as reached or not; of one that is unfinished nothing is.  Rounds to a target have a mean where all runs
    reached it: that over some would be a choice.

    Args:
        runs: as :func:`read_runs` gives them.
        rows, columns: options by name, such as ``algorithm`` and ``partition``; ``alpha`` is Dirichlet's where no run
            has a hyper-parameter of that name.
        value: ``test_accuracy`` and other metrics (the last of a run), or what :func:`trainers.tables.values.value_of`
            makes of them, such as ``rounds_to:SHARE``.

    Raises:
        FedscapeError: an option that no run was given, a value that there is not, runs of one cell that differ in more
            than their seed, or not even in that.

    Example:
        >>> from pathlib import Path
        >>> from trainers.runs import RecordedRun
        >>> from trainers.tables.pivot import pivot
        >>> def run(name, seed, accuracy):
        ...     config = {"algorithm": {"name": name}, "settings": {"rounds": 1, "seed": seed}}
        ...     return RecordedRun(Path(f"{name}{seed}"), config, [{"round": 1, "test_accuracy": accuracy}], {})
        >>> found = pivot([run("a", 0, 0.5), run("a", 1, 0.7), run("b", 0, 0.55)], ["algorithm"], [], "test_accuracy")
        >>> print(found.table())
        algorithm  test accuracy in %
        ---------  ------------------
        a              *60 ± 14 (n=2)
        b                 55.00 (n=1)
    """
    if not runs:
        raise FedscapeError("give at least one run directory")
    of = value_of(value, runs)
    across = [tuple(check_name(runs, name) for name in names) for names in (rows, columns)]
    if twice := [name for name in across[0] if name in across[1]]:
        raise FedscapeError(f"{twice[0]} is in the rows and in the columns: give it once")
    members: dict[tuple[Key, Key], list[RecordedRun]] = {}
    for run in runs:
        row, column = (tuple(_hashable(told(run, name)) for name in names) for names in across)
        members.setdefault((row, column), []).append(run)
    for (row, column), found in members.items():
        place = ", ".join(filter(None, (_title(across[0], row), _title(across[1], column))))
        _check(found, place, {*across[0], *across[1]})
    down, side = (tuple(_ordered([at[i] for at in members], across[i])) for i in (0, 1))
    cells = {
        (row, column): _cell(members[row, column], of) for row in down for column in side if (row, column) in members
    }
    return Pivot(of, across[0], across[1], down, side, cells)


def _cell(runs: Sequence[RecordedRun], of: Value) -> Cell:
    begun = [run for run in runs if run.status == "unfinished"]
    diverged = [run for run in runs if run.status == "diverged"]
    counted = [run for run in runs if run not in begun and (of.target is not None or run not in diverged)]
    numbers = [of.of(run) for run in counted]
    known = [number for number in numbers if number is not None]
    if of.target is None:
        for run, number in zip(counted, numbers, strict=True):
            if number is None:
                raise FedscapeError(f"{run.path} has no {of.name}: leave it out, or choose another value")
    spread = over_seeds(known) if known and len(known) == len(numbers) else None
    longest = max((run.rounds for run in counted), default=0)
    reached = None if of.target is None else len(known)
    return Cell(spread, len(counted), reached, longest, len(runs), len(diverged), len(begun))


def _check(runs: Sequence[RecordedRun], place: str, names: set[str]) -> None:
    """Refuse runs of a cell that a mean over seeds must not be taken over."""
    if len({run.configuration for run in runs}) > 1:
        found = [name for name in differing(runs) if name not in names]
        raise FedscapeError(
            f"the runs of {place} differ in {', '.join(found) or 'their hyper-parameters'}: give that to --rows or "
            "--columns, too, or choose with --where"
        )
    check_seeds(runs, place)


def _title(names: Sequence[str], key: Key) -> str:
    """Options with their values: texts alone, numbers with their name."""
    return ", ".join(titled(name, value) for name, value in zip(names, key, strict=True))


def _ordered(keys: Sequence[Key], names: Sequence[str]) -> list[Key]:
    """Each key once: algorithms as they were given, numbers by value, texts with the numbers in them by theirs."""
    first = {value: place for place, value in reversed(list(enumerate(value for key in keys for value in key)))}

    def rank(key: Key) -> list[Any]:
        pairs = zip(names, key, strict=True)
        return [first[value] if name == "algorithm" else natural(value) for name, value in pairs]

    return sorted(dict.fromkeys(keys), key=rank)


def natural(value: Any) -> tuple[Any, ...]:
    """By what values are sorted: none, numbers, texts.

    Example:
        >>> from trainers.tables.pivot import natural
        >>> sorted(["dirichlet:10", "dirichlet:0.6", "iid", 3, None], key=natural)
        [None, 3, 'dirichlet:0.6', 'dirichlet:10', 'iid']
    """
    if value is None:
        return (0,)
    if isinstance(value, (int, float)):
        return (1, value)
    parts = re.split(r"(\d+(?:\.\d+)?)", str(value))
    return (2, [float(part) if i % 2 else part for i, part in enumerate(parts)])


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return repr(value) if isinstance(value, dict) else value
