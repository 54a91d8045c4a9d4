"""Bars, heat maps and histograms have the heights they are given."""

import numpy as np
import pytest

from figures.plots import (
    BarPanel,
    Bars,
    CountPanel,
    HistogramPanel,
    plot_bars,
    plot_class_histograms,
    plot_heat_maps,
)
from landscape import FedscapeError

GROUPS = ["fog", "snow", "mean"]


def of_panel(ax) -> list[list[float]]:
    """The heights of the bars of each algorithm."""
    return [
        [bar.get_height() for bar in container.patches] for container in ax.containers if hasattr(container, "patches")
    ]


def test_bars_stand_in_their_groups_with_their_deviations():
    panel = BarPanel(
        "CIFAR-10-C", GROUPS, [Bars("FedAvg", [0.1, 0.2, 0.15], [0.01, 0.02, 0.03]), Bars("SAM", [0.3, 0.4, 0.35])]
    )
    figure = plot_bars([panel], ylabel="accuracy", percent=True, apart=1)
    (ax,) = figure.axes
    assert of_panel(ax) == [[0.1, 0.2, 0.15], [0.3, 0.4, 0.35]]
    ticks = ax.get_xticks()
    assert [label.get_text() for label in ax.get_xticklabels()] == GROUPS
    for container in [c for c in ax.containers if hasattr(c, "patches")]:
        middles = [bar.get_x() + bar.get_width() / 2 for bar in container.patches]
        assert np.abs(middles - ticks).max() < 0.45
    segments = next(c for c in ax.collections if len(c.get_segments()) == 3).get_segments()
    np.testing.assert_allclose([s[:, 1] for s in segments], [[0.09, 0.11], [0.18, 0.22], [0.12, 0.18]])
    assert ticks[2] - ticks[1] > ticks[1] - ticks[0], "the mean stands apart"
    hatches = [container.patches[0].get_hatch() for container in ax.containers if hasattr(container, "patches")]
    assert len(set(hatches)) == 2
    (legend,) = figure.subfigs[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["FedAvg", "SAM"]


def test_a_missing_result_is_marked_and_has_no_bar():
    figure = plot_bars([BarPanel("p", GROUPS, [Bars("a", [0.1, np.nan, 0.2])])], ylabel="y")
    (ax,) = figure.axes
    assert of_panel(ax) == [[0.1, 0.2]]
    assert ax.lines[0].get_xdata().tolist() == [ax.get_xticks()[1]]
    assert figure.get_supxlabel() == "×: no result"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: plot_bars([], ylabel="y"), "give one panel of bars"),
        (lambda: plot_bars([BarPanel("p", [], [])], ylabel="y"), "the panel 'p' has no bars"),
        (lambda: plot_bars([BarPanel("p", GROUPS, [Bars("a", [1])])], ylabel="y"), "a has 1 values for 3 groups"),
        (lambda: plot_bars([BarPanel("p", ["g"], [Bars("a", [1])])], ylabel="y", apart=1), "1 of 1 groups cannot"),
        (
            lambda: plot_bars([BarPanel("p", ["g"], [Bars(str(i), [1]) for i in range(9)])], ylabel="y"),
            "9 bars in a group cannot be told apart",
        ),
        (lambda: plot_heat_maps([]), "give one panel of counts"),
        (lambda: plot_heat_maps([CountPanel("p", [[1, -1]])]), "fewer than 0 samples"),
        (lambda: plot_heat_maps([CountPanel("p", [1, 2])]), "numbers with 2 axes"),
        (lambda: plot_class_histograms([HistogramPanel("p", [1, 2], [1])]), "2 classes with replacement and 1 without"),
    ],
)
def test_mistakes_are_one_sentence(call, reason):
    with pytest.raises(FedscapeError, match=reason):
        call()


def test_heat_maps_share_one_scale_and_one_colour_bar():
    first, second = np.array([[0, 4, 1], [2, 0, 0]]), np.array([[9, 0, 0]])
    figure = plot_heat_maps([CountPanel("Dirichlet", first), CountPanel("Pathological", second)], title="t")
    *panels, bar = figure.axes
    for ax, counts in zip(panels, (first, second), strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array(), counts.T)
        assert ax.images[0].get_clim() == (0, 9)
    assert [ax.get_title() for ax in panels] == ["Dirichlet", "Pathological"]
    assert bar.get_ylabel() == "samples"


def test_histograms_have_the_counts_and_say_the_deviations():
    with_replacement = [6119, 5752, 5607, 4156, 5041, 4836, 6272, 3957, 3249, 5011]
    figure = plot_class_histograms([HistogramPanel("CIFAR-10", with_replacement, np.full(10, 5000))])
    (ax,) = figure.axes
    assert of_panel(ax)[0] == with_replacement
    stairs = next(patch for patch in ax.patches if hasattr(patch, "get_data"))
    assert stairs.get_data().values.tolist() == [5000] * 10
    assert ax.texts[0].get_text() == "deviation 932.68 with,\n0.00 without replacement"
