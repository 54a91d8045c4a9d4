"""Colours go where the values are: a narrow valley is seen, a plain bowl stays linear."""

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.figure import Figure

from analysis.surface.plots.figures import draw
from analysis.surface.plots.panels import draw_colour_bar, draw_panel
from analysis.surface.plots.scales import Scale
from tests.analysis.surface.plots.test_surface_plots import line, made
from tests.figures.legible import faults

X, Y = np.meshgrid(np.linspace(-1, 1, 51), np.linspace(-1, 1, 51))
VALLEY = 1.5 + 6.2 * X**2 + 0.3 * Y**2
"""From 1.5 to 8, with a bottom along y that rises by 0.3."""
BOWL = 1.5 + 3.25 * (X**2 + Y**2)
"""From 1.5 to 8, too."""


def greys(scale: Scale, values: np.ndarray) -> int:
    """How many of 256 shades of grey the values have, as levels of a filled contour."""
    layers = np.unique(np.searchsorted(scale.levels, values, side="right").clip(1, len(scale.levels) - 1))
    middles = (scale.levels[layers - 1] + scale.levels[layers]) / 2
    colours = colormaps["viridis"](scale.norm(middles))[:, :3]
    return len(np.unique((255 * colours @ [0.299, 0.587, 0.114]).round()))


def test_a_narrow_valley_has_many_shades_and_a_bowl_stays_linear():
    bottom = VALLEY[:, 25]  # along the valley
    chosen, linear = Scale.of(VALLEY), Scale.of(VALLEY, "linear")
    assert chosen.rising
    assert greys(linear, bottom) <= 2, "a linear scale hides it"
    assert greys(chosen, bottom) >= 6
    bowl = Scale.of(BOWL)
    assert not bowl.rising
    assert not bowl.logarithmic
    assert bowl.levels == pytest.approx(Scale.of(BOWL, "linear").levels)


def test_the_lowest_fifth_has_a_third_of_the_colours():
    scale = Scale.of(VALLEY)
    assert scale.norm(np.quantile(VALLEY, 0.2)) == pytest.approx(1 / 3)
    assert (scale.norm(VALLEY.min()), scale.norm(VALLEY.max())) == (pytest.approx(0), pytest.approx(1))
    np.testing.assert_allclose(scale.norm.inverse(scale.norm(VALLEY.ravel())), VALLEY.ravel(), rtol=1e-12)
    # The formula, with its size by bisection in place of the closed form.
    share = (VALLEY - 1.5) / np.ptp(VALLEY)
    size = _size(float(np.quantile(share, 0.2)))
    np.testing.assert_allclose(scale.norm(VALLEY), np.log1p(share / size) / np.log1p(1 / size), rtol=1e-9)


def _size(e: float) -> float:
    """The s with ln(1 + e/s) = ln(1 + 1/s)/3."""
    low, high = 1e-9, 1e3
    for _ in range(200):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if np.log1p(e / middle) > np.log1p(1 / middle) / 3 else (low, middle)
    return float(low)


def test_the_rule_is_where_a_fifth_lies_in_the_lowest_fifteenth():
    rng = np.random.default_rng(0)
    rest = rng.uniform(2.0, 8.0, 790)
    bottom = rng.uniform(1.5, 1.6, 210)
    assert Scale.of(np.concatenate([[1.5], bottom, rest])).rising
    assert not Scale.of(np.concatenate([[1.5], bottom[:150], rest])).rising
    assert not Scale.of(np.linspace(-3, 5, 100)).rising, "evenly spread"
    assert Scale.of(VALLEY - 4).rising, "of values below 0 too"
    assert Scale.of(100 * (VALLEY - 1.4)).logarithmic, "more than a decade"
    assert not Scale.of(VALLEY, "linear").rising
    assert Scale.of(BOWL, "rise").rising


@pytest.mark.parametrize("values", [VALLEY, VALLEY - 4, 1e-4 * VALLEY, np.r_[np.full(90, 2.0), np.linspace(2, 3, 10)]])
def test_ticks_are_round_values_on_the_scale_and_told(values):
    scale = Scale.of(values)
    low, high = values.min(), values.max()
    assert scale.rising
    assert len(scale.ticks) >= 4
    assert all(low <= tick <= high for tick in scale.ticks)
    assert np.diff(scale.norm(scale.ticks)).min() > 0.05
    assert max(len(f"{tick:g}") for tick in scale.ticks) <= 8
    figure = Figure(figsize=(6, 4), layout="constrained")
    ax = figure.subplots()
    if values.ndim == 2:
        surface = made(values, x=np.linspace(-1, 1, 51), y=np.linspace(-1, 1, 51), accuracy=None)
        draw_colour_bar(figure, [ax], draw_panel(ax, surface, values, scale, "viridis"), scale, "loss")
        assert figure.axes[1].get_ylabel() == f"loss, log scale above {low:.4g}"
        assert faults(figure) == []


def test_lines_and_reliefs_keep_their_heights():
    surface = made(VALLEY, x=np.linspace(-1, 1, 51), y=np.linspace(-1, 1, 51), accuracy=None)
    relief = draw([surface], kind="relief", scale="rise").axes[0]
    assert relief.get_zlim() == pytest.approx((1.5, 8.0))
    assert "log" not in relief.get_zlabel()
    along = draw([line(VALLEY[25], accuracy=None)]).axes[0]
    assert along.get_yscale() == "linear"
