"""The table that compares recorded runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from landscape.errors import FedscapeError
from landscape.several import several
from landscape.terminal.table import Table
from trainers.runs.protocol import PROTOCOL, differences
from trainers.runs.records import RecordedRun

Cell = str | float | None

_DEVIATION = " ±"


def report(runs: Sequence[RecordedRun] | RecordedRun, targets: Sequence[float] = (), *, group: bool = False) -> Table:
    """The comparison table: a row a run, or with ``group`` a row for the runs that differ by their seed only.

    Numbers have all digits; an unknown one is ``None``.  A column named ``X ±`` is the standard deviation of
    ``X`` over the clients, as recorded; for groups, over the seeds (with divisor n − 1).  Rounds to a target that was
    not reached are ``>R`` after R rounds.

    Args:
        runs: as :func:`read_runs` gives them, or one.
        targets: test accuracies, as shares, for rounds and traffic to the first round that reaches them.
        group: mean and deviation over the runs of one configuration that did not diverge.

    Raises:
        FedscapeError: there are no runs, or a target is not between 0 and 1.

    Example:
        >>> from pathlib import Path
        >>> from trainers.runs import RecordedRun
        >>> from trainers.tables import presented, report
        >>> config = {"algorithm": {"name": "fedavg"}, "settings": {"rounds": 2, "seed": 0}}
        >>> metrics = [{"round": 1, "test_accuracy": 0.5}, {"round": 2, "test_accuracy": 0.75}]
        >>> print(presented(report([RecordedRun(Path("mine"), config, metrics, result={})], targets=[0.7])))
        run   algorithm    status  rounds  accuracy %  best %  rounds to 70 %
        ----  ---------  --------  ------  ----------  ------  --------------
        mine     fedavg  finished       2          75      75               2
    """
    runs = several(runs)
    if not runs:
        raise FedscapeError("give at least one run directory")
    for target in targets:
        if not 0 < target <= 1:
            raise FedscapeError(f"the target {target} is no accuracy: give a share above 0 and up to 1, such as 0.8")
    columns = _columns(targets)
    if group:
        return _grouped(runs, columns)
    rows = [
        (name, run.algorithm, run.status_text, *(column(run) for column in columns.values()))
        for name, run in zip(_names(runs), runs, strict=True)
    ]
    return Table(("run", "algorithm", "status", *columns), tuple(rows))


def warnings(
    runs: Sequence[RecordedRun] | RecordedRun, groups: Mapping[str, Sequence[RecordedRun]] | None = None
) -> list[str]:
    """Where runs differ in objective, evaluated model or the work of a round, and which have rounds that two processes
    wrote, a sentence each.

    Args:
        runs: all of them, or one.
        groups: runs that differ by their seed only, by a label that is told in place of each run's name.
    """
    runs = several(runs)
    named = list(zip(_names(runs), runs, strict=True))
    twice = [
        f"{name} had {run.repeated} rounds twice, as two processes had resumed it at once: the last of each is read"
        for name, run in named
        if run.repeated
    ]
    each = dict(named) if groups is None else {label.replace(",", ""): members[0] for label, members in groups.items()}
    return [*twice, *differences({name: run.protocol for name, run in each.items()})]


def _names(runs: Sequence[RecordedRun]) -> list[str]:
    names = [run.path.resolve().name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.path) for run in runs]


def presented(table: Table) -> Table:
    """The table to be printed: deviations beside their means, without empty columns and what all rows share of the
    protocol."""
    values = {name: {row[i] for row in table.rows} for i, name in enumerate(table.columns)}
    filled = {name for name, found in values.items() if found != {None} and (name not in PROTOCOL or len(found) > 1)}
    kept = [(i, name) for i, name in enumerate(table.columns) if name in filled and not name.endswith(_DEVIATION)]
    rows = []
    for row in table.rows:
        by_name = dict(zip(table.columns, row, strict=True))
        rows.append(tuple(with_deviation(by_name[name], by_name.get(name + _DEVIATION)) for _, name in kept))
    return Table(tuple(name for _, name in kept), tuple(rows))


def with_deviation(value: Cell, deviation: Cell) -> Cell:
    """A number with its deviation, to two digits of that; a number without one as it is, a count as text.

    Example:
        >>> from trainers.tables.comparison import with_deviation
        >>> with_deviation(81.256, 0.2345), with_deviation(81.256, None), with_deviation(7, None)
        ('81.26 ± 0.23', 81.256, '7')
    """
    if isinstance(value, float) and isinstance(deviation, float):
        if deviation == 0:
            return f"{value:.4g} ± 0"
        digits = max(0, 1 - math.floor(math.log10(deviation)))
        return f"{value:.{digits}f} ± {deviation:.{digits}f}" if digits <= 6 else f"{value:.2g} ± {deviation:.1g}"
    # A count is exact: show all digits.
    return str(value) if isinstance(value, int) else value


def _columns(targets: Sequence[float]) -> dict[str, Callable[[RecordedRun], Cell]]:
    def percent(value: float | None) -> float | None:
        return None if value is None else 100 * value

    def rounds_to(target: float) -> Callable[[RecordedRun], Cell]:
        def column(run: RecordedRun) -> Cell:
            reached = run.reaching(target)
            return f">{run.rounds}" if reached is None else reached

        return column

    def traffic_to(target: float) -> Callable[[RecordedRun], Cell]:
        def column(run: RecordedRun) -> Cell:
            reached = run.reaching(target)
            return None if reached is None else run.gigabytes(reached)

        return column

    def told(name: str) -> Callable[[RecordedRun], Cell]:
        return lambda run: run.protocol[name]

    columns: dict[str, Callable[[RecordedRun], Cell]] = {
        "rounds": lambda run: run.rounds,
        "accuracy %": lambda run: percent(run.last("test_accuracy")),
        "best %": lambda run: percent(max(run.values("test_accuracy"), default=None)),
        "last tenth %": lambda run: percent(run.last_accuracy()),
        "mIoU %": lambda run: percent(run.last("test_miou")),
        "test loss": lambda run: run.last("test_loss"),
        "train loss": lambda run: run.last("train_loss"),
        "SWA %": lambda run: percent(run.last("swa_test_accuracy")),
        "SWA mIoU %": lambda run: percent(run.last("swa_test_miou")),
    }
    for target in targets:
        columns[f"rounds to {100 * target:g} %"] = rounds_to(target)
        columns[f"GB to {100 * target:g} %"] = traffic_to(target)
    columns |= {name: told(name) for name in PROTOCOL}
    return columns | {
        "drift": lambda run: run.last("drift"),
        "ε": lambda run: run.last("dp_epsilon"),
        "δ": lambda run: ((run.config.get("parts") or {}).get("dp") or {}).get("delta"),
        "MB down": lambda run: run.megabytes("bytes_down"),
        "MB up": lambda run: run.megabytes("bytes_up"),
        "GB": lambda run: run.gigabytes(),
        "s/round": lambda run: run.mean("seconds"),
        "local s": lambda run: run.mean("seconds_local"),
        "aggregation s": lambda run: run.mean("seconds_aggregation"),
        "evaluation s": lambda run: run.mean("seconds_evaluation"),
        "client train %": lambda run: percent(run.last("client_train_accuracy")),
        "client train % ±": lambda run: percent(run.last("client_train_accuracy_deviation")),
        "client test %": lambda run: percent(run.last("client_test_accuracy")),
        "client test % ±": lambda run: percent(run.last("client_test_accuracy_deviation")),
    }


def _grouped(runs: Sequence[RecordedRun], columns: dict[str, Callable[[RecordedRun], Cell]]) -> Table:
    groups: dict[str, list[RecordedRun]] = {}
    for run in runs:
        groups.setdefault(run.configuration, []).append(run)
    measured = {name: column for name, column in columns.items() if not name.endswith(_DEVIATION)}
    rows = []
    for members in groups.values():
        counted = [run for run in members if run.status != "diverged"]
        cells = [cell for column in measured.values() for cell in _over_seeds([column(run) for run in counted])]
        rows.append((_common_name(members), members[0].algorithm, _status_text(members), _seeds(members), *cells))
    titles = [title for name in measured for title in (name, name + _DEVIATION)]
    return Table(("run", "algorithm", "status", "seeds", *titles), tuple(rows))


def _over_seeds(cells: list[Cell]) -> tuple[Cell, Cell]:
    """Mean and sample deviation; if a cell is text (a target not reached), the last such text."""
    words = [cell for cell in cells if isinstance(cell, str)]
    if words:
        return words[-1], None
    numbers = [cell for cell in cells if isinstance(cell, (int, float))]
    if not numbers or len(numbers) < len(cells):
        return None, None
    return statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None


def _common_name(members: Sequence[RecordedRun]) -> str:
    names = [run.path.resolve().name for run in members]
    if len(names) == 1:
        return names[0]
    length = next((i for i, letters in enumerate(zip(*names, strict=False)) if len(set(letters)) > 1), None)
    common = names[0] if length is None else names[0][:length]
    return common.rstrip("-_. ").removesuffix("seed").rstrip("-_. ") or names[0]


def _status_text(members: Sequence[RecordedRun]) -> str:
    texts = [run.status_text for run in members]
    return "; ".join(text if texts.count(text) == 1 else f"{texts.count(text)} {text}" for text in dict.fromkeys(texts))


def _seeds(members: Sequence[RecordedRun]) -> str:
    return " ".join(str(run.seed) for run in members)
