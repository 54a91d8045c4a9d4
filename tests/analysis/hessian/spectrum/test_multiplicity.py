"""The search for copies of multiple eigenvalues alone, driven by hand."""

import numpy as np
import pytest
import torch

from analysis import Dense
from analysis.hessian.spectrum.iteration import ThickRestart
from analysis.hessian.spectrum.multiplicity import MultiplicitySearch
from analysis.hessian.spectrum.stopping import StoppingRule
from analysis.hessian.spectrum.wanted import Wanted

N = 200


def operator(*outliers):
    """Some eigenvalues above a bulk in [−1, 1], in a random basis."""
    values = np.r_[outliers, np.linspace(-1, 1, N - len(outliers))]
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(N, N)))
    return Dense(torch.from_numpy(basis * values @ basis.T))


class Run:
    """The steps of an iteration, each judged and shown to a search; ``found`` is the last judgement."""

    def __init__(self, matrix, wanted, search=None):
        self.process, self.rule = ThickRestart(matrix, wanted), StoppingRule(wanted, 1e-4, 2e-16, N)
        self.search, self.wanted = search or MultiplicitySearch(wanted, 1e-4), wanted

    def step(self):
        goes_on = self.process.expand()
        krylov = self.process.krylov
        if krylov.steps < self.wanted.count:
            return False
        ritz = krylov.ritz()
        self.found = self.rule.judge(ritz, krylov.record)
        return self.search.finished(krylov, ritz, self.found, goes_on)

    def until(self, condition):
        for count in range(1, N):
            done = self.step()
            if condition(done):
                return count
        pytest.fail("it never came")


def test_it_begins_by_a_new_branch_once_the_values_have_settled():
    run = Run(operator(9, 6, 4), Wanted("largest", 3))
    run.until(lambda _: run.search.active)
    assert run.found.settled
    assert len(run.process.krylov.couplings) == 2  # the first chain waits behind the new one


def test_where_there_is_no_copy_it_ends_after_some_steps():
    run = Run(operator(9, 6, 4), Wanted("largest", 3))
    run.until(lambda _: run.search.active)
    steps = run.until(lambda done: done)
    assert 2 < steps < 20
    assert run.search.products == steps
    assert 0 < run.search.missed <= 1e-2
    np.testing.assert_allclose(run.found.values, [9, 6, 4], rtol=1e-4)


def test_a_copy_that_is_found_ends_the_search_and_another_begins():
    run = Run(operator(9, 9, 6, 4), Wanted("largest", 3))
    run.until(lambda _: run.search.active)
    np.testing.assert_allclose(run.found.values, [9, 6, 4], rtol=1e-4)  # a Krylov space holds one vector of the two
    run.until(lambda _: not run.search.active)
    run.until(lambda done: done)
    np.testing.assert_allclose(run.found.values, [9, 9, 6], rtol=1e-4)


def test_for_one_value_no_copy_is_looked_for():
    run = Run(operator(9, 9), Wanted("largest", 1))
    run.until(lambda done: done)
    assert not run.search.active
    assert len(run.process.krylov.couplings) == 1


def test_a_resumed_search_ends_at_the_same_step():
    run = Run(operator(9, 6, 4), Wanted("largest", 3))
    run.until(lambda _: run.search.active)
    for _ in range(3):
        run.step()
    resumed = MultiplicitySearch(run.wanted, 1e-4)
    assert not resumed.active
    resumed.resume(run.search.state())
    assert resumed.active
    other = Run(operator(9, 6, 4), run.wanted, resumed)
    other.process.resume(run.process.state())
    other.rule.resume(run.rule.state())
    assert run.until(lambda done: done) == other.until(lambda done: done)
    assert run.found.values.tolist() == other.found.values.tolist()
