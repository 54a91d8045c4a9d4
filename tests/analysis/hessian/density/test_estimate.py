"""Stochastic Lanczos quadrature against dense spectra."""

import numpy as np
import pytest
import torch
from matplotlib.scale import SymmetricalLogTransform
from scipy.integrate import trapezoid

from analysis import Hessian, Lanczos, estimate_density, largest_eigenpairs
from analysis.hessian.density.axes import SymLog
from analysis.hessian.density.estimate import Density
from landscape import FedscapeError
from tests.analysis.hessian.spectrum.spectra import SPECTRA, dense_hessian, matrix, small_landscape


@pytest.mark.parametrize("name", SPECTRA)
def test_integrates_to_one(name):
    density = estimate_density(matrix(name)[0], probes=3, steps=30, tolerance=0)
    assert trapezoid(density.values, density.grid) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(density.weights.sum(axis=1), 1, rtol=1e-10)


def test_mean_and_variance_match_the_dense_spectrum_of_a_net():
    landscape = small_landscape()
    exact = np.linalg.eigvalsh(dense_hessian(landscape))
    density = estimate_density(Hessian(landscape), probes=60, steps=30, relative_width=0.005, tolerance=0)
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
    return estimate_density(operator, probes=120, steps=120, tolerance=0), exact


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
    plain = estimate_density(operator, probes=3, steps=40, tolerance=0)
    operator.matrix = scale * operator.matrix
    scaled = estimate_density(operator, probes=3, steps=40, tolerance=0)
    np.testing.assert_allclose(scaled.grid, scale * plain.grid, rtol=1e-6)
    np.testing.assert_allclose(scaled.values, plain.values / scale, rtol=1e-5, atol=1e-12 / scale)


def test_sharing_block_products_changes_nothing():
    operator, _ = matrix("outliers")
    together = estimate_density(operator, probes=4, steps=40, tolerance=0)
    from analysis.hessian.density import estimate as module

    budget, module._BASIS_BYTES = module._BASIS_BYTES, 1  # one probe at a time
    try:
        alone = estimate_density(operator, probes=4, steps=40, tolerance=0)
    finally:
        module._BASIS_BYTES = budget
    np.testing.assert_allclose(alone.values, together.values, rtol=1e-8, atol=1e-10)


def test_refuses_settings_that_give_no_error_bars():
    with pytest.raises(FedscapeError, match="at least 2 probes"):
        estimate_density(matrix("spread")[0], probes=1, tolerance=0)


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
        density = estimate_density(matrix("outliers")[0], probes=3, steps=40, tolerance=0)
        curve = density.on()
        assert (curve.grid, curve.values, curve.stderr) == (density.grid, density.values, density.stderr)

    def test_it_is_linear_where_the_quadrature_tells_nothing_apart(self):
        operator, _ = matrix("outliers")
        density = estimate_density(operator, probes=4, steps=40, tolerance=0)
        assert density.resolved() == density.shares(120).delta
        operator.matrix = 1e3 * operator.matrix
        scaled = estimate_density(operator, probes=4, steps=40, tolerance=0)
        assert scaled.resolved() == pytest.approx(1e3 * density.resolved(), rel=1e-6)
        curves = density.on(SymLog(density.resolved())), scaled.on(SymLog(scaled.resolved()))
        np.testing.assert_allclose(curves[1].values, curves[0].values, rtol=1e-5, atol=1e-12)

    def test_where_zeros_are_told_from_all_else_it_is_linear_within_rounding(self):
        density = estimate_density(matrix("rank deficient")[0], probes=2, steps=10, tolerance=0)
        assert density.resolved() == pytest.approx(32 * 2**-23 * 3, rel=0.05)

    def test_a_spectrum_of_one_point_can_be_drawn(self):
        operator, _ = matrix("outliers")
        for value in (0.0, 3.0):
            operator.matrix = value * torch.eye(len(operator.matrix), dtype=torch.float64)
            density = estimate_density(operator, probes=2, steps=3, tolerance=0)
            assert np.isfinite(density.on(SymLog(density.resolved())).values).all()


class TestHeldApart:
    """Eigenvalues that a Krylov process has found are atoms; the probes see the others alone."""

    def found(self, name, k=5, **options):
        operator, exact = matrix(name)
        eigen = largest_eigenpairs(operator, k, tolerance=1e-6)
        return estimate_density(operator, eigen.krylov, **options), exact, eigen

    def test_their_weight_is_that_of_one_eigenvalue_each(self):
        density, exact, _ = self.found("outliers", probes=4, steps=20, tolerance=0)
        np.testing.assert_allclose(np.sort(density.atoms)[-5:], exact[:5][::-1], rtol=1e-6)
        np.testing.assert_allclose(density.weights.sum(axis=1), 1 - len(density.atoms) / 120, rtol=1e-10)
        assert trapezoid(density.values, density.grid) == pytest.approx(1, abs=1e-5)
        assert np.abs(density.nodes[density.weights > 1e-12]).max() < 0.51  # the bulk alone

    def test_they_add_no_variance(self):
        held, exact, _ = self.found("outliers", probes=4, steps=20, tolerance=0)
        plain = estimate_density(matrix("outliers")[0], probes=4, steps=20, tolerance=0)
        errors = [density.estimated_moment(2, 120).stderr for density in (held, plain)]
        assert errors[0] < 0.01 * errors[1]
        assert held.estimated_moment(2, 120).value == pytest.approx((exact**2).mean(), rel=1e-3)

    def test_means_are_right_over_many_seeds(self):
        """Of the spectrum without the atoms, as if they were not there."""
        operator, exact = matrix("spread")
        krylov = largest_eigenpairs(operator, 4, tolerance=1e-6).krylov
        off = []
        for seed in range(100):
            found = estimate_density(operator, krylov, probes=4, steps=10, tolerance=0, seed=seed)
            mean = found.estimated_moment(1, 120)
            off.append((mean.value - exact.mean()) / mean.stderr)
        assert len(found.atoms) >= 4
        assert abs(np.mean(off)) < 0.4
        assert 0.8 < np.std(off) < 1.2

    def test_the_process_and_its_vectors_stay_as_they_were(self):
        operator, _ = matrix("outliers")
        eigen = largest_eigenpairs(operator, 3)
        before, vectors = eigen.krylov.basis.clone(), eigen.vectors.clone()
        estimate_density(operator, eigen.krylov, probes=2, steps=4)
        assert torch.equal(eigen.krylov.basis, before)
        assert torch.equal(eigen.vectors, vectors)

    def test_of_a_complete_basis_one_dimension_is_left_and_nothing_is_unknown(self):
        density, exact, _ = self.found("spread", k=120)
        assert len(density.atoms) == 119
        assert density.area == pytest.approx(0, abs=1e-9)
        kernel = np.exp(-0.5 * ((density.grid[:, None] - exact) / density.width) ** 2)
        truth = kernel.mean(axis=1) / (density.width * np.sqrt(2 * np.pi))
        np.testing.assert_allclose(density.values, truth, rtol=1e-6, atol=1e-9 * truth.max())


class TestTolerance:
    def test_the_band_is_as_narrow_as_asked_for_and_costs_no_more(self):
        operator, _ = matrix("indefinite")
        krylov = largest_eigenpairs(operator, 5).krylov
        wide, narrow = (
            estimate_density(operator, krylov, tolerance=t, probes=64, relative_width=0.05) for t in (0.3, 0.15)
        )
        assert wide.converged
        assert narrow.converged
        assert wide.area <= 0.3
        assert narrow.area <= 0.15
        assert wide.products < narrow.products
        assert wide.shortfall == ""

    def test_what_is_not_reached_is_said(self):
        density = estimate_density(matrix("spread")[0], tolerance=1e-3, probes=3, steps=12)
        assert density.converged is False
        assert density.nodes.shape == (3, 12)
        assert (
            f"{density.area:.2g} of the curve's area, asked for 0.001, after 3 probes of 12 steps" in density.shortfall
        )

    def test_a_density_without_a_tolerance_promises_nothing(self):
        density = estimate_density(matrix("spread")[0], tolerance=0, probes=2, steps=3)
        assert density.converged is None
        assert density.shortfall == ""
