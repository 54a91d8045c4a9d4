"""Diagonal, Frobenius norm, trace of the square, moments, negative mass, intervals that cover."""

import numpy as np
import pytest

from analysis import estimate_density, estimate_trace
from analysis.hessian.spectrum.moments import diagonal, frobenius_norm, trace_of_square
from landscape import FedscapeError
from tests.analysis.hessian.spectrum.spectra import matrix


def coverage(intervals, exact):
    return np.mean([low <= exact <= high for low, high in intervals])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spread", "outliers"])
def test_intervals_of_95_percent_cover_in_90_to_99(name):
    operator, exact = matrix(name)
    traces = [estimate_trace(operator, seed=seed, tolerance=0.01, max_probes=200) for seed in range(200)]
    assert 0.90 <= coverage([t.interval() for t in traces], exact.sum()) <= 0.99
    squares = [trace_of_square(operator, 40, seed=seed) for seed in range(200)]
    assert 0.90 <= coverage([t.interval() for t in squares], (exact**2).sum()) <= 0.995


def test_frobenius_norm_of_the_dense_matrix():
    operator, exact = matrix("spread")
    found = frobenius_norm(operator, 400)
    assert found.value == pytest.approx(np.sqrt((exact**2).sum()), abs=4 * found.stderr)
    assert found.stderr < 0.01 * found.value
    assert operator.products == 400


def test_diagonal_with_its_standard_error():
    operator, _ = matrix("spread")
    found, stderr = diagonal(operator, 300)
    scores = ((found - operator.matrix.diagonal()) / stderr).numpy()
    assert 0.85 < scores.std() < 1.15
    assert stderr.mean() < 0.2


def test_exact_trace_has_an_interval_of_no_width():
    operator, exact = matrix("multiple")
    low, high = estimate_trace(operator).interval()
    assert low == pytest.approx(exact.sum(), rel=1e-9)
    assert high == pytest.approx(exact.sum(), rel=1e-9)


def test_negative_mass_and_effective_rank_of_the_dense_spectrum():
    operator, exact = matrix("spread")
    density = estimate_density(operator, probes=100, steps=40)
    assert density.mass_below() == pytest.approx((exact < 0).mean(), abs=0.02)
    assert density.effective_rank(120) == pytest.approx(exact.sum() ** 2 / (exact**2).sum(), rel=0.03)
    assert [density.moment(k) for k in (1, 2, 3)] == pytest.approx([(exact**k).mean() for k in (1, 2, 3)], rel=0.05)


def test_one_probe_is_refused():
    with pytest.raises(FedscapeError, match="at least 2"):
        trace_of_square(matrix("spread")[0], 1)
