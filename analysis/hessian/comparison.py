"""Reports side by side in a table."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.hessian.report import HessianReport
from landscape.terminal.table import Share, Table


def comparison_table(reports: Sequence[HessianReport]) -> Table:
    """A row for each report: data, loss, accuracy; the first and last eigenvalue (or both ends), λ1/λ5 and the other
    ratios asked for and the trace, each with its error; cost; what must be said of these numbers."""
    first = reports[0]
    other = len(first.eigen.values) // 2 if first.which == "both" else -1
    ends = dict(zip((first.labels()[0], first.labels()[other]), (0, other), strict=True))
    pairs = list(dict.fromkeys([(1, 5), *(pair for report in reports for pair in report.ratios)]))
    estimates = [*ends, *(f"λ{i}/λ{j}" for i, j in pairs)]
    columns = ("model", "data", "loss", "accuracy", *(c for name in estimates for c in (name, f"{name} error bound")))
    rows = []
    for r in reports:
        trace = (None, None) if r.trace is None else (r.trace.value, r.trace.stderr)
        values = [float(of[i]) for i in ends.values() for of in (r.eigen.values, r.eigen.bounds)]
        ratios = [number for i, j in pairs for number in (r.ratio(i, j), r.ratio_error(i, j))]
        places = list(ends.values())
        said = "; ".join([*r.remarks(places), *r.intervals(places)]) or None
        accuracy = None if r.accuracy is None else Share(r.accuracy)
        rows.append((r.title, r.data, r.loss, accuracy, *values, *ratios, *trace, float(r.hvps), r.seconds, said))
    return Table((*columns, "trace", "trace stderr", "products", "seconds", "remarks"), tuple(rows))
