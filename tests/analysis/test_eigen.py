"""Largest eigenvalues against spectra that are known and against dense solvers."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, eigsh

from analysis import Dense, Hessian, extreme_eigenpairs, largest_eigenpairs
from landscape import FedscapeError
from tests.analysis.spectra import SPECTRA, dense_hessian, matrix, small_landscape


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_values_are_the_largest_eigenvalues_within_their_bounds(name, dtype, k):
    operator, exact = matrix(name, dtype)
    found = largest_eigenpairs(operator, k, tolerance=1e-6)
    rounding = 20 * torch.finfo(dtype).eps * np.abs(exact).max()
    assert found.converged.all()
    np.testing.assert_allclose(found.values, exact[:k], rtol=1e-6, atol=rounding)
    assert (np.abs(found.values - exact[:k]) <= found.bounds + rounding).all()
    assert found.products == operator.products <= 120


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("which", ["smallest", "magnitude", "both"])
def test_other_ends_of_the_spectrum(name, which):
    operator, exact = matrix(name)
    found = extreme_eigenpairs(operator, 4, which=which, tolerance=1e-7)
    wanted = {
        "smallest": exact[::-1][:4],
        "magnitude": exact[np.argsort(-np.abs(exact), kind="stable")][:4],
        "both": np.r_[exact[:4], exact[::-1][:4]],
    }[which]
    if which == "magnitude":  # of two values of one magnitude either may come first
        np.testing.assert_allclose(np.abs(found.values), np.abs(wanted), rtol=1e-6, atol=1e-12 * np.abs(exact).max())
    else:
        np.testing.assert_allclose(found.values, wanted, rtol=1e-6, atol=1e-12 * np.abs(exact).max())
    assert found.converged.all()


def test_bounds_and_residuals_hold_where_it_stops_early():
    operator, exact = matrix("spread")
    found = largest_eigenpairs(operator, 4, max_products=15)
    assert not found.converged.all()
    for value, residual, vector in zip(found.values, found.residuals, found.vectors, strict=True):
        true = (operator @ vector - value * vector).norm().item()
        assert true == pytest.approx(residual, rel=1e-6)
        assert np.abs(exact - value).min() <= residual


def test_default_tolerance_is_kept_from_any_start():
    """One step's only Ritz value, near zero here, once passed for the largest eigenvalue."""
    operator, exact = matrix("indefinite")
    for seed in range(40):
        found = largest_eigenpairs(operator, 1, seed=seed)
        assert found.values[0] == pytest.approx(exact[0], rel=1e-3), seed
        assert found.products > 5


def test_vectors_are_orthonormal_eigenvectors():
    operator, _ = matrix("outliers")
    found = largest_eigenpairs(operator, 5, tolerance=1e-10)
    torch.testing.assert_close(found.vectors @ found.vectors.T, torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-10)
    products = (operator @ found.vectors.T).T
    torch.testing.assert_close(products, torch.from_numpy(found.values)[:, None] * found.vectors, rtol=0, atol=1e-4)


def test_sixty_values_hold_no_ghosts():
    """Without re-orthogonalisation the largest value comes back several times after 50 steps or so."""
    operator, exact = matrix("outliers", torch.float32)
    found = largest_eigenpairs(operator, 60, tolerance=1e-4)
    np.testing.assert_allclose(found.values, exact[:60], rtol=1e-4, atol=1e-5)


def test_all_eigenvalues_of_a_small_net():
    landscape = small_landscape()
    exact = np.linalg.eigvalsh(dense_hessian(landscape))[::-1]
    found = largest_eigenpairs(Hessian(landscape), landscape.dimension, tolerance=1e-12)
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-10 * exact[0])


def test_agrees_with_scipy_on_a_net_and_stops_sooner():
    landscape = small_landscape()
    hessian = Hessian(landscape)
    oracle = LinearOperator(hessian.shape, lambda v: (hessian @ torch.from_numpy(v.reshape(-1).copy())).numpy())
    exact = eigsh(oracle, k=5, which="LA", tol=1e-12, return_eigenvectors=False)[::-1]
    found = largest_eigenpairs(Hessian(landscape), 5)
    np.testing.assert_allclose(found.values, exact, rtol=1e-3)
    assert found.products < hessian.products


def test_the_seed_decides_the_start_and_nothing_else():
    operator, _ = matrix("outliers")
    first, again, other = (largest_eigenpairs(operator, 3, seed=seed) for seed in (0, 0, 1))
    assert (first.values == again.values).all()
    assert not (first.values == other.values).all()
    np.testing.assert_allclose(first.values, other.values, rtol=1e-3)


def test_ratio_counts_from_one():
    operator, exact = matrix("outliers")
    found = largest_eigenpairs(operator, 5, tolerance=1e-8)
    assert found.ratio(1, 5) == pytest.approx(exact[0] / exact[4])
    assert found.ratio(1, 6) is None


def test_refuses_an_end_that_there_is_not():
    with pytest.raises(FedscapeError, match="unknown end of the spectrum 'middle'"):
        extreme_eigenpairs(matrix("spread")[0], 3, which="middle")
    with pytest.raises(FedscapeError, match="at both ends are more than the 120"):
        extreme_eigenpairs(matrix("spread")[0], 61, which="both")


@pytest.mark.parametrize("k", [0, 121])
def test_refuses_a_number_of_eigenvalues_that_there_are_not(k):
    with pytest.raises(FedscapeError, match="from 1 to the 120 parameters"):
        largest_eigenpairs(matrix("spread")[0], k)


def test_refuses_products_that_are_not_finite():
    with pytest.raises(FedscapeError, match="not finite"):
        largest_eigenpairs(Dense(torch.full((4, 4), torch.nan)), 1)
