"""The Lanczos process after restarts, against dense projections."""

import numpy as np
import pytest
import torch

from analysis import Lanczos, estimate_trace
from landscape.compute.randomness import torch_generator
from tests.analysis.hessian.spectrum.spectra import matrix


def _process(operator, steps, **options):
    generator = torch_generator(0, "test")
    start = torch.randn(operator.shape[0], generator=generator, dtype=torch.float64)
    process = Lanczos(start.to(operator.dtype), generator, **options)
    _go_on(process, operator, steps)
    return process


def _go_on(process, operator, steps):
    for _ in range(steps):
        process.absorb(operator @ process.vector)


def _largest(count):
    return lambda ascending: np.arange(len(ascending))[-count:]


def _projection(process, operator):
    return (process.basis @ operator.matrix @ process.basis.T).numpy()


@pytest.mark.parametrize("name", ["spread", "outliers", "clustered"])
def test_ritz_values_after_restarts_are_those_of_the_projection(name):
    operator, _ = matrix(name)
    process = _process(operator, 20)
    for more in (0, 1, 7, 12):
        process.restart(_largest(8))
        _go_on(process, operator, more)
        ritz = process.ritz()
        projected = _projection(process, operator)
        scale = np.abs(ritz.values).max()
        np.testing.assert_allclose(ritz.values, np.linalg.eigvalsh(projected), rtol=0, atol=1e-12 * scale)
        np.testing.assert_allclose(process.diagonal, np.diag(projected), rtol=0, atol=1e-12 * scale)
        vectors = torch.from_numpy(ritz.coordinates).T @ process.basis
        true = (operator @ vectors.T - torch.from_numpy(ritz.values) * vectors.T).norm(dim=0)
        np.testing.assert_allclose(ritz.residuals, true, rtol=1e-6, atol=1e-12 * scale)
    assert process.absorbed == 40


def test_a_restart_loses_none_of_the_wanted_ritz_values():
    operator, _ = matrix("spread")
    process = _process(operator, 25)
    before = process.ritz().values
    process.restart(_largest(9))
    np.testing.assert_allclose(process.ritz().values[-9:], before[-9:], rtol=1e-12)
    np.testing.assert_allclose(process.ritz().values[0], before[0], rtol=1e-12)  # the other end too
    assert process.steps == 10


def test_chains_after_invariant_spaces_bring_the_other_eigenvectors():
    operator, exact = matrix("multiple")
    process = _process(operator, 7)  # 6, 3, 0; 6, 3, 0; and a vector of the third chain
    np.testing.assert_allclose(process.ritz().values[-4:], [3, 3, 6, 6], rtol=1e-10)
    process.restart(_largest(4))
    np.testing.assert_allclose(process.diagonal[1:], [3, 3, 6, 6], rtol=1e-10)
    _go_on(process, operator, 3)
    np.testing.assert_allclose(process.ritz().values[-5:], exact[:5][::-1], rtol=1e-10)


@pytest.mark.parametrize("name", ["spread", "outliers", "clustered"])
def test_several_chains_in_any_order_and_over_restarts_are_a_projection(name):
    """A Q = Q T + P C: Ritz values are those of QᵀAQ, and their residuals are true."""
    operator, _ = matrix(name)
    process = _process(operator, 6)
    for chain, more in ((None, 5), (None, 4), (2, 3), (1, 0), (0, 6), (1, 5)):
        if chain is None:
            process.branch()
        else:
            process.follow(chain)
        _go_on(process, operator, more)
        if chain == 1:
            process.restart(_largest(7))
        ritz = process.ritz()
        projected = _projection(process, operator)
        scale = np.abs(ritz.values).max()
        np.testing.assert_allclose(ritz.values, np.linalg.eigvalsh(projected), rtol=0, atol=1e-12 * scale)
        vectors = torch.from_numpy(ritz.coordinates).T @ process.basis
        true = (operator @ vectors.T - torch.from_numpy(ritz.values) * vectors.T).norm(dim=0)
        np.testing.assert_allclose(ritz.residuals, true, rtol=1e-6, atol=1e-12 * scale)
    assert len(process.couplings) == 3
    q = process.basis
    torch.testing.assert_close(process.remainder(), process.outside(operator @ q[-1:].T)[:, 0], rtol=1e-9, atol=1e-9)


def test_several_chains_end_where_the_basis_is_complete():
    operator, exact = matrix("spread")
    process = _process(operator, 117)
    process.branch()
    process.branch()
    _go_on(process, operator, 3)
    assert process.complete
    np.testing.assert_allclose(process.ritz().values, exact[::-1], rtol=1e-10, atol=1e-10)
    assert not process.vector.any()
    with pytest.raises(ValueError, match="complete"):
        process.branch()


def test_the_trace_goes_on_from_a_restarted_process():
    operator, exact = matrix("rank deficient")
    process = _process(operator, 15)
    process.restart(_largest(8))
    process.to_ritz_vectors(np.array([7, 6]))
    found = estimate_trace(operator, process, max_probes=10)
    assert found.value == pytest.approx(exact.sum(), rel=1e-10)


def test_groups_of_rows_change_rounding_only(monkeypatch):
    operator, _ = matrix("spread")
    whole = _process(operator, 20)
    monkeypatch.setattr("analysis.hessian.spectrum.lanczos._GROUP_BYTES", 3 * 120 * 8)
    groups = _process(operator, 20)
    np.testing.assert_allclose(groups.diagonal, whole.diagonal, rtol=1e-8)
    for process in (whole, groups):
        process.restart(_largest(10))
        _go_on(process, operator, 5)
        q = process.basis
        torch.testing.assert_close(q @ q.T, torch.eye(process.steps, dtype=torch.float64), rtol=0, atol=1e-13)
    np.testing.assert_allclose(groups.ritz().values, whole.ritz().values, rtol=1e-8, atol=1e-8)
    block = torch.randn(120, 3, dtype=torch.float64)
    torch.testing.assert_close(groups.outside(block), block - groups.basis.T @ (groups.basis @ block))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_chains_that_meet_leave_an_orthonormal_basis(dtype):
    """With few different eigenvalues one chain adds the waiting vectors of others to the basis; rounding remains."""
    operator, exact = matrix("multiple", dtype)
    process = _process(operator, 2)
    for more in (2, 1, 4, 1, 40):
        process.branch()
        _go_on(process, operator, more)
    while not process.complete:
        _go_on(process, operator, 1)
    q = process.basis.double()
    rounding = 1000 * torch.finfo(dtype).eps
    torch.testing.assert_close(q @ q.T, torch.eye(120, dtype=torch.float64), rtol=0, atol=rounding)
    assert process.diagonal.sum() == pytest.approx(exact.sum(), rel=rounding)
    np.testing.assert_allclose(process.ritz().values, exact[::-1], rtol=0, atol=6 * rounding)
