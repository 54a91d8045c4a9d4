"""Reports side by side in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from analysis.hessian.report import HessianReport
from landscape.storage.schema import printable
from landscape.terminal.table import Share, Table


def told_apart(reports: Sequence[HessianReport], names: Sequence[str]) -> list[HessianReport]:
    """The reports, those of equal titles (two runs of one algorithm) with their checkpoints' names behind them.

    Example:
        >>> import torch
        >>> from landscape import Landscape
        >>> from analysis import measure_hessian
        >>> from analysis.hessian.comparison import told_apart
        >>> around = Landscape(torch.nn.Linear(2, 2), (torch.eye(2), torch.tensor([0, 1])))
        >>> report = replace(measure_hessian(around, 1, trace=False), title="fedavg, round 20")
        >>> [one.title for one in told_apart([report, report], ["runs/a", "runs/b"])]
        ['fedavg, round 20 (runs/a)', 'fedavg, round 20 (runs/b)']
    """
    times = Counter(report.title for report in reports)
    return [
        replace(report, title=f"{report.title} ({printable(name)})") if times[report.title] > 1 else report
        for report, name in zip(reports, names, strict=True)
    ]


def comparison_table(reports: Sequence[HessianReport], names: Sequence[str] | None = None) -> Table:
    """A row for each report: data, loss, accuracy; the first and last eigenvalue (or both ends), λ1/λ5 and the other
    ratios asked for and the trace, each with its error; cost; what must be said of these numbers.

    Args:
        reports: one or more.
        names: short ones in the place of their titles, for the screen.
    """
    first = reports[0]
    other = len(first.eigen.values) // 2 if first.which == "both" else -1
    ends = dict(zip((first.labels()[0], first.labels()[other]), (0, other), strict=True))
    pairs = list(dict.fromkeys([(1, 5), *(pair for report in reports for pair in report.ratios)]))
    estimates = [*ends, *(f"λ{i}/λ{j}" for i, j in pairs)]
    columns = (
        "checkpoint" if names else "model",
        "data",
        "loss",
        "accuracy",
        *(c for name in estimates for c in (name, f"{name} error bound")),
    )
    rows = []
    for r, name in zip(reports, names or [report.title for report in reports], strict=True):
        trace = (None, None) if r.trace is None else (r.trace.value, r.trace.stderr)
        values = [float(of[i]) for i in ends.values() for of in (r.eigen.values, r.eigen.bounds)]
        ratios = [number for i, j in pairs for number in (r.ratio(i, j), r.ratio_error(i, j))]
        places = list(ends.values())
        said = "; ".join([*r.remarks(places), *r.intervals(places)]) or None
        accuracy = None if r.accuracy is None else Share(r.accuracy)
        rows.append((name, r.data, r.loss, accuracy, *values, *ratios, *trace, float(r.hvps), r.seconds, said))
    return Table((*columns, "trace", "trace stderr", "products", "seconds", "remarks"), tuple(rows))
