"""Gradients and ascent steps of clients against closed forms, invariances, and SAM's and ASAM's own measures."""

import numpy as np
import pytest
import torch

import analysis.alignment.perturbations as perturbations
from analysis.alignment import Asked, Federation
from analysis.alignment.gradients import compare_gradients
from analysis.alignment.perturbations import ascent_scale, ascent_step, cross_gains
from analysis.hessian.sharpness import adaptive_sharpness, sam_sharpness
from landscape import FedscapeError, Landscape
from tests.analysis.alignment.quadratics import federation, random_bowls

P = (0.5, 0.3, 0.2)
W = np.array([0.3, -1.0, 0.7, 2.0])
BOWLS = random_bowls(3, 4)


def value(matrix, centre, w):
    return 0.5 * (w - centre) @ matrix @ (w - centre)


def gradients_of(found, w):
    each, total = found.gradients(torch.as_tensor(w))
    nothing = np.zeros(len(each)), 0.0
    return compare_gradients(each, total, nothing, nothing)


def gains_of(found, w, **asked):
    point = torch.as_tensor(w)
    return cross_gains(found, point, found.values(point), *found.gradients(point), Asked(**asked))


def test_gradients_of_quadratic_clients_with_unequal_weights():
    g = np.array([a @ (W - m) for a, m in zip(*BOWLS, strict=True)])
    total = np.array(P) @ g
    found = gradients_of(federation(*BOWLS, P), W)
    norms = np.linalg.norm(g, axis=1)
    assert found.norms == pytest.approx(norms)
    assert found.norm == pytest.approx(np.linalg.norm(total))
    assert found.cosines == pytest.approx(g @ g.T / np.outer(norms, norms))
    cosines = g @ total / norms / np.linalg.norm(total)
    assert found.with_global == pytest.approx(cosines)
    along = np.outer(g @ total, total) / (total @ total)  # the projections of the gradients on ∇f
    assert found.along_global == pytest.approx(np.sum(along**2, axis=1) / norms**2)


@pytest.mark.parametrize("measured", [(0, 1, 2), (2,), (1, 0)])
def test_f_is_over_all_clients_whoever_is_measured(measured):
    found = federation(*BOWLS, P, measured)
    each, total = found.gradients(torch.as_tensor(W))
    wanted = [a @ (W - m) for a, m in zip(*BOWLS, strict=True)]
    assert each.numpy() == pytest.approx(np.array([wanted[i] for i in measured]))
    assert total.numpy() == pytest.approx(np.array(P) @ np.array(wanted))
    losses, loss = found.values(torch.as_tensor(W))
    assert loss == pytest.approx(sum(p * value(a, m, W) for p, a, m in zip(P, *BOWLS, strict=True)))
    assert len(losses) == len(measured)
    hessian = found.hessian(torch.as_tensor(W))
    vectors = torch.eye(4, dtype=torch.float64)
    assert hessian.matmat(vectors).numpy() == pytest.approx(sum(p * a for p, a in zip(P, BOWLS[0], strict=True)))


def test_cross_gains_of_quadratic_clients():
    rho = 0.4
    found = gains_of(federation(*BOWLS, P), W, rho=rho)
    g = np.array([a @ (W - m) for a, m in zip(*BOWLS, strict=True)])
    steps = rho * g / np.linalg.norm(g, axis=1, keepdims=True)
    own = np.array([[value(a, m, W + e) - value(a, m, W) for a, m in zip(*BOWLS, strict=True)] for e in steps])
    assert found.gains == pytest.approx(own)
    assert found.global_gains == pytest.approx(own @ np.array(P))

    def rise(e):
        return sum(p * (value(a, m, W + e) - value(a, m, W)) for p, a, m in zip(P, *BOWLS, strict=True))

    total, mean = np.array(P) @ g, np.array(P) @ steps
    assert found.worst == pytest.approx(rise(rho * total / np.linalg.norm(total)))
    assert found.mean_gain == pytest.approx(rise(mean))
    assert found.found == pytest.approx(rise(mean) / rise(rho * total / np.linalg.norm(total)))
    assert found.mean_length == pytest.approx(np.linalg.norm(mean) / rho)
    assert found.lengthened_found == pytest.approx(
        rise(rho * mean / np.linalg.norm(mean)) / rise(rho * total / np.linalg.norm(total))
    )
    assert found.found_stderr == 0.0  # all clients are measured


def test_the_mean_step_is_brought_to_the_radius_by_the_function_for_perturbations_used(monkeypatch):
    brought, radii = perturbations._brought, []

    def seen(step, scale, rho):
        radii.append(rho)
        return brought(step, scale, rho)

    monkeypatch.setattr(perturbations, "_brought", seen)
    found = gains_of(federation(*BOWLS, P), W, rho=0.4)
    assert radii == [0.4]
    monkeypatch.setattr(perturbations, "_brought", lambda step, scale, rho: None)
    assert gains_of(federation(*BOWLS, P), W, rho=0.4).lengthened_found == 0.0 < found.lengthened_found


def test_identical_clients_find_the_whole_worst_case_and_opposite_ones_none():
    matrix, centre = BOWLS[0][0], BOWLS[1][0]
    same = gains_of(federation([matrix] * 3, [centre] * 3, P), W)
    assert same.found == pytest.approx(1.0)
    assert same.lengthened_found == pytest.approx(1.0)
    assert same.mean_length == pytest.approx(1.0)
    assert same.gains == pytest.approx(np.full((3, 3), same.worst))
    assert gradients_of(federation([matrix] * 3, [centre] * 3, P), W).cosines == pytest.approx(np.ones((3, 3)))
    opposite = federation([np.eye(4)] * 2, [W - np.eye(4)[0], W + np.eye(4)[0]])
    found = gains_of(opposite, W)
    assert found.mean_length == 0.0
    assert found.mean_gain == 0.0
    assert np.isnan(found.found)  # the federation's gradient is 0: there is no rise to find
    assert gradients_of(opposite, W).cosines == pytest.approx(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    assert np.isnan(gradients_of(opposite, W).with_global).all()


def test_orthogonal_gradients_have_the_cosine_0():
    found = gradients_of(federation([np.eye(2)] * 2, [[1.0, 0.0], [0.0, 1.0]]), np.zeros(2))
    assert found.cosines == pytest.approx(np.eye(2))
    assert found.with_global == pytest.approx(np.full(2, 0.5**0.5))


def test_rotated_parameters_change_nothing_and_rescaled_ones_lengths_alone():
    q, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((4, 4)))
    plain = federation(*BOWLS, P)
    turned = federation([q @ a @ q.T for a in BOWLS[0]], [q @ m for m in BOWLS[1]], P)
    a, b = gradients_of(plain, W), gradients_of(turned, q @ W)
    assert b.cosines == pytest.approx(a.cosines)
    assert b.norms == pytest.approx(a.norms)
    gains, same = gains_of(plain, W), gains_of(turned, q @ W)
    assert same.gains == pytest.approx(gains.gains)
    assert same.found == pytest.approx(gains.found)
    c = 3.0
    scaled = federation([a / c**2 for a in BOWLS[0]], [c * m for m in BOWLS[1]], P)
    longer = gradients_of(scaled, c * W)
    assert longer.cosines == pytest.approx(a.cosines)
    assert longer.norms == pytest.approx(a.norms / c)
    assert gains_of(scaled, c * W, rho=0.05 * c).gains == pytest.approx(gains.gains)
    assert gains_of(scaled, c * W).gains != pytest.approx(gains.gains)  # a radius is no shape


@pytest.mark.parametrize("ascent", ["sam", "asam"])
def test_own_gains_are_the_sharpness_of_one_step(ascent):
    """Against :mod:`analysis.hessian.sharpness`, on a net whose biases ASAM does not scale."""
    torch.manual_seed(0)
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    whole = Landscape(torch.nn.Linear(3, 2), (x, y), device="cpu", dtype="float64")
    parts = {0: torch.arange(5), 1: torch.arange(5, 12)}
    found = Federation(whole, parts, {0: 5 / 12, 1: 7 / 12}, (0, 1))
    gains = gains_of(found, whole.weights, ascent=ascent, rho=0.3, eta=0.1)
    kind = (lambda f: sam_sharpness(f, 0.3)) if ascent == "sam" else (lambda f: adaptive_sharpness(f, 0.3, 0.1))
    assert np.diag(gains.gains) == pytest.approx([kind(client).value for client in found.clients], rel=1e-9)
    assert gains.worst == pytest.approx(kind(whole).value, rel=1e-9)  # p_i ∝ n_i: f is the loss over all samples


def test_asam_rescales_with_the_weights_where_sam_does_not():
    """With η = 0 and no biases, f(w) and f of (w_1/c, c w_2) have the same adaptive rise."""
    q = np.diag([4.0, 0.25])
    plain, scaled = federation([np.eye(2) + 1], [[0.0, 0.0]]), federation([q @ (np.eye(2) + 1) @ q], [[0.0, 0.0]])
    w = np.array([1.0, 2.0])
    there = np.linalg.inv(q) @ w
    same = gains_of(plain, w, ascent="asam", eta=0.0), gains_of(scaled, there, ascent="asam", eta=0.0)
    assert same[0].worst == pytest.approx(same[1].worst)
    assert gains_of(plain, w).worst != pytest.approx(gains_of(scaled, there).worst)


def test_a_gradient_of_0_has_no_step_and_no_cosine():
    found = federation([np.eye(2)] * 2, [[0.0, 0.0], [1.0, 0.0]])
    assert np.isnan(gradients_of(found, np.zeros(2)).cosines[0]).all()
    gains = gains_of(found, np.zeros(2))
    assert gains.gains[0] == pytest.approx(np.zeros(2))
    step = ascent_step(torch.zeros(3), torch.ones(3), 0.1)
    assert torch.equal(step, torch.zeros(3))
    tiny = torch.full((2,), 1e-30)  # its squares are 0 in float32
    assert float(ascent_step(tiny, torch.ones(2), 0.1).norm()) == pytest.approx(0.1, rel=1e-6)


def test_rounding_says_how_far_gains_in_float32_are_off():
    torch.manual_seed(1)
    x, y = torch.randn(40, 6), torch.arange(40) % 3
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    parts, p = {i: torch.arange(10 * i, 10 * i + 10) for i in range(4)}, dict.fromkeys(range(4), 0.25)
    single, double = (
        gains_of(Federation(whole, parts, p, (0, 1, 2, 3)), whole.weights)
        for whole in (Landscape(net, (x, y), device="cpu", dtype=kind) for kind in ("float32", "float64"))
    )
    assert np.abs(single.gains - double.gains).max() <= single.rounding
    assert single.rounding < 1e-3 * np.abs(double.gains).max()


def test_bad_federations_are_refused():
    matrix, centre = [np.eye(2)] * 2, [[0.0, 0.0]] * 2
    for weights, measured, sentence in (
        (None, (), "no client is measured"),
        (None, (5,), "client 5 has no data"),
        ((1.0, 0.0), (0,), "client 1 has data and the weight 0.0"),
    ):
        with pytest.raises(FedscapeError, match=sentence):
            federation(matrix, centre, weights, measured)
    for name, wrong in {
        "rho": 0.0,
        "top": 0,
        "probes": 1,
        "eta": -1.0,
        "tolerance": 1.0,
        "parts": ("nothing",),
    }.items():
        with pytest.raises(FedscapeError, match=f"{name} is"):
            Asked(**{name: wrong})


def test_the_scale_of_sam_is_1():
    w = torch.tensor([-2.0, 3.0])
    found = federation([np.eye(2)], [[0.0, 0.0]])
    assert torch.equal(ascent_scale(Asked(), w, found.whole.space), torch.ones(2))
