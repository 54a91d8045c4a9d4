"""Clients' lines and points are where they belong; values of different clients are not joined."""

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_rgba

from figures.plots import ClientPanel, ClientValues, Curve, ScatterPanel, plot_client_lines, plot_client_values
from figures.plots.clients import CLIENT_COLOURS
from landscape import FedscapeError

T = np.array([1, 2, 3])
CLIENTS = np.array([[0.1, 0.2, 0.3], [0.9, np.nan, 0.7]])
GROUP = ClientValues("FedAvg", [1, 1, 1, 2, 2, 2], [4.0, 1.0, 2.0, 3.0, 9.0, 5.0])


def entries(figure) -> list[str]:
    (found,) = [*figure.subfigs[0].legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]
    return [text.get_text() for text in found.get_texts()]


def test_each_client_has_a_line_of_its_measured_rounds_and_a_colour_by_its_number():
    panel = ClientPanel("α = 0", T, CLIENTS, [Curve("test accuracy", [1, 3], [0.4, 0.5])])
    figure = plot_client_lines([panel], ylabel="accuracy", percent=True)
    first, second, rim, bold = figure.axes[0].lines
    assert (first.get_xdata().tolist(), first.get_ydata().tolist()) == ([1, 2, 3], [0.1, 0.2, 0.3])
    assert (second.get_xdata().tolist(), second.get_ydata().tolist()) == ([1, 3], [0.9, 0.7])
    assert tuple(first.get_color()) == colormaps[CLIENT_COLOURS](0.0)
    assert tuple(second.get_color()) == colormaps[CLIENT_COLOURS](0.85)
    assert bold.get_linewidth() > 3 * first.get_linewidth()
    assert bold.get_ydata().tolist() == rim.get_ydata().tolist() == [0.4, 0.5]
    assert entries(figure) == ["test accuracy", "one client each"]
    assert "dark to light from client 0 to 1" in figure.get_supxlabel()


def test_a_hundred_clients_have_one_entry_in_the_legend():
    figure = plot_client_lines([ClientPanel("p", T, np.random.default_rng(0).random((100, 3)))], ylabel="accuracy")
    assert len(figure.axes[0].lines) == 100
    assert entries(figure) == ["one client each"]


def test_points_are_not_joined():
    figure = plot_client_values([ScatterPanel("p", [GROUP])], ylabel="λ_max")
    (points,) = figure.axes[0].lines
    assert points.get_linestyle() == "None"
    assert (points.get_xdata().tolist(), points.get_ydata().tolist()) == (GROUP.x, GROUP.y)
    assert "a point: one client" in figure.get_supxlabel()


def test_the_band_is_from_the_smallest_to_the_largest_around_the_median():
    beside = Curve("global", [1, 2], [7.0, 8.0])
    figure = plot_client_values([ScatterPanel("p", [GROUP], [beside])], ylabel="λ_max", kind="band")
    ax = figure.axes[0]
    drawn = [line.get_ydata().tolist() for line in ax.lines]
    assert drawn == [[1, 3], [4, 9], [2, 5], [7, 8]]
    (band,) = ax.collections
    assert set(band.get_paths()[0].vertices[:, 1]) == {1, 3, 4, 9}
    assert to_rgba(ax.lines[2].get_color()) != to_rgba(ax.lines[3].get_color())
    assert entries(figure) == ["FedAvg", "global"]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: plot_client_lines([], ylabel="y"), "give one panel of clients or more"),
        (lambda: plot_client_lines([ClientPanel("p", T, CLIENTS[:, :2])], ylabel="y"), "3 of rounds, 2 of clients"),
        (lambda: plot_client_lines([ClientPanel("p", T, T)], ylabel="y"), "numbers with 2 axes"),
        (
            lambda: plot_client_lines(
                [ClientPanel("p", T, CLIENTS, [Curve(str(i), T, T) for i in range(4)])], ylabel="y"
            ),
            "4 bold lines cannot be told apart",
        ),
        (lambda: plot_client_values([ScatterPanel("p", [])], ylabel="y"), "has no values of clients"),
        (lambda: plot_client_values([ScatterPanel("p", [GROUP])], ylabel="y", kind="lines"), "unknown kind"),
        (
            lambda: plot_client_values([ScatterPanel("p", [ClientValues("a", [1], [-1.0])])], ylabel="y", log_y=True),
            "a has values of 0 or less",
        ),
    ],
)
def test_mistakes_are_one_sentence(call, reason):
    with pytest.raises(FedscapeError, match=reason):
        call()
