"""The four ways and the barriers against closed forms; clients that diverged."""

import numpy as np
import pytest
import torch

from analysis.alignment import Asked, Federation
from analysis.alignment.local_models import compare_local_models
from landscape import Landscape
from tests.analysis.alignment.quadratics import federation, random_bowls

P = (0.5, 0.3, 0.2)
BOWLS = random_bowls(3, 5, seed=2)
POINTS = [torch.tensor(np.random.default_rng(i).standard_normal(5)) for i in range(5)]
RECEIVED, AGGREGATE, LOCAL = POINTS[3], POINTS[4], POINTS[:3]
ASKED = Asked(rho=0.2, tolerance=1e-9)


def quantities(matrices, centres, weights, w):
    """Loss, rise by an ascent step, λ_max and trace of Σ p_i f_i at w."""

    def loss(point):
        return sum(p * 0.5 * (point - m) @ a @ (point - m) for p, a, m in zip(weights, matrices, centres, strict=True))

    g = sum(p * a @ (w - m) for p, a, m in zip(weights, matrices, centres, strict=True))
    whole = sum(p * a for p, a in zip(weights, matrices, strict=True))
    return [loss(w), loss(w + 0.2 * g / np.linalg.norm(g)) - loss(w), np.linalg.eigvalsh(whole)[-1], np.trace(whole)]


def test_four_ways_of_quadratic_clients_with_unequal_weights():
    found = compare_local_models(federation(*BOWLS, P), RECEIVED, LOCAL, AGGREGATE, ASKED)
    for i, (a, m) in enumerate(zip(*BOWLS, strict=True)):
        for place, w in enumerate((RECEIVED, LOCAL[i], AGGREGATE)):
            own = quantities([a], [m], [1.0], w.numpy())
            everybody = quantities(*BOWLS, P, w.numpy())
            assert found.own[i, place, [0, 2, 3, 4]] == pytest.approx(own)
            assert found.everybody[i, place, [0, 2, 3, 4]] == pytest.approx(everybody)
    assert np.isnan(found.own[..., 1]).all()  # a bowl has no classes
    assert found.to_aggregate == pytest.approx(np.zeros(3))  # convex
    assert not found.diverged.any()
    apart = [[float((w - RECEIVED).norm()), float((w - AGGREGATE).norm())] for w in LOCAL]
    assert found.distances == pytest.approx(np.array(apart))


def test_without_the_received_model_the_rest_is_measured():
    found = compare_local_models(federation(*BOWLS, P), None, LOCAL, AGGREGATE, ASKED)
    assert np.isnan(found.own[:, 0]).all()
    assert np.isnan(found.everybody[:, 0]).all()
    assert np.isfinite(found.own[:, 1:, 0]).all()


def test_a_diverged_client_is_marked_and_stands_in_no_barrier():
    wrong = [LOCAL[0], torch.full((5,), float("nan"), dtype=torch.float64), LOCAL[2]]
    found = compare_local_models(federation(*BOWLS, P), RECEIVED, wrong, AGGREGATE, ASKED)
    assert found.diverged.tolist() == [0, 1, 0]
    assert np.isnan(found.own[1, 1]).all()
    assert np.isfinite(found.own[1, 2, 0])  # its loss at the aggregate is a number
    assert np.isnan(found.to_aggregate[1])
    assert np.isnan(found.between[1]).all()
    assert np.isfinite(found.between[0, 2])


class Wave(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1))


def wave():
    """Two clients with the loss 1 − cos(2πw): minima at whole numbers, 2 high between them."""
    batches = [{"x": torch.zeros(1)}] * 2
    options = {"device": "cpu", "dtype": "float64"}
    whole = Landscape.of(Wave(), batches, lambda net, _: (1 - torch.cos(2 * torch.pi * net.w)).sum(), **options)
    return Federation(whole, {i: torch.tensor([i]) for i in range(2)}, {0: 0.5, 1: 0.5}, (0, 1))


def test_barriers_between_minima_and_to_the_aggregate():
    local = [torch.tensor([0.0]).double(), torch.tensor([1.0]).double()]
    found = compare_local_models(wave(), None, local, torch.tensor([0.0]).double(), Asked(parts=("local",)))
    assert found.between[0, 1] == pytest.approx(2.0)
    assert found.between[0, 1] == found.between[1, 0]
    assert found.to_aggregate[1] == pytest.approx(2.0)
    assert np.isnan(found.own[..., 3:]).all()  # curvature was not asked for


def test_so_many_pairs_as_asked_for():
    found = compare_local_models(
        federation(*BOWLS, P), None, LOCAL, AGGREGATE, Asked(parts=("local",), barrier_pairs=1)
    )
    assert np.isfinite(found.between).sum() == 2
