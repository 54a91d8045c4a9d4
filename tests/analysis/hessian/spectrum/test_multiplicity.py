"""The search for copies of multiple eigenvalues alone, driven by hand."""

import numpy as np
import pytest
import torch

from analysis import Dense
from analysis.hessian.spectrum.evidence import StartRecord
from analysis.hessian.spectrum.iteration import ThickRestart
from analysis.hessian.spectrum.multiplicity import MultiplicitySearch
from analysis.hessian.spectrum.stopping import StoppingRule
from analysis.hessian.spectrum.wanted import Wanted
from tests.analysis.hessian.spectrum.spectra import step

N = 200


def operator(*outliers):
    """Some eigenvalues above a bulk in [−1, 1], in a random basis."""
    values = np.r_[outliers, np.linspace(-1, 1, N - len(outliers))]
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(N, N)))
    return Dense(torch.from_numpy(basis * values @ basis.T))


class Run:
    """The steps of an iteration, each judged and shown to a search; ``found`` is the last judgement."""

    def __init__(self, matrix, wanted, search=None):
        self.matrix = matrix
        self.process, self.rule = ThickRestart(matrix, wanted), StoppingRule(wanted, 1e-4, 2e-16)
        self.search, self.wanted = search or MultiplicitySearch(wanted, 1e-4, N), wanted

    def step(self):
        goes_on = step(self.process, self.matrix)
        krylov = self.process.krylov
        if krylov.steps < self.wanted.count:
            return False
        ritz = krylov.ritz()
        self.found = self.rule.judge(ritz)
        return self.search.finished(krylov, ritz, self.found, goes_on)

    def until(self, condition):
        for count in range(1, N):
            done = self.step()
            if condition(done):
                return count
        pytest.fail("it never came")


def test_it_begins_by_a_new_branch_once_the_values_have_converged():
    run = Run(operator(9, 6, 4), Wanted("largest", 3))
    run.until(lambda _: run.search.active)
    assert run.found.converged.all()
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
    resumed = MultiplicitySearch(run.wanted, 1e-4, N)
    assert not resumed.active
    resumed.resume(run.search.state())
    assert resumed.active
    other = Run(operator(9, 6, 4), run.wanted, resumed)
    other.process.resume(run.process.state())
    other.rule.resume(run.rule.state())
    assert run.until(lambda done: done) == other.until(lambda done: done)
    assert run.found.values.tolist() == other.found.values.tolist()


class Told(StartRecord):
    """A record after which an eigenvector at a point has less of the start with the probability told for it."""

    def __init__(self, probability):
        super().__init__()
        self.probability = probability

    def missed(self, points, dimension):
        return np.broadcast_to(self.probability(points), points.shape)


def converged(first, spare=N):
    """A search that has not begun, and what it is asked with, once 9, 6 and 4 have converged; the first start's record
    tells that probability everywhere; the basis has room for so many vectors more."""
    wanted = Wanted("largest", 3)
    run = Run(operator(9, 6, 4), wanted)
    run.until(lambda _: run.search.active)
    krylov = run.process.krylov
    krylov.record = Told(lambda points: first)
    return MultiplicitySearch(wanted, 1e-4, krylov.steps + spare), (krylov, krylov.ritz(), run.found, True)


@pytest.mark.parametrize(("first", "spare", "begun"), [(0.019, 10, True), (0.021, 10, False), (0.019, 9, False)])
def test_it_begins_once_the_first_start_has_brought_its_part_of_the_evidence(first, spare, begun):
    search, asked = converged(first, spare)
    assert not search.finished(*asked)
    assert search.active is begun  # not where the basis would be shrunk before it ends


def test_where_the_basis_would_be_shrunk_the_first_start_brings_all_of_the_evidence():
    search, asked = converged(0.009, spare=9)
    assert not search.finished(*asked)
    assert search.active


@pytest.mark.parametrize(("first", "second", "done"), [(0.018, 0.5, True), (0.012, 0.8, True), (0.018, 0.6, False)])
def test_that_both_starts_have_missed_a_value_in_a_gap_must_be_improbable(first, second, done):
    search, asked = converged(first)
    search.finished(*asked)
    search._steps.record = Told(lambda points: np.where(points > 5.9, 1e-3, second))  # a copy of 6 would have shown
    assert search.finished(*asked) is done
    assert search.missed == pytest.approx(first * second if done else 1e-3)


def test_where_the_basis_is_full_it_ends_and_tells_what_may_have_been_missed():
    search, asked = converged(0.018)
    search.finished(*asked)
    search._steps.record = Told(lambda points: np.where(points > 5.9, 1e-3, 0.6))
    search._room = asked[0].steps
    assert search.finished(*asked)
    assert search.missed == pytest.approx(0.0108)
