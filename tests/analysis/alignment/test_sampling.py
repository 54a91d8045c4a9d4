"""Means over clients: weights, clients without a value, and intervals that cover."""

import numpy as np
import pytest
import torch
from scipy import stats

from analysis.alignment import Asked
from analysis.alignment.perturbations import cross_gains
from analysis.alignment.sampling import mean_over_clients, mean_over_pairs
from tests.analysis.alignment.quadratics import federation

SEEDS = 200


def test_the_mean_is_weighted_and_leaves_out_what_is_not_finite():
    found = mean_over_clients(np.array([1.0, np.nan, 4.0]), np.array([0.2, 0.5, 0.3]), 3)
    assert found.value == pytest.approx((0.2 + 1.2) / 0.5)
    assert (found.low, found.high, found.count, found.left_out) == (1.0, 4.0, 2, 1)
    assert found.stderr > 0  # of three clients two are known
    nothing = mean_over_clients(np.array([np.nan]), np.array([1.0]), 1)
    assert np.isnan(nothing.value)
    assert nothing.left_out == 1
    assert np.isnan(mean_over_clients(np.array([1.0]), np.array([1.0]), 5).stderr)  # one says nothing of others
    pairs = mean_over_pairs(np.array([[1.0, 0.5, np.nan], [0.5, 1.0, np.nan], [np.nan, np.nan, np.nan]]), 3)
    assert (pairs.value, pairs.count, pairs.left_out) == (0.5, 2, 1)
    assert np.isnan(mean_over_pairs(np.eye(1), 1).value)


def coverage(truth, draw):
    inside = 0
    for seed in range(SEEDS):
        low, high = draw(np.random.default_rng(seed)).interval()
        inside += low <= truth <= high
    return inside / SEEDS


def test_intervals_of_means_cover():
    generator = np.random.default_rng(7)
    values, p = generator.standard_normal(60), generator.uniform(0.5, 1.5, 60)

    def draw(seeded):
        some = seeded.choice(60, 15, replace=False)
        return mean_over_clients(values[some], p[some], 60)

    assert 0.9 <= coverage(p @ values / p.sum(), draw) <= 0.99


def test_intervals_of_means_over_pairs_cover():
    points = np.random.default_rng(8).standard_normal((60, 3)) + np.array([0.5, 0, 0])
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    cosines = unit @ unit.T
    truth = cosines[~np.eye(60, dtype=bool)].mean()

    def draw(seeded):
        some = seeded.choice(60, 15, replace=False)
        return mean_over_pairs(cosines[np.ix_(some, some)], 60)

    assert 0.9 <= coverage(truth, draw) <= 1.0


@pytest.mark.slow
def test_intervals_of_the_share_that_is_found_cover():
    """The clients' mean step is drawn, too: the error is that of a function of means."""
    generator = np.random.default_rng(9)
    matrices = [np.diag(generator.uniform(1, 3, 4)) for _ in range(48)]
    centres = [generator.standard_normal(4) + np.array([2, 0, 0, 0]) for _ in range(48)]
    p = generator.uniform(0.5, 1.5, 48)
    w = torch.zeros(4, dtype=torch.float64)

    def found(measured):
        federated = federation(matrices, centres, p, measured)
        return cross_gains(federated, w, federated.values(w), *federated.gradients(w), Asked())

    truth, inside = found(tuple(range(48))).found, 0
    for seed in range(SEEDS):
        one = found(tuple(np.random.default_rng(seed).choice(48, 16, replace=False)))
        inside += abs(one.found - truth) <= stats.t.ppf(0.975, 15) * one.found_stderr
    assert 0.9 <= inside / SEEDS <= 0.99
