"""The trace and its standard error."""

import numpy as np
import pytest
import torch

from analysis import Dense, Hessian, Lanczos, Trace, estimate_trace, largest_eigenpairs
from analysis.hessian.spectrum.trace import _Probes
from landscape import FedscapeError
from tests.analysis.hessian.spectrum.spectra import SPECTRA, dense_hessian, matrix, small_landscape


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


DECAYING = {
    "net": np.r_[np.logspace(2, 0, 15), np.logspace(0, -3, 85), np.zeros(200)],
    "power law": np.arange(1, 301) ** -1.0,
    "both signs": np.r_[np.logspace(2, 0, 30), -np.logspace(1.8, 0, 30), np.linspace(-0.5, 0.5, 140)],
}


def decaying(name, dtype=torch.float64):
    """An operator with that spectrum in a random basis, and its trace."""
    values = torch.from_numpy(DECAYING[name])
    draw = torch.Generator().manual_seed(4)
    basis, _ = torch.linalg.qr(torch.randn(len(values), len(values), generator=draw, dtype=torch.float64))
    return Dense((basis * values @ basis.T).to(dtype)), float(values.sum())


@pytest.mark.parametrize("name", ["net", "power law", pytest.param("both signs", marks=pytest.mark.slow)])
@pytest.mark.parametrize("tolerance", [pytest.param(0.01, marks=pytest.mark.slow), 0.04])
def test_intervals_cover_and_the_mean_is_unbiased_where_the_rule_stops(name, tolerance):
    """Over 200 seeds, with the numbers of steps and probes chosen during the estimate."""
    operator, exact = decaying(name)
    found = [estimate_trace(operator, seed=seed, tolerance=tolerance, max_probes=1000) for seed in range(200)]
    assert all(t.stderr <= tolerance * abs(t.value) for t in found)
    covered = [low <= exact <= high for low, high in (t.interval() for t in found)]
    assert 0.90 <= np.mean(covered) <= 0.99
    errors = np.array([t.value - exact for t in found])
    wanted = np.sqrt(np.mean([t.stderr**2 for t in found]))
    assert 0.8 < errors.std() / wanted < 1.2
    assert abs(errors.mean()) < 0.3 * wanted  # 0.07 is the spread of the mean of 200


@pytest.mark.parametrize(("name", "most"), [("net", 1 / 50), ("power law", 1 / 8), ("both signs", 1 / 50)])
def test_needs_a_small_share_of_hutchinsons_products(name, most):
    operator, exact = decaying(name)
    hutchinson = 2 * (DECAYING[name] ** 2).sum() / (0.01 * exact) ** 2
    ours = [estimate_trace(operator, seed=seed, tolerance=0.01, max_probes=1000).products for seed in range(20)]
    assert np.mean(ours) <= most * hutchinson


def test_probes_follow_the_basis_without_a_product():
    operator, _ = decaying("net")
    generator = torch.Generator().manual_seed(5)
    krylov = Lanczos(torch.randn(300, generator=generator, dtype=torch.float64), generator)
    probes = _Probes(operator, krylov, 3, generator)
    first, a = probes.vectors.clone(), operator.matrix
    for _ in range(25):
        vector = krylov.vector
        krylov.absorb(a @ vector)
        probes.follow(vector)
    assert operator.products == 3
    outside = torch.eye(300, dtype=torch.float64) - krylov.basis.T @ krylov.basis
    torch.testing.assert_close(probes.vectors, outside @ first, rtol=0, atol=1e-11)
    torch.testing.assert_close(probes.products, outside @ a @ outside @ first, rtol=0, atol=1e-10)
    sample = probes.sample()
    z = outside @ first
    z = z * np.sqrt(275) / z.norm(dim=0)
    np.testing.assert_allclose(sample.forms, (z * (a @ z)).sum(dim=0), atol=1e-9)
    np.testing.assert_allclose(sample.squares, (outside @ a @ z).square().sum(dim=0), atol=1e-9)


def test_variance_of_a_probe_is_that_of_the_dense_matrix():
    """The variance estimated from squares, against the spread of 20,000 probes and against the formula."""
    operator, _ = matrix("spread")
    generator = torch.Generator().manual_seed(6)
    sample = _Probes(operator, Lanczos(torch.ones(120, dtype=torch.float64), generator), 20_000, generator).sample()
    values = np.linspace(-1, 5, 120)
    assert sample.variance == pytest.approx(2 * 120 / 122 * ((values**2).sum() - values.sum() ** 2 / 120), rel=0.01)
    assert sample.forms.var() == pytest.approx(sample.variance, rel=0.05)


@pytest.mark.parametrize("name", ["multiple", "rank deficient"])
def test_low_rank_is_exact_within_few_products(name):
    operator, exact = matrix(name)
    for seed in range(20):
        found = estimate_trace(operator, seed=seed, tolerance=1e-6)
        assert found.value == pytest.approx(exact.sum(), rel=1e-5)
        assert found.products <= 35


@pytest.mark.parametrize("d", [1, 2, 10])
def test_few_dimensions_are_all_taken(d):
    operator = Dense(torch.diag(torch.arange(1.0, d + 1, dtype=torch.float64)))
    found = estimate_trace(operator)
    assert found.value == pytest.approx(d * (d + 1) / 2, rel=1e-12)
    assert (found.stderr, found.probes, found.products) == (0.0, 0, d)


def test_zero_matrix():
    found = estimate_trace(Dense(torch.zeros(50, 50, dtype=torch.float64)))
    assert (found.value, found.stderr) == (0.0, 0.0)
    assert found.interval() == (0.0, 0.0)


def test_measured_eigenvalues_save_most_of_the_products():
    operator, exact = decaying("net")
    eigen = largest_eigenpairs(operator, 10)
    alone = estimate_trace(operator, tolerance=0.01, max_probes=1000)
    after = estimate_trace(operator, eigen.krylov, tolerance=0.01, max_probes=1000)
    assert after.products < 0.7 * alone.products
    assert abs(after.value - exact) <= 4 * after.stderr


def test_probes_and_basis_stay_within_their_bounds(monkeypatch):
    """Where memory bounds the basis, more probes are taken."""
    operator, exact = decaying("both signs")
    monkeypatch.setattr("analysis.hessian.spectrum.iteration._FREE_BYTES", 0)
    found = estimate_trace(operator, tolerance=0.01, max_probes=60)
    assert (found.deflated, found.probes) == (30, 60)
    assert abs(found.value - exact) <= 4 * found.stderr


def test_a_trace_of_an_older_file_has_its_interval():
    assert Trace(1.0, 0.1, 10, 40, 30).interval()[1] == pytest.approx(1 + 0.1 * 2.262, abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_trace_of_every_coordinate_is_exact_to_rounding(dtype):
    """The interval of an exact trace has no width."""
    values = np.r_[1000.0, np.linspace(-1, 1, 11)]
    basis, _ = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    found = estimate_trace(Dense((basis * torch.from_numpy(values) @ basis.T).to(dtype)), tolerance=0.0)
    assert (found.deflated, found.probes, found.stderr) == (12, 0, 0.0)
    assert found.interval() == (found.value, found.value)
    assert abs(found.value - values.sum()) <= 20 * torch.finfo(dtype).eps * np.abs(values).sum()


def test_probes_drawn_and_summed_in_pieces_are_the_same_probes(monkeypatch):
    operator, _ = matrix("spread")
    whole = estimate_trace(operator, tolerance=0.0, max_probes=10)
    monkeypatch.setattr("analysis.hessian.spectrum.trace._PIECE", 16)
    pieces = estimate_trace(operator, tolerance=0.0, max_probes=10)
    np.testing.assert_allclose([pieces.value, pieces.stderr], [whole.value, whole.stderr], rtol=1e-12)


@pytest.mark.parametrize(("tolerance", "met"), [(0.05, True), (1e-4, False)])
def test_it_says_whether_the_tolerance_was_met(tolerance, met):
    found = estimate_trace(matrix("spread")[0], tolerance=tolerance, max_probes=30)
    assert (found.tolerance, found.converged) == (tolerance, met)
    assert (found.stderr <= tolerance * found.value) == met
    assert ("after 30 probes" in found.shortfall) == (not met)
    assert Trace(1.0, 0.1, 10, 40, 30).shortfall == ""  # an older file does not tell
