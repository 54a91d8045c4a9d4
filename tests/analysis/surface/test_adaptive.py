"""Interpolated values are as near to the true ones as is estimated, and what cannot be interpolated is measured."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import analysis.surface.adaptive
from tests.analysis.surface.families import Truth, grid, hills


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("tolerance", [0.02, 0.005])
def test_true_error_is_within_the_estimate_and_the_estimate_within_the_tolerance(seed, tolerance):
    surface = Truth(loss=hills(seed))
    filled = surface.fill(tolerance)
    errors = np.abs(filled.values["loss"] / surface.truth["loss"] - 1)
    assert errors.max() <= filled.estimated <= tolerance
    assert surface.done.sum() < 51**2 / 6
    np.testing.assert_array_equal(filled.values["loss"][surface.done], surface.truth["loss"][surface.done])
    assert (filled.error[surface.done] == 0).all()
    assert (filled.error[~surface.done] > 0).all()


def test_a_bowl_in_the_logarithm_needs_few_points():
    x, y = grid(51, 51)
    surface = Truth(loss=np.exp(x**2 - x * y + 3 * y**2))
    filled = surface.fill()
    np.testing.assert_allclose(filled.values["loss"], surface.truth["loss"], rtol=1e-9)
    assert surface.done.sum() < 80


def test_points_are_where_the_surface_bends():
    x, y = grid(51, 51)
    surface = Truth(loss=np.exp(np.exp(-20 * ((x - 0.3) ** 2 + (y + 0.2) ** 2))))
    filled = surface.fill()
    assert np.abs(filled.values["loss"] / surface.truth["loss"] - 1).max() <= filled.estimated
    hill = (x - 0.3) ** 2 + (y + 0.2) ** 2 < 0.25
    assert surface.done[hill].mean() > 2 * surface.done[~hill].mean()


@pytest.mark.parametrize("shape", [(5, 101), (101, 4), (16, 16)])
def test_narrow_grid_is_interpolated_too(shape):
    surface = Truth(loss=hills(5, *shape))
    filled = surface.fill(0.02)
    errors = np.abs(filled.values["loss"] / surface.truth["loss"] - 1)
    assert errors.max() <= filled.estimated <= 0.02
    assert not surface.done.all()


@pytest.mark.slow
def test_large_grid_is_looked_at_in_parts(monkeypatch):
    monkeypatch.setattr(analysis.surface.adaptive, "_CANDIDATES", 300)
    monkeypatch.setattr(analysis.surface.adaptive, "_GLOBAL", 50)
    surface = Truth(loss=hills(6, 61, 41))
    filled = surface.fill()
    errors = np.abs(filled.values["loss"] / surface.truth["loss"] - 1)
    assert errors.max() <= filled.estimated <= 0.005
    assert (filled.error[~surface.done] > 0).all(), "an estimate for every point, looked at before or not"
    assert surface.done.sum() < 61 * 41 / 3


def test_grid_that_is_not_square_keeps_rows_and_columns_apart():
    surface = Truth(loss=hills(3, nx=61, ny=33))
    filled = surface.fill()
    assert filled.values["loss"].shape == (33, 61)
    np.testing.assert_allclose(filled.values["loss"], surface.truth["loss"], rtol=0.005)
    assert not surface.done.all()


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_loss_without_a_logarithm_has_every_point_measured(value):
    loss = hills(0, 31, 31)
    loss[12, 12] = value  # on one of the first lines
    surface = Truth(loss=loss)
    filled = surface.fill()
    assert surface.done.all()
    assert filled.estimated == 0
    small = Truth(loss=np.full((5, 5), value))
    small.fill()
    assert small.done.all()
    np.testing.assert_array_equal(filled.values["loss"], loss)


def test_rough_surface_falls_back_to_the_full_grid():
    surface = Truth(loss=np.random.default_rng(0).uniform(1, 2, (41, 41)))
    filled = surface.fill()
    assert surface.done.all()
    assert not filled.error.any()


@pytest.mark.parametrize("points", [2, 5, 15])
def test_small_grid_is_measured_whole(points):
    surface = Truth(loss=hills(1, points, points))
    surface.fill()
    assert surface.done.all()


def test_other_quantities_are_filled_in_with_an_estimate_of_their_deviation():
    loss = hills(2)
    accuracy = 100 * np.exp(-loss)
    surface = Truth(loss=loss, acc=accuracy)
    filled = surface.fill()
    off = np.abs(filled.values["acc"] - accuracy)
    assert off.max() < 2
    assert off.max() <= filled.spread["acc"] <= 12 * off.max()
    assert filled.values["acc"].max() <= 100


def test_other_quantities_stay_within_the_values_they_have():
    x, _ = grid(51, 51)
    surface = Truth(loss=hills(2), acc=np.where(x < 0.11, 100.0, 10.0))
    filled = surface.fill()
    assert (filled.values["acc"].min(), filled.values["acc"].max()) == (10, 100)
    assert not surface.done.all()


@pytest.mark.parametrize("stop", [0, 17, 36, 50, 90])
def test_a_run_that_was_stopped_asks_for_the_same_points(stop):
    whole = Truth(loss=hills(4))
    wanted = whole.fill()
    again = Truth(loss=hills(4))
    again.measure(whole.order[:stop], None)
    filled = again.fill()
    assert again.order == whole.order
    assert filled.values["loss"].tobytes() == wanted.values["loss"].tobytes()
    assert filled.error.tobytes() == wanted.error.tobytes()


def test_interpolants_have_the_same_bits_whatever_the_number_of_threads():
    random = np.random.default_rng(0)
    known = random.random((41, 41)) < 0.4  # large enough for BLAS to cut it up among threads
    there, points = random.random((int(known.sum()), 3)), np.argwhere(~known)
    found = []
    for threads in (1, 4):
        with threadpool_limits(threads, user_api="blas"):
            filling = analysis.surface.adaptive._Filling(
                {"loss": np.zeros(known.shape)}, lambda *_: None, ["loss"], 0.01
            )
            found.append(filling._interpolant(known, there, "quintic")(points).tobytes())
    assert found[0] == found[1]


def test_last_bits_do_not_choose_between_points_that_are_as_bad_by_symmetry():
    filling = analysis.surface.adaptive._Filling({"loss": np.zeros((21, 21))}, lambda *_: None, ["loss"], 0.01)
    filling._asked[::10, ::10] = True
    points = np.argwhere(~filling._asked)
    distance = np.hypot(*(points - 10).T)
    expected = 0.01 + np.sin(distance)
    random = np.random.default_rng(0)
    chosen = filling._worst(points, expected)
    for _ in range(20):
        np.testing.assert_array_equal(
            filling._worst(points, expected * (1 + 1e-13 * random.normal(size=len(points)))), chosen
        )
