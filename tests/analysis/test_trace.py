"""The trace and its standard error."""

import numpy as np
import pytest
import torch

from analysis import Hessian, estimate_trace, largest_eigenpairs
from landscape import FedscapeError
from tests.analysis.spectra import SPECTRA, dense_hessian, matrix, small_landscape


@pytest.mark.parametrize("name", [name for name in SPECTRA if name != "indefinite"])
def test_is_within_four_standard_errors(name):
    operator, exact = matrix(name)
    found = estimate_trace(operator, tolerance=0.0, max_probes=40)
    assert abs(found.value - exact.sum()) <= 4 * found.stderr + 1e-9 * np.abs(exact).sum()
    assert found.products == operator.products


def test_standard_error_tells_the_true_spread():
    """Over 100 seeds the estimates lie within their standard errors as often as they should."""
    operator, exact = matrix("spread")
    found = [estimate_trace(operator, seed=seed, tolerance=0.0, max_probes=30) for seed in range(100)]
    scores = np.array([(t.value - exact.sum()) / t.stderr for t in found])
    assert 0.8 < scores.std() < 1.25
    assert abs(scores.mean()) < 0.4
    assert 0.85 <= (np.abs(scores) < 2.05).mean() <= 1.0  # 95 % of a t-distribution with 29 degrees


def test_stops_at_the_wanted_standard_error():
    operator, _ = matrix("spread")
    found = estimate_trace(operator, tolerance=0.02, max_probes=1000)
    assert found.stderr <= 0.02 * found.value
    assert found.probes < 1000


def test_a_krylov_basis_from_the_eigenvalues_takes_the_large_ones_out_exactly():
    operator, exact = matrix("outliers")
    eigen = largest_eigenpairs(operator, 5, tolerance=1e-8)
    plain = 2 * (exact**2).sum()  # variance bound of one Hutchinson probe
    found = estimate_trace(operator, eigen.krylov, tolerance=0.0, max_probes=20)
    assert found.stderr * np.sqrt(20) < 0.1 * np.sqrt(plain)
    assert abs(found.value - exact.sum()) <= 4 * found.stderr


def test_is_exact_where_the_basis_is_whole():
    landscape = small_landscape()
    eigen = largest_eigenpairs(Hessian(landscape), landscape.dimension)
    found = estimate_trace(Hessian(landscape), eigen.krylov)
    assert found.value == pytest.approx(np.trace(dense_hessian(landscape)), rel=1e-10)
    assert (found.stderr, found.probes) == (0.0, 0)


def test_of_a_net_agrees_with_its_dense_hessian():
    landscape = small_landscape()
    found = estimate_trace(Hessian(landscape), tolerance=0.01, max_probes=300)
    assert found.value == pytest.approx(np.trace(dense_hessian(landscape)), abs=4 * found.stderr)
    assert 0 < found.stderr < 0.02 * abs(found.value)


def test_float32_costs_only_rounding():
    wide, narrow = (estimate_trace(matrix("outliers", t)[0]).value for t in (torch.float64, torch.float32))
    assert narrow == pytest.approx(wide, rel=1e-4)


def test_one_probe_is_refused():
    with pytest.raises(FedscapeError, match="at least 2"):
        estimate_trace(matrix("spread")[0], max_probes=1)
