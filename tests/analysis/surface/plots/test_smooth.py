"""Contours between the points of a coarse grid are smooth, go through what was measured, and invent nothing."""

import numpy as np
import pytest
from matplotlib.colors import LogNorm, Normalize

from analysis.surface.plots.figures import draw
from analysis.surface.plots.smooth import ENOUGH, between, refined
from tests.analysis.surface.plots.test_surface_plots import made

NORMS = [Normalize(0, 1), LogNorm(1e-3, 10)]


def rough(seed: int, shape: tuple[int, int] = (7, 11)) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unevenly spaced points with rough positive values."""
    rng = np.random.default_rng(seed)
    x, y = (np.cumsum(rng.uniform(0.2, 1.0, n)) for n in shape[::-1])
    return x, y, np.exp(rng.normal(0, 2, shape))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(5))
def test_measured_values_stay_and_none_is_outside_the_range_of_its_cells_corners(seed, norm):
    x, y, values = rough(seed)
    across, up, finer = between(x, y, values, norm)
    rows, columns = np.searchsorted(up, y), np.searchsorted(across, x)
    np.testing.assert_array_equal(across[columns], x)
    np.testing.assert_array_equal(finer[np.ix_(rows, columns)], values)
    for j in range(len(y) - 1):
        for i in range(len(x) - 1):
            corners = values[j : j + 2, i : i + 2]
            cell = finer[rows[j] : rows[j + 1] + 1, columns[i] : columns[i + 1] + 1]
            assert cell.min() >= corners.min() * (1 - 1e-9)
            assert cell.max() <= corners.max() * (1 + 1e-9)


def test_no_minimum_is_invented_where_a_spline_would_overshoot():
    x = y = np.linspace(0, 1, 6)
    step = np.broadcast_to(np.where(x < 0.5, 0.0, 1.0), (6, 6)).copy()
    finer = between(x, y, step, Normalize(0, 1))[2]
    assert (finer.min(), finer.max()) == (0.0, 1.0)
    assert (np.diff(finer, axis=1) >= 0).all(), "and it is as monotone as the points"


def test_planes_are_themselves_and_the_axes_can_be_swapped():
    x, y, values = rough(3)
    plane = 2 * x[None] + y[:, None]
    across, up, finer = between(x, y, plane, Normalize(0, 30))
    np.testing.assert_allclose(finer, 2 * across[None] + up[:, None], rtol=1e-12)
    there, back = between(x, y, values, Normalize(0, 1))[2], between(y, x, values.T, Normalize(0, 1))[2]
    np.testing.assert_allclose(there, back.T, rtol=1e-12)


def test_contours_of_a_coarse_bowl_are_round():
    """A contour of x² + y² is a circle: from 11 × 11 points its radius varies by less than between straight lines."""
    x = np.linspace(-1, 1, 11)
    bowl = x[None] ** 2 + x[:, None] ** 2
    across, up, finer = between(x, x, bowl, Normalize(0, 2))
    exact = across[None] ** 2 + up[:, None] ** 2
    linear = np.array([np.interp(across, x, row) for row in bowl])
    linear = np.array([np.interp(up, x, column) for column in linear.T]).T
    assert np.abs(finer - exact).max() < 0.6 * np.abs(linear - exact).max()


def test_beside_a_point_without_a_value_there_is_none():
    x, y, values = rough(0)
    values[3, 4] = np.nan
    values[0, 0] = np.inf
    across, up, finer = between(x, y, values, Normalize(0, 1))
    inside = (across > x[3]) & (across < x[5])
    assert np.isnan(finer[np.ix_((up > y[2]) & (up < y[4]), inside)]).all()
    assert not np.isfinite(finer[np.ix_(up < y[1], across < x[1])]).any()
    whole = np.ix_((up >= y[4]) & (up <= y[6]), (across >= x[5]) & (across <= x[10]))
    assert np.isfinite(finer[whole]).all()


def test_fine_grids_are_drawn_as_they_are_and_coarse_ones_told():
    fine = np.linspace(0, 1, ENOUGH)
    assert refined(fine) is fine
    assert between(fine, fine, np.zeros((ENOUGH, ENOUGH)), Normalize(0, 1))[0] is fine
    for points, told in ((11, True), (ENOUGH, False)):
        x = np.linspace(-1, 1, points)
        surface = made(1 + x[None] ** 2 + x[:, None] ** 2, x=x, y=x)
        for kind in ("contours", "heatmap"):
            caption = draw([surface], kind=kind).get_supxlabel().replace("\n", " ")
            assert (f"contours interpolated between the {points} × {points} points" in caption) is (
                told and kind == "contours"
            )
