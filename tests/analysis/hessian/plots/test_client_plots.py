"""Clients have no order: their values are points, and only means are lines."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.hessian.plots.clients import plot_clients
from tests.figures.test_paper import clients


def test_no_line_joins_clients():
    (ax,) = plot_clients([clients(), clients(2.0, name="fedavg")]).axes
    joined = [line for line in ax.get_lines() if line.get_linestyle() != "None"]
    assert [len(set(line.get_ydata())) for line in joined] == [1, 1], "one level line a mean"
    points = [line for line in ax.get_lines() if line.get_marker() in "os" and len(line.get_xdata()) == 20]
    assert len(points) == 2


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ([3.5, 5.0, 8.0], "clients: 5.5 ± 1.9"),  # √3.5 = 1.871
        ([20.0, 40.0], "clients: 30 ± 10"),
        ([0.011, 0.013], "clients: 0.0120 ± 0.0010"),
        ([1999.0, 2001.0], "clients: 2000.0 ± 1.0"),
        ([5.0], "clients: 5 ± 0"),
    ],
)
def test_the_mean_goes_as_far_as_the_deviation(values, label):
    n = len(values)
    found = replace(
        clients(),
        clients=np.arange(n),
        samples=np.ones(n, int),
        values=np.array(values)[:, None],
        bounds=np.zeros((n, 1)),
        converged=np.ones((n, 1), bool),
    )
    (legend,) = plot_clients([found]).legends
    assert [text.get_text() for text in legend.get_texts()] == [label]
