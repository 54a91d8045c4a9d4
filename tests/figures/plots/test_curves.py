"""Curves and sweeps are where they belong, alike in all panels, and explained."""

import numpy as np
import pytest

from figures.plots import Curve, CurvePanel, Level, Sweep, SweepPanel, plot_curves, plot_sweeps
from figures.plots.layout import looks
from landscape import FedscapeError

T = np.arange(1, 41)


def curve(label: str, scale: float = 1.0, band: float | None = None) -> Curve:
    mean = scale * (1 - np.exp(-T / 10))
    return Curve(label, T, mean, *([] if band is None else [mean - band, mean + band]))


def legend(figure) -> list[str]:
    """The entries of the only legend."""
    (found,) = [*figure.subfigs[0].legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]
    return [text.get_text() for text in found.get_texts()]


def line(ax, values):
    """The line with these heights."""
    (found,) = [one for one in ax.lines if len(one.get_ydata()) == len(values) and np.allclose(one.get_ydata(), values)]
    return found


class TestCurves:
    def test_means_and_bands_are_drawn_as_given(self):
        given = curve("FedAvg", band=0.05)
        (ax,) = plot_curves([CurvePanel("one", [given])], ylabel="accuracy").axes
        np.testing.assert_array_equal(line(ax, given.mean).get_xdata(), T)
        (band,) = ax.collections
        vertices = band.get_paths()[0].vertices
        for x, low, high in zip(T, given.low, given.high, strict=True):
            heights = vertices[vertices[:, 0] == x, 1]
            assert heights.min() == pytest.approx(low)
            assert heights.max() == pytest.approx(high)
        assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ("one", "communication round", "accuracy")

    def test_a_label_looks_alike_in_all_panels_and_is_once_in_the_legend(self):
        panels = [CurvePanel("a", [curve("x"), curve("y", 2)]), CurvePanel("b", [curve("y", 3), curve("z", 4)])]
        figure = plot_curves(panels, ylabel="loss", title="the title", caption="the caption")
        first, second = figure.axes
        assert line(first, curve("y", 2).mean).get_color() == line(second, curve("y", 3).mean).get_color()
        assert line(first, curve("y", 2).mean).get_marker() == line(second, curve("y", 3).mean).get_marker()
        assert legend(figure) == ["x", "y", "z"]
        assert (figure.get_suptitle(), figure.get_supxlabel()) == ("the title", "the caption")
        assert first.get_ylim() == second.get_ylim()
        assert (first.get_ylabel(), second.get_ylabel()) == ("loss", "")

    def test_eight_algorithms_have_eight_looks(self):
        names = [f"algorithm {i}" for i in range(8)]
        figure = plot_curves([CurvePanel("p", [curve(n, i + 1) for i, n in enumerate(names)])], ylabel="y")
        drawn = [(one.get_color(), one.get_marker()) for one in figure.axes[0].lines]
        assert len(set(drawn)) == 8
        assert legend(figure) == names

    def test_levels_are_horizontal_and_one_of_a_curve_looks_like_it(self):
        panel = CurvePanel("p", [curve("FedAvg"), curve("FedSAM", 2)], [Level("target", 0.74), Level("FedSAM", 0.5)])
        figure = plot_curves([panel], ylabel="y")
        (ax,) = figure.axes
        target, same = line(ax, [0.74, 0.74]), line(ax, [0.5, 0.5])
        assert same.get_color() == looks(["FedAvg", "FedSAM"])["FedSAM"].colour != target.get_color()
        assert legend(figure) == ["FedAvg", "FedSAM", "target"]

    def test_axes_are_as_asked_for(self):
        (ax,) = plot_curves([CurvePanel("p", [curve("a")], ylim=(0.2, 0.4))], ylabel="y", percent=True).axes
        assert ax.get_ylim() == (0.2, 0.4)
        assert ax.yaxis.get_major_formatter()(0.25, 0).startswith("25")
        (ax,) = plot_curves([CurvePanel("p", [curve("a")])], ylabel="y", log_y=True, log_x=True).axes
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        panels = [CurvePanel("p", [curve("a")]), CurvePanel("q", [curve("a", 9)], ylabel="loss")]
        first, second = plot_curves(panels, ylabel="accuracy", share_y=False).axes
        assert first.get_ylim() != second.get_ylim()
        assert (first.get_ylabel(), second.get_ylabel()) == ("accuracy", "loss")

    @pytest.mark.parametrize(
        ("call", "reason"),
        [
            (lambda: plot_curves([], ylabel="y"), "there is nothing to draw: give one panel of curves"),
            (lambda: plot_curves([CurvePanel("p", [])], ylabel="y"), "the panel 'p' has no curve"),
            (lambda: plot_curves([CurvePanel("p", [curve("a")])], ylabel="y", percent=True, log_y=True), "not both"),
            (lambda: plot_curves([CurvePanel("p", [curve("a", -1)])], ylabel="y", log_y=True), "values of 0 or less"),
            (
                lambda: plot_curves([CurvePanel("p", [curve("a")], [Level(str(i), i) for i in range(4)])], ylabel="y"),
                "4 horizontal lines cannot be told apart",
            ),
            (lambda: Curve("a", [1, 2], [1]), r"do not belong together \(2 of x, 1 of mean\)"),
            (lambda: Curve("a", [1, 1], [1, 2]), "the rounds of a do not ascend"),
            (lambda: Curve("a", [1, 2], [1, 2], [0, 1]), "the band of a has one edge"),
        ],
    )
    def test_mistakes_are_one_sentence(self, call, reason):
        with pytest.raises(FedscapeError, match=reason):
            call()


class TestSweeps:
    def test_values_and_deviations_are_drawn_as_given(self):
        sweep = Sweep("FedAvg", [0.1, 1, 10], [0.3, 0.5, 0.4], [0.1, 0.2, 0.05])
        (ax,) = plot_sweeps([SweepPanel("p", "ρ", [sweep], "log")], ylabel="accuracy").axes
        np.testing.assert_array_equal(line(ax, [0.3, 0.5, 0.4]).get_xdata(), [0.1, 1, 10])
        (bars,) = [c for c in ax.collections if len(c.get_segments()) == 3]
        assert [tuple(segment[:, 1]) for segment in bars.get_segments()] == [
            pytest.approx((0.2, 0.4)), pytest.approx((0.3, 0.7)), pytest.approx((0.35, 0.45)),
        ]  # fmt: skip
        assert (ax.get_xscale(), ax.get_xlabel()) == ("log", "ρ")
        assert ax.xaxis.get_majorticklocs().tolist() == [0.1, 1, 10]

    def test_values_at_equal_distances_have_their_own_labels(self):
        panel = SweepPanel(
            "p", "decay", [Sweep("a", [0.99, 0.9995], [1, 2]), Sweep("b", [0.99, 0.998], [3, 4])], "even", default=0.998
        )
        figure = plot_sweeps([panel], ylabel="y")
        (ax,) = figure.axes
        assert [label.get_text() for label in ax.get_xticklabels()] == ["0.99", "0.998", "0.9995"]
        assert line(ax, [1, 2]).get_xdata().tolist() == [0, 2]
        assert [one.get_xdata()[0] for one in ax.lines if list(one.get_xdata()) == [1, 1]] == [1]
        assert "dotted: the default" in figure.get_supxlabel()

    def test_a_missing_result_breaks_the_line_and_is_a_cross(self):
        figure = plot_sweeps([SweepPanel("p", "K", [Sweep("a", [1, 5, 10], [0.2, np.nan, 0.3])])], ylabel="y")
        (ax,) = figure.axes
        (cross,) = [one for one in ax.lines if one.get_marker() == "x"]
        assert cross.get_xdata().tolist() == [5]
        assert "×: no result" in figure.get_supxlabel()

    def test_a_level_of_an_algorithm_of_another_panel_looks_like_it(self):
        panels = [
            SweepPanel("a", "S", [Sweep("FedAvg", [1, 2], [0.1, 0.2])]),
            SweepPanel("b", "ρ", [Sweep("FedSAM", [1, 2], [0.3, 0.4])], levels=[Level("FedAvg", 0.25)]),
        ]
        figure = plot_sweeps(panels, ylabel="y")
        first, second = figure.axes
        assert line(second, [0.25, 0.25]).get_color() == line(first, [0.1, 0.2]).get_color()
        assert legend(figure) == ["FedAvg", "FedSAM"]

    @pytest.mark.parametrize(
        ("panel", "reason"),
        [
            (SweepPanel("p", "x", []), "the panel 'p' has no sweep"),
            (SweepPanel("p", "x", [Sweep("a", [1, 2], [1])]), "do not belong together"),
            (SweepPanel("p", "x", [Sweep("a", [0, 2], [1, 2])], "log"), "x is 0, which no logarithmic axis has"),
            (SweepPanel("p", "x", [Sweep("a", [1, 2], [1, 2])], "even", default=3), "the default 3 of x is none"),
            (SweepPanel("p", "x", [Sweep("a", [1, 2], [1, 2])], "square"), "unknown spacing 'square'"),
        ],
    )
    def test_mistakes_are_one_sentence(self, panel, reason):
        with pytest.raises(FedscapeError, match=reason):
            plot_sweeps([panel], ylabel="y")
