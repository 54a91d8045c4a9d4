"""What a start vector's record says of eigenvectors that have not shown, against naive polynomials and the truth."""

import numpy as np
import pytest
import torch

from analysis.hessian.spectrum.evidence import StartRecord
from analysis.hessian.spectrum.lanczos import Lanczos

VALUES = np.r_[9.0, 6.0, 4.0, np.linspace(-1, 1, 57)]


def process(seed=0, values=VALUES):
    """A Lanczos process of a diagonal matrix, whose eigenvectors are the unit vectors; its start; a step of it."""
    start = torch.from_numpy(np.random.default_rng(seed).normal(size=len(values)))
    krylov, diagonal = Lanczos(start, torch.Generator().manual_seed(0)), torch.from_numpy(values)
    return krylov, (start / start.norm()).numpy(), lambda: krylov.absorb(diagonal * krylov.vector)


def christoffel(values, weights, degree, points):
    """1/Σ_j p_j(λ)² of the orthonormal polynomials up to a degree, by Gram-Schmidt on scaled monomials."""
    scaled = [np.vander(x / 10, degree + 1, increasing=True) for x in (values, points)]
    triangle = np.linalg.qr(np.sqrt(weights)[:, None] * scaled[0], mode="r")
    return 1 / (np.linalg.solve(triangle.T, scaled[1].T) ** 2).sum(axis=0)


def test_it_is_the_christoffel_function_of_the_start():
    krylov, start, step = process()
    points = np.array([-3.0, 0.5, 2.0, 5.0, 7.5, 12.0])
    assert krylov.record.hidden(points).tolist() == [1.0] * 6  # nothing is known yet
    for degree in range(1, 9):
        step()
        expected = christoffel(VALUES, start**2, degree, points)
        np.testing.assert_allclose(krylov.record.hidden(points), expected, rtol=1e-6)


@pytest.mark.parametrize("restarts", [0, 3])
def test_no_eigenvector_has_more_of_the_start_than_it_says(restarts):
    for seed in range(20):
        krylov, start, step = process(seed)
        for _ in range(10):
            step()
        for _ in range(restarts):
            krylov.restart(lambda ascending: np.arange(len(ascending))[-4:])
            for _ in range(4):
                step()
        apart = np.abs(VALUES[:, None] - krylov.ritz().values).min(axis=1) > 1e-4
        assert (start**2 <= krylov.record.hidden(VALUES) * (1 + 1e-6))[apart].all()
        assert apart.sum() > 40


def test_beyond_a_restart_it_follows_each_eigenvectors_components():
    krylov, start, step = process()
    for _ in range(8):
        step()
    krylov.restart(lambda ascending: np.arange(len(ascending))[-4:])
    before = krylov.record.hidden(VALUES)
    for _ in range(3):
        step()
    whole = torch.cat([krylov.basis, krylov.vector[None]]).numpy()  # the components of eigenvector i are column i
    now = start**2 / (whole**2).sum(axis=0)
    np.testing.assert_allclose(krylov.record.hidden(VALUES), np.minimum(before, now), rtol=1e-5)


def test_of_an_invariant_space_it_says_that_nothing_else_had_a_part():
    krylov, _, step = process(values=np.r_[5.0, 5.0, 2.0, 2.0])
    step()
    step()
    points = np.array([1.0, 3.0, 6.0])
    np.testing.assert_allclose(krylov.record.hidden(points), 0, atol=1e-20)
    assert not krylov.record.open  # the process went on from another start
    before = krylov.record.hidden(np.array([5.0]))
    step()
    assert krylov.record.hidden(np.array([5.0])) == before


def test_the_probability_is_that_of_a_random_vectors_coordinate():
    record, d = StartRecord(), 400
    record.step(np.zeros(0), 0.0, 0.3)  # one step: hidden(λ) = 1/(1 + (λ/0.3)²)
    point = np.array([5.0])
    share = 1 / (1 + (5 / 0.3) ** 2)
    assert record.hidden(point) == pytest.approx(share)
    draws = np.random.default_rng(0).normal(size=(20_000, d))
    coordinates = draws[:, 0] ** 2 / (draws**2).sum(axis=1)
    assert record.missed(point, d)[0] == pytest.approx((coordinates <= share).mean(), abs=0.01)


def test_far_out_it_does_not_overflow():
    krylov, _, step = process()
    for _ in range(40):
        step()
    found = krylov.record.hidden(np.array([1e12, -1e200]))
    assert (found >= 0).all()
    assert (found < 1e-100).all()


def test_a_resumed_record_goes_on_alike():
    krylov, _, step = process()
    for _ in range(6):
        step()
    other = StartRecord.resumed(krylov.record.state())
    points = np.linspace(-2, 10, 9)
    for record in (krylov.record, other):
        record.step(np.array([0.5]), 1.0, 0.7)
    assert other.hidden(points).tolist() == krylov.record.hidden(points).tolist()
    other.close()
    assert not StartRecord.resumed(other.state()).open
