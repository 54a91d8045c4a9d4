"""The stopping rule alone, on Ritz values written by hand."""

import numpy as np
import pytest

from analysis.hessian.spectrum.lanczos import Ritz
from analysis.hessian.spectrum.stopping import StoppingRule, error_bounds
from analysis.hessian.spectrum.wanted import Wanted

EPSILON = np.finfo(np.float64).eps


def ritz(values, residuals):
    """Ritz values that ascend, with these residuals."""
    m = len(values)
    return Ritz(np.array(values, dtype=float), np.array(residuals, dtype=float), np.full(m, 1 / m), np.eye(m))


class TestErrorBounds:
    def test_where_the_gap_is_wide_the_bound_is_the_residual_squared_by_the_gap(self):
        found = error_bounds(ritz([0.0, 1.0, 5.0], [0.1, 0.2, 0.3]))
        gaps = [1.0 - 0.2, min(1.0 - 0.1, 4.0 - 0.3), 4.0 - 0.2]
        np.testing.assert_allclose(found, np.array([0.1, 0.2, 0.3]) ** 2 / gaps)

    def test_where_the_gap_is_within_the_residual_the_bound_is_the_residual(self):
        np.testing.assert_array_equal(error_bounds(ritz([1.0, 1.1, 9.0], [0.2, 0.3, 0.1]))[:2], [0.2, 0.3])
        np.testing.assert_array_equal(error_bounds(ritz([1.0], [0.2])), [0.2])

    def test_they_hold_on_projections_of_a_matrix(self):
        draw = np.random.default_rng(0)
        dense = np.diag(np.r_[np.linspace(-1, 1, 30), 3, 5, 8])
        start = np.linalg.qr(np.linalg.matrix_power(dense + 2 * np.eye(33), 6) @ draw.normal(size=(33, 4)))[0]
        values, vectors = np.linalg.eigh(start.T @ dense @ start)
        vectors = start @ vectors
        residuals = np.linalg.norm(dense @ vectors - vectors * values, axis=0)
        errors = np.abs(values[-3:] - [3, 5, 8])
        assert (errors <= error_bounds(ritz(values, residuals))[-3:] + 1e-14).all()


class TestRule:
    def test_values_settle_where_every_bound_is_within_the_tolerance(self):
        rule = StoppingRule(Wanted("largest", 2), 1e-2, EPSILON)
        near = rule.judge(ritz([0, 5, 10], [1, 0.1, 0.1]), products=20)
        np.testing.assert_array_equal(near.values, [10, 5])
        np.testing.assert_allclose(near.margin, [0.1, 0.05])
        assert near.converged.all()
        assert near.settled
        far = StoppingRule(Wanted("largest", 2), 1e-2, EPSILON).judge(ritz([0, 5, 10], [1, 2, 0.1]), products=20)
        assert far.converged.tolist() == [True, False]
        assert not far.settled
        assert far.moving.tolist() == [1]
        assert far.relative_error == pytest.approx(2**2 / min(5 - 1, 5 - 0.1) / 5)

    def test_a_value_that_still_moves_has_not_converged_however_small_its_bound(self):
        rule = StoppingRule(Wanted("largest", 1), 1e-3, EPSILON)
        moves = [rule.judge(ritz([0, 9 + step], [1e-9, 1e-9]), products=20).converged[0] for step in (0, 1)]
        rests = [rule.judge(ritz([0, 10], [1e-9, 1e-9]), products=20).converged[0] for _ in range(4)]
        assert moves == [True, False]
        assert rests == [False, False, True, True]  # what it moved is forgotten after three steps
        assert rule.judge(ritz([0, 99], [1e-9, 1e-9]), products=20, complete=True).converged[0]

    def test_a_few_first_steps_settle_nothing(self):
        rule = StoppingRule(Wanted("both", 1), 1e-3, EPSILON)
        found = [rule.judge(ritz([0, 5], [0, 0]), products=n) for n in (8, 9)]
        assert [one.converged.all() for one in found] == [True, True]
        assert [one.settled for one in found] == [False, True]

    def test_a_value_of_rounding_beside_the_largest_is_as_good_as_it_can_be(self):
        rule = StoppingRule(Wanted("smallest", 1), 1e-3, EPSILON)
        found = rule.judge(ritz([0, 1e6], [5 * EPSILON * 1e6, 1]), products=20)
        assert found.converged.all()
        coarse = ritz([0, 1e6], [20 * EPSILON * 1e6, 1e12])
        assert not rule.judge(coarse, products=20).converged.all()
        assert rule.judge(coarse, products=20, restarts=8).converged.all()  # each of them rounds anew

    def test_a_resumed_rule_judges_alike(self):
        one, other = (StoppingRule(Wanted("largest", 1), 1e-3, EPSILON) for _ in range(2))
        for value in (8.0, 9.0, 9.9):
            one.judge(ritz([0, value], [1, 1e-9]), products=20)
        other.resume(one.state())
        found = [rule.judge(ritz([0, 10], [1, 1e-9]), products=20) for rule in (one, other)]
        assert found[0].bounds.tolist() == found[1].bounds.tolist() == [2.0]
