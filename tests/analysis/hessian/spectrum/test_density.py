"""Stochastic Lanczos quadrature against dense spectra."""

import numpy as np
import pytest
import torch
from matplotlib.scale import SymmetricalLogTransform
from scipy.integrate import trapezoid

from analysis import Hessian, Lanczos, estimate_density
from analysis.hessian.spectrum.density import Density, SymLog
from landscape import FedscapeError
from tests.analysis.hessian.spectrum.spectra import SPECTRA, dense_hessian, matrix, small_landscape


@pytest.mark.parametrize("name", SPECTRA)
def test_integrates_to_one(name):
    density = estimate_density(matrix(name)[0], probes=3, steps=30)
    assert trapezoid(density.values, density.grid) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(density.weights.sum(axis=1), 1, rtol=1e-10)


def test_mean_and_variance_match_the_dense_spectrum_of_a_net():
    landscape = small_landscape()
    exact = np.linalg.eigvalsh(dense_hessian(landscape))
    density = estimate_density(Hessian(landscape), probes=60, steps=30, relative_width=0.005)
    mean = trapezoid(density.grid * density.values, density.grid)
    variance = trapezoid((density.grid - mean) ** 2 * density.values, density.grid) - density.width**2
    # The sampling error of the k-th moment over probes, measured, not guessed.
    first, second = ((density.weights * density.nodes**k).sum(axis=1) for k in (1, 2))
    assert mean == pytest.approx(exact.mean(), abs=4 * first.std() / np.sqrt(60))
    assert variance == pytest.approx(exact.var(), abs=4 * second.std() / np.sqrt(60))
    assert 4 * second.std() / np.sqrt(60) < 0.3 * exact.var()  # else the check above says nothing


def test_quadrature_moments_of_a_probe_are_exact():
    """Σ_i τ_i θ_i^k = vᵀA^k v for the unit probe v and all k up to 2·steps − 1 (Gauss quadrature)."""
    operator, _ = matrix("spread")
    draw = torch.Generator().manual_seed(5)
    process = Lanczos(torch.randn(120, generator=draw, dtype=torch.float64), draw)
    v = power = process.vector
    for _ in range(6):
        process.absorb(operator @ process.vector)
    ritz = process.ritz()
    for k in range(12):
        assert (ritz.weights * ritz.values**k).sum() == pytest.approx(torch.dot(v, power).item(), rel=1e-9)
        power = operator @ power


@pytest.fixture(scope="module")
def all_steps():
    """The spectrum, and a density of 120 probes whose nodes are all eigenvalues."""
    operator, exact = matrix("spread")
    return estimate_density(operator, probes=120, steps=120), exact


def test_all_steps_give_the_smoothed_spectrum_itself(all_steps):
    """With as many steps as dimensions the nodes are the eigenvalues; averaging probes gives weights 1/d."""
    whole, exact = all_steps
    density = Density.smoothed(whole.nodes, whole.weights, whole.products, relative_width=0.05)
    kernel = np.exp(-0.5 * ((density.grid[:, None] - exact) / density.width) ** 2)
    truth = kernel.mean(axis=1) / (density.width * np.sqrt(2 * np.pi))
    assert np.abs(density.values - truth).max() < 5 * density.stderr.max()
    assert density.stderr.max() < 0.05 * truth.max()


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scaling_the_operator_scales_the_picture_only(scale):
    operator, _ = matrix("outliers")
    plain = estimate_density(operator, probes=3)
    operator.matrix = scale * operator.matrix
    scaled = estimate_density(operator, probes=3)
    np.testing.assert_allclose(scaled.grid, scale * plain.grid, rtol=1e-6)
    np.testing.assert_allclose(scaled.values, plain.values / scale, rtol=1e-5, atol=1e-12 / scale)


def test_sharing_block_products_changes_nothing():
    operator, _ = matrix("outliers")
    together = estimate_density(operator, probes=4)
    from analysis.hessian.spectrum import density as module

    budget, module._BASIS_BYTES = module._BASIS_BYTES, 1  # one probe at a time
    try:
        alone = estimate_density(operator, probes=4)
    finally:
        module._BASIS_BYTES = budget
    np.testing.assert_allclose(alone.values, together.values, rtol=1e-8, atol=1e-10)


def test_refuses_settings_that_give_no_error_bars():
    with pytest.raises(FedscapeError, match="at least 2 probes"):
        estimate_density(matrix("spread")[0], probes=1)


class TestOnASymmetricLogarithmicAxis:
    axis = SymLog(0.02)

    def test_it_is_the_axis_that_matplotlib_draws_with_one_slope_at_the_threshold(self):
        t = np.array([-30.0, -0.02, -0.001, 0.0, 0.019, 0.02, 0.5, 7.0])
        theirs = SymmetricalLogTransform(10, 0.02, 0.9 / np.log(10)).transform(t) / 0.02
        np.testing.assert_allclose(self.axis.forward(t), theirs, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(self.axis.inverse(self.axis.forward(t)), t, rtol=1e-12, atol=1e-18)
        below, above = (np.diff(self.axis.forward(np.array(pair)))[0] for pair in ([0.0199, 0.02], [0.02, 0.0201]))
        assert below == pytest.approx(above, rel=0.01)

    def test_it_integrates_to_one_and_all_steps_give_the_spectrum_smoothed_there(self, all_steps):
        density, exact = all_steps
        curve = density.on(self.axis)
        places = self.axis.forward(curve.grid)
        assert trapezoid(curve.values, places) == pytest.approx(1, abs=1e-5)
        kernel = np.exp(-0.5 * ((places[:, None] - self.axis.forward(exact)) / curve.width) ** 2)
        truth = kernel.mean(axis=1) / (curve.width * np.sqrt(2 * np.pi))
        assert np.abs(curve.values - truth).max() < 5 * curve.stderr.max()
        assert curve.stderr.max() < 0.05 * truth.max()

    def test_on_the_linear_axis_it_is_the_density_itself(self):
        density = estimate_density(matrix("outliers")[0], probes=3)
        curve = density.on()
        assert (curve.grid, curve.values, curve.stderr) == (density.grid, density.values, density.stderr)

    def test_it_is_linear_where_nodes_are_as_far_apart_as_they_are_from_0(self):
        operator, _ = matrix("outliers")
        density = estimate_density(operator, probes=4)
        nodes = np.sort(density.nodes[0])
        near = np.sort(nodes[np.argsort(np.abs(nodes))][:5])
        assert density.resolved() == pytest.approx(2 * np.diff(near).mean(), rel=0.5)
        operator.matrix = 1e3 * operator.matrix
        scaled = estimate_density(operator, probes=4)
        assert scaled.resolved() == pytest.approx(1e3 * density.resolved(), rel=1e-6)
        curves = density.on(SymLog(density.resolved())), scaled.on(SymLog(scaled.resolved()))
        np.testing.assert_allclose(curves[1].values, curves[0].values, rtol=1e-5, atol=1e-12)

    def test_a_spectrum_of_one_point_can_be_drawn(self):
        operator, _ = matrix("outliers")
        for value in (0.0, 3.0):
            operator.matrix = value * torch.eye(len(operator.matrix), dtype=torch.float64)
            density = estimate_density(operator, probes=2, steps=3)
            assert np.isfinite(density.on(SymLog(density.resolved())).values).all()
