"""Thick-restart Lanczos alone: the relation it keeps, what survives a restart, the size of the basis."""

import numpy as np
import pytest
import torch

from analysis import Dense
from analysis.hessian.spectrum import iteration
from analysis.hessian.spectrum.iteration import ThickRestart, default_basis
from analysis.hessian.spectrum.wanted import Wanted
from landscape import FedscapeError
from tests.analysis.hessian.spectrum.spectra import matrix, step


def test_after_every_step_residuals_are_those_of_the_ritz_vectors():
    """A Q = Q T + P C holds through restarts, so the residuals that T and C give are true."""
    operator, _ = matrix("spread")
    process = ThickRestart(operator, Wanted("both", 2), max_basis=12)
    for count in range(1, 41):
        assert step(process, operator)
        ritz, q = process.krylov.ritz(), process.krylov.basis
        y = q.T @ torch.from_numpy(ritz.coordinates)
        true = (operator @ y - y * torch.from_numpy(ritz.values)).norm(dim=0).numpy()
        np.testing.assert_allclose(ritz.residuals, true, rtol=1e-6, atol=1e-12)
        assert process.krylov.absorbed == count
        assert len(q) <= 12
    assert process.krylov.restarts > 2


def test_a_restart_keeps_the_wanted_values_and_the_outermost_ones():
    operator, _ = matrix("indefinite")
    process = ThickRestart(operator, Wanted("largest", 3), max_basis=20)
    for _ in range(20):
        step(process, operator)
    before = process.krylov.ritz().values
    step(process, operator)
    assert process.krylov.restarts == 1
    kept = process.krylov.diagonal[:-1]  # T is diagonal in the Ritz vectors that were kept
    np.testing.assert_allclose(kept, before[[0, *range(20 - len(kept) + 1, 20)]])
    assert len(kept) == 3 + (20 - 3) // 2 + 1


def test_an_invariant_space_is_told_and_left():
    operator = Dense(torch.eye(6, dtype=torch.float64))
    process = ThickRestart(operator, Wanted("largest", 2))
    assert [step(process, operator) for _ in range(6)] == [False] * 6
    assert process.krylov.complete


def test_the_chain_that_moving_values_couple_to_is_followed():
    """After a restart the values couple to the first chain; a new branch, to nothing."""
    operator, _ = matrix("spread")
    process = ThickRestart(operator, Wanted("largest", 2))
    for _ in range(10):
        step(process, operator)
    first = process.krylov.vector
    process.krylov.branch()
    assert not torch.equal(process.krylov.vector, first)
    ritz = process.krylov.ritz()
    process.follow_coupled(ritz, Wanted("largest", 2).choose(ritz.values))
    torch.testing.assert_close(process.krylov.vector, first)


def test_a_resumed_iteration_takes_the_same_steps():
    operator, _ = matrix("spread")
    one, other = (ThickRestart(operator, Wanted("largest", 2), max_basis=12) for _ in range(2))
    for _ in range(15):
        step(one, operator)
    other.resume(one.state())
    for process in (one, other):
        for _ in range(15):
            step(process, operator)
    assert torch.equal(one.krylov.basis, other.krylov.basis)
    assert one.krylov.restarts == other.krylov.restarts > 1


def test_products_that_are_not_finite_end_it():
    operator = Dense(torch.full((20, 20), torch.inf))
    process = ThickRestart(operator, Wanted("largest", 2))
    with pytest.raises(FedscapeError, match="not finite"):
        step(process, operator)


def test_the_default_basis_is_bounded_by_the_eigenvalues_where_vectors_are_large():
    assert default_basis(50, 11_000_000, torch.float32) == 74
    assert default_basis(50, 1_000, torch.float32) == 1_000


@pytest.mark.parametrize(("free", "idle", "wanted"), [(100, 0, True), (100, 21, False), (121, 0, False)])
def test_a_basis_of_more_than_half_the_free_memory_is_offloaded(free, idle, wanted, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 500 + idle)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 500)
    assert iteration._is_too_large(60, torch.device("cuda")) == wanted
    assert not iteration._is_too_large(10**15, torch.device("cpu"))
