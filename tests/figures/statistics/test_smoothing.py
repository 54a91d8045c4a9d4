"""The Hann window and the running mean, against hand-worked cases and SciPy."""

import numpy as np
import pytest
from scipy.signal.windows import hann as window

from figures.statistics import hann, running_mean
from landscape import FedscapeError


def test_three_values_weigh_a_quarter_a_half_and_a_quarter():
    # Inside (0 + 2·4 + 8)/4; at the ends the weights 1/2 and 1/4 are divided by 3/4.
    np.testing.assert_allclose(hann([0, 4, 8, 0], 3), [4 / 3, 4, 5, 8 / 3])


@pytest.mark.parametrize("length", [1, 3, 5, 21, 101])
def test_a_constant_stays_constant_also_where_the_window_is_longer_than_the_curve(length):
    np.testing.assert_allclose(hann(np.full(40, 0.7), length), 0.7, rtol=1e-14)
    np.testing.assert_allclose(running_mean(np.full(40, 0.7), length), 0.7, rtol=1e-14)


def test_the_window_is_scipys_without_its_zeros_and_centred():
    values = np.random.default_rng(0).normal(size=60)
    weights = window(23)[1:-1]
    np.testing.assert_allclose(hann(values, 21)[10:-10], np.convolve(values, weights / weights.sum(), "valid"))
    straight = np.arange(60.0)
    np.testing.assert_allclose(hann(straight, 21)[10:-10], straight[10:-10])


def test_values_that_are_not_finite_count_for_nothing_and_stay_unknown():
    smooth = hann([1, np.nan, 3, np.inf], 3)
    np.testing.assert_allclose(smooth[[0, 2]], [1, 3])
    assert np.isnan(smooth[[1, 3]]).all()
    np.testing.assert_allclose(running_mean([1, np.nan, 3], 3), [1, np.nan, 2])


def test_a_running_mean_looks_back_only():
    np.testing.assert_allclose(running_mean([1, 2, 6, 1], 3), [1, 1.5, 3, 3])


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: hann([1, 2], 2), "a Hann window of 2 values has no middle: give an odd number"),
        (lambda: hann([1, 2], 0), "has no middle"),
        (lambda: hann([[1, 2]], 1), r"values of shape \(1, 2\) are no curve"),
        (lambda: hann([], 1), "are no curve"),
        (lambda: running_mean([1, 2], 0), "a running mean over 0 values is none"),
    ],
)
def test_mistakes_are_one_sentence(call, reason):
    with pytest.raises(FedscapeError, match=reason):
        call()
