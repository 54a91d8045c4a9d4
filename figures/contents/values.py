"""What stands in a table's cell: a number of one run or of one measurement, or a text in its place."""

from __future__ import annotations

from collections.abc import Callable

from analysis import HessianReport
from figures.contents.table import Value
from figures.statistics import over_clients
from figures.statistics.spread import best, last_rounds
from trainers.runs.records import RecordedRun

OfRun = Callable[[RecordedRun], Value]
OfReport = Callable[[HessianReport], Value]


def accuracy(metric: str = "test_accuracy", *, last: int = 1, share: float | None = None) -> OfRun:
    """Percent: the last value of a metric, its mean over the ``last`` rounds or over a last ``share`` of them;
    ``diverged`` of a run that did."""

    def value(run: RecordedRun) -> Value:
        if run.status == "diverged":
            return "diverged"
        if share is None and last == 1:
            found = run.last(metric)
            return None if found is None else 100 * found
        return 100 * last_rounds(run, metric, rounds=None if share is not None else last, share=share)

    return value


def best_accuracy(metric: str = "test_accuracy") -> OfRun:
    """Percent: the largest value of a metric."""
    return lambda run: 100 * best(run, metric)


def deviation_over_clients(metric: str) -> Callable[[RecordedRun], float | None]:
    """Percent: the deviation of a metric over the clients, as the run recorded it."""

    def value(run: RecordedRun) -> float | None:
        found = over_clients(run, metric).deviation
        return None if found is None else 100 * found

    return value


def rounds_to(target: float, metric: str = "test_accuracy") -> OfRun:
    """The first evaluated round whose metric is at least ``target`` (a share); ``>R`` after R rounds without."""

    def value(run: RecordedRun) -> Value:
        for record in run.metrics:
            if record.get(metric) is not None and record[metric] >= target:
                return int(record["round"])
        return f">{run.rounds}"

    return value


def recorded(metric: str) -> OfRun:
    """The last recorded value of a metric."""
    return lambda run: run.last(metric)


def eigenvalue(rank: int = 1) -> OfReport:
    """The eigenvalue of this rank."""
    return lambda report: float(report.eigen.values[rank - 1])


def eigenvalue_ratio(i: int = 1, j: int = 5) -> OfReport:
    """λi/λj."""
    return lambda report: report.ratio(i, j)


def trace() -> OfReport:
    """The trace's estimate."""
    return lambda report: None if report.trace is None else report.trace.value
