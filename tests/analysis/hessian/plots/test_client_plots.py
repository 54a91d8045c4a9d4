"""Clients have no order: their values are points, and only means are lines."""

from analysis.hessian.plots.clients import plot_clients
from tests.figures.test_paper import clients


def test_no_line_joins_clients():
    (ax,) = plot_clients([clients(), clients(2.0, name="fedavg")]).axes
    joined = [line for line in ax.get_lines() if line.get_linestyle() != "None"]
    assert [len(set(line.get_ydata())) for line in joined] == [1, 1], "one level line a mean"
    points = [line for line in ax.get_lines() if line.get_marker() in "os" and len(line.get_xdata()) == 20]
    assert len(points) == 2
