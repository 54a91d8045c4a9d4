"""Operators beside the Hessian, against matrices built entry by entry."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch import nn

from analysis import Dense, Fisher, FromScipy, GaussNewton, Hessian, Shifted, largest_eigenpairs, to_scipy
from landscape import FedscapeError, Landscape
from tests.analysis.hessian.spectrum.spectra import dense_hessian, matrix, small_landscape


def jacobians(landscape):
    """Per-sample Jacobians of the outputs, [n, outputs, d], one output at a time."""
    module = landscape._flat.module
    landscape._flat.load(landscape.weights)
    parameters = list(module.parameters())
    x, _ = landscape.data.batch(slice(None), landscape.dtype)
    outputs = module(x)
    rows = [
        torch.cat([g.reshape(-1) for g in torch.autograd.grad(o, parameters, retain_graph=True)])
        for o in outputs.flatten()
    ]
    return torch.stack(rows).view(*outputs.shape, -1), outputs.detach()


def whole(operator):
    return operator.matmat(torch.eye(operator.shape[0], dtype=torch.float64))


@pytest.fixture(params=[60, 7])
def landscape(request):
    small = small_landscape()
    small.batch_size = request.param
    return small


def test_gauss_newton_is_the_sum_over_samples(landscape):
    j, outputs = jacobians(landscape)
    p = outputs.softmax(1)
    inner = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    expected = torch.einsum("nad,nab,nbe->de", j, inner, j) / len(j)
    torch.testing.assert_close(whole(GaussNewton(landscape)), expected, rtol=1e-9, atol=1e-12)


def test_gauss_newton_of_least_squares_on_a_linear_model_is_the_hessian():
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randn(20, k, generator=draw, dtype=torch.float64) for k in (4, 2))
    bowl = Landscape(nn.Linear(4, 2).double(), (x, y), nn.functional.mse_loss, device="cpu", batch_size=6)
    torch.testing.assert_close(whole(GaussNewton(bowl)), whole(Hessian(bowl)), rtol=1e-10, atol=1e-12)


def test_empirical_fisher_is_the_second_moment_of_per_sample_gradients(landscape):
    module, (x, y) = landscape._flat.module, landscape.data.batch(slice(None), landscape.dtype)
    rows = []
    for i in range(len(x)):
        loss = nn.functional.cross_entropy(module(x[i : i + 1]), y[i : i + 1])
        rows.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(module.parameters()))]))
    g = torch.stack(rows)
    torch.testing.assert_close(whole(Fisher(landscape)), g.T @ g / len(g), rtol=1e-9, atol=1e-12)


def test_monte_carlo_fisher_is_fixed_by_its_seed_and_gauss_newton_in_the_mean():
    small = small_landscape()
    v = torch.randn(small.dimension, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = GaussNewton(small) @ v
    draws = torch.stack([Fisher(small, kind="mc", seed=seed) @ v for seed in range(300)])
    assert torch.equal(draws[0], Fisher(small, kind="mc", seed=0) @ v)
    error = draws.mean(0) - exact
    scale = draws.std(0) / np.sqrt(len(draws))
    assert (error.abs() < 5 * scale + 1e-12).all()
    assert error.norm() < 0.2 * exact.norm()


def test_monte_carlo_fisher_of_a_regression_is_refused():
    x = torch.ones(3, 2)
    bowl = Landscape(nn.Linear(2, 1), (x, x[:, :1]), nn.functional.mse_loss, device="cpu")
    with pytest.raises(FedscapeError, match="needs a classifier"):
        Fisher(bowl, kind="mc") @ torch.ones(3)


def test_a_loss_that_is_linear_in_the_outputs_has_no_gauss_newton_curvature():
    x = torch.ones(3, 2)
    flat = Landscape(nn.Linear(2, 1), (x, x[:, :1]), lambda o, y: (o * y).mean(), device="cpu")
    assert torch.equal(GaussNewton(flat) @ torch.ones(3), torch.zeros(3))


def test_weight_decay_shifts_the_hessian():
    small = small_landscape()
    shifted = Shifted(Hessian(small), 0.25)
    np.testing.assert_allclose(
        whole(shifted).numpy(), dense_hessian(small) + 0.25 * np.eye(small.dimension), atol=1e-10
    )
    assert shifted.products == small.dimension


def test_scipy_and_back():
    operator, exact = matrix("outliers")
    scipy_values = eigsh(to_scipy(operator), k=3, which="LA", return_eigenvectors=False)
    np.testing.assert_allclose(scipy_values[::-1], exact[:3], rtol=1e-10)
    again = FromScipy(to_scipy(operator))
    np.testing.assert_allclose(largest_eigenpairs(again, 3, tolerance=1e-8).values, exact[:3], rtol=1e-8)
    vectors = torch.randn(120, 4, dtype=torch.float64)
    torch.testing.assert_close(again @ vectors, operator @ vectors)
    assert to_scipy(Dense(torch.eye(2))).dtype == np.float32


def test_graphs_are_kept_within_their_memory_and_change_nothing():
    small = small_landscape()
    small.batch_size = 7
    v = torch.randn(3, small.dimension, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = small.hvp(None, v)
    kept = small.hessian()
    first = kept(v)
    assert kept.graphs_kept == 9
    some = small.hessian(graph_memory=3 * max(kept._weights.values()))
    some(v)
    assert some.graphs_kept == 3
    for products in (first, kept(v), some(v)):
        torch.testing.assert_close(products, plain, rtol=1e-12, atol=1e-14)


def test_kept_graphs_stay_at_their_point_whatever_the_landscape_does():
    small = small_landscape()
    hessian, v = small.hessian(), torch.ones(small.dimension, dtype=torch.float64)
    before = hessian(v)
    small.value(small.weights + 1.0)
    small.hvp(small.weights - 1.0, v)
    assert torch.equal(hessian(v), before)
