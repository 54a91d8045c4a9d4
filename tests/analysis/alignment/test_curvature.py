"""Eigenspaces, shares and heterogeneity against closed forms and dense float64 Hessians."""

import numpy as np
import pytest
import torch

from analysis import Dense
from analysis.alignment import Asked, Federation
from analysis.alignment.curvature import compare_curvature, eigenspace, space_error, subspace_cosines
from landscape import FedscapeError, Landscape
from tests.analysis.alignment.quadratics import federation, random_bowls, top

P = (0.5, 0.3, 0.2)
W = torch.tensor([0.3, -1.0, 0.7, 2.0, 0.0, 1.0], dtype=torch.float64)
BOWLS = random_bowls(3, 6, seed=1)
EXACT = Asked(top=2, tolerance=1e-10)


def test_every_number_of_quadratic_clients_with_unequal_weights():
    found = compare_curvature(federation(*BOWLS, P), W, Asked(top=2, tolerance=1e-10, probes=400))
    whole = sum(p * a for p, a in zip(P, BOWLS[0], strict=True))
    values, space = top(whole, 2)
    each = [top(a, 2) for a in BOWLS[0]]
    assert found.values == pytest.approx(np.array([v for v, _ in each]))
    assert found.global_values == pytest.approx(values)
    overlaps = [[np.linalg.norm(u.T @ v) ** 2 / 2 for _, v in each] for _, u in each]
    assert found.overlaps == pytest.approx(np.array(overlaps), abs=1e-8)
    assert found.with_global == pytest.approx([np.linalg.norm(u.T @ space) ** 2 / 2 for _, u in each], abs=1e-8)
    carried = [sum(values * np.linalg.norm(u.T @ space, axis=0) ** 2) / values.sum() for _, u in each]
    assert found.carried == pytest.approx(carried, abs=1e-8)
    for i, (_, u) in enumerate(each):
        cosines = np.linalg.svd(u.T @ space, compute_uv=False)
        assert found.global_angles[i] == pytest.approx(np.degrees(np.arccos(cosines)), abs=1e-5)
        for j, (_, v) in enumerate(each):
            cosines = np.clip(np.linalg.svd(u.T @ v, compute_uv=False), 0, 1)
            assert found.angles[i, j] == pytest.approx(np.degrees(np.arccos(cosines)), abs=1e-4)
    exact = [np.linalg.norm(a - whole) ** 2 / np.linalg.norm(whole) ** 2 for a in BOWLS[0]]
    errors = np.abs(found.heterogeneity - exact) / found.heterogeneity_errors
    assert errors.max() < 4
    assert 0 < found.heterogeneity_errors.max() < 0.2 * found.heterogeneity.max()
    mean = float(np.array(P) @ exact)
    assert abs(found.mean_heterogeneity - mean) < 4 * found.mean_heterogeneity_error
    assert found.mean_heterogeneity == pytest.approx(np.array(P) @ found.heterogeneity)


def test_identical_clients_have_1_and_0_where_they_must_and_orthogonal_ones_0():
    same = compare_curvature(federation([BOWLS[0][0]] * 3, BOWLS[1], P), W, EXACT)
    assert same.overlaps == pytest.approx(np.ones((3, 3)))
    assert same.with_global == pytest.approx(np.ones(3))
    assert same.carried == pytest.approx(np.ones(3))
    assert same.angles == pytest.approx(np.zeros((3, 3, 2)), abs=1e-3)
    assert same.heterogeneity == pytest.approx(np.zeros(3), abs=1e-20)
    first, second = np.diag([5.0, 4, 0.1, 0.2, 0.3, 0.4]), np.diag([0.1, 0.2, 4.5, 3, 0.3, 0.4])
    third = np.diag([0.1, 4.2, 3.3, 0.2, 0.3, 0.4])
    found = compare_curvature(federation([first, second, third], [np.zeros(6)] * 3), W, EXACT)
    assert found.overlaps == pytest.approx(np.array([[1, 0, 0.5], [0, 1, 0.5], [0.5, 0.5, 1]]), abs=1e-9)
    assert found.angles[0, 1] == pytest.approx([90, 90])
    assert found.angles[0, 2] == pytest.approx([0, 90], abs=1e-3)


def test_rotation_changes_nothing_and_scale_the_eigenvalues_alone():
    q, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((6, 6)))
    plain = compare_curvature(federation(*BOWLS, P), W, EXACT)
    bowls = [q @ a @ q.T for a in BOWLS[0]], [q @ m for m in BOWLS[1]]
    turned = compare_curvature(federation(*bowls, P), torch.as_tensor(q) @ W, EXACT)
    scaled = compare_curvature(federation([a / 9 for a in BOWLS[0]], BOWLS[1], P), W, EXACT)
    for other, factor in ((turned, 1.0), (scaled, 1 / 9)):
        assert other.values == pytest.approx(factor * plain.values)
        assert other.overlaps == pytest.approx(plain.overlaps, abs=1e-8)
        assert other.carried == pytest.approx(plain.carried, abs=1e-8)
    assert scaled.heterogeneity == pytest.approx(plain.heterogeneity)  # the probes are the same


def net(dtype="float64"):
    """A federation of a net small enough for a dense Hessian: one client of one class, one of one sample."""
    torch.manual_seed(0)
    x, y = torch.randn(24, 3), torch.arange(24) % 3
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    whole = Landscape(module, (x, y), device="cpu", dtype=dtype)
    parts = {0: torch.arange(0, 24, 3), 1: torch.tensor([1]), 2: torch.arange(2, 20), 5: torch.arange(20, 24)}
    weights = {0: 0.4, 1: 0.1, 2: 0.2, 5: 0.3}
    return Federation(whole, parts, weights, (0, 1, 2)), module.double(), x.double(), y


def dense(module, x, y, indices):
    names = [name for name, _ in module.named_parameters()]
    shapes = [p.shape for p in module.parameters()]
    flat = torch.cat([p.detach().flatten() for p in module.parameters()])

    def loss(w):
        pieces = torch.split(w, [shape.numel() for shape in shapes])
        named = {name: piece.view(shape) for name, piece, shape in zip(names, pieces, shapes, strict=True)}
        return torch.nn.functional.cross_entropy(torch.func.functional_call(module, named, (x[indices],)), y[indices])

    return torch.autograd.functional.hessian(loss, flat).numpy()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_small_net_against_dense_hessians_within_the_bounds(dtype):
    found, module, x, y = net(dtype)
    asked = Asked(top=2, tolerance=1e-6)
    measured = compare_curvature(found, found.whole.weights, asked)
    each = [dense(module, x, y, found.indices[i]) for i in (0, 1, 2, 5)]
    whole = sum(found.p[i] * h for i, h in zip((0, 1, 2, 5), each, strict=True))
    values, space = top(whole, 2)
    assert np.abs(measured.global_values - values).max() <= measured.global_bounds.max() + 1e-7
    spaces = [top(h, 2)[1] for h in each[:3]]
    for i, u in enumerate(spaces):
        assert np.abs(measured.values[i] - top(each[i], 2)[0]).max() <= measured.bounds[i].max() + 1e-7
        overlap = np.linalg.norm(u.T @ space) ** 2 / 2
        assert abs(measured.with_global[i] - overlap) <= measured.with_global_errors[i] + 1e-6
        carried = sum(values * np.linalg.norm(u.T @ space, axis=0) ** 2) / values.sum()
        assert abs(measured.carried[i] - carried) <= measured.carried_errors[i] + 1e-6
        for j, v in enumerate(spaces):
            overlap = np.linalg.norm(u.T @ v) ** 2 / 2
            assert abs(measured.overlaps[i, j] - overlap) <= measured.overlap_errors[i, j] + 1e-6
    assert measured.with_global_errors.max() < 0.1  # the bounds say something
    exact = [np.linalg.norm(h - whole) ** 2 / np.linalg.norm(whole) ** 2 for h in each[:3]]
    assert np.abs((measured.heterogeneity - exact) / measured.heterogeneity_errors).max() < 4


@pytest.mark.parametrize("tolerance", [0.3, 0.03, 1e-4])
def test_the_error_of_an_eigenspace_is_a_bound(tolerance):
    """Against NumPy's eigenvectors, where the iteration stops early, too."""
    generator = np.random.default_rng(5)
    q, _ = np.linalg.qr(generator.standard_normal((60, 60)))
    for last in (0.5, 0.9):
        matrix = (q * np.r_[3.0, 2.0, 1.0, last, generator.uniform(0, 0.3, 56)]) @ q.T
        found = eigenspace(Dense(torch.from_numpy(matrix)), 3, Asked(tolerance=tolerance))
        true = torch.from_numpy(q[:, :3].T.copy())
        sine = float(np.sqrt(1 - subspace_cosines(found.vectors, true).min() ** 2))
        assert sine <= space_error(found) + 1e-7


def test_eigenvalues_that_are_not_told_apart_have_no_space():
    found = eigenspace(Dense(torch.diag(torch.tensor([2.0, 1.0, 1.0, 1.0, 0.5, 0.1]).double())), 2, Asked())
    assert space_error(found) == 1.0


def test_a_whole_space_has_no_error_and_more_is_refused():
    found = compare_curvature(federation(*BOWLS, P), W, Asked(top=6))
    assert found.overlaps == pytest.approx(np.ones((3, 3)))
    assert found.space_errors.max() == 0.0
    with pytest.raises(FedscapeError, match=r"7 eigenvalues of 6 are asked for: give --top 6 or less"):
        compare_curvature(federation(*BOWLS, P), W, Asked(top=7))


def test_shares_are_unknown_where_curvature_is_negative():
    found = compare_curvature(federation([np.diag([1.0, -2.0])] * 2, [[0.0, 0.0]] * 2), W[:2], Asked(top=2))
    assert np.isnan(found.carried).all()


def test_clients_side_by_side_and_one_by_one_have_the_same_numbers(monkeypatch):
    found, _, _, _ = net()
    asked = Asked(top=2, tolerance=1e-8)
    together = compare_curvature(found, found.whole.weights, asked).to_dict()
    monkeypatch.setattr(Landscape, "hessians_with", lambda self, others, w: None)
    alone = compare_curvature(found, found.whole.weights, asked).to_dict()
    for name, value in alone.items():
        nearness = 1e-5 if "angles" in name else 1e-9
        assert np.array(together[name]) == pytest.approx(np.array(value), rel=1e-6, abs=nearness), name
