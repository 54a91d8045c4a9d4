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

    def test_where_intervals_overlap_the_bound_is_that_of_the_cluster(self):
        found = error_bounds(ritz([1.0, 1.1, 9.0, 20.0, 21.0, 22.0], [0.2, 0.3, 0.1, 0.3, 0.8, 0.4]))
        np.testing.assert_allclose(found[:2], [0.2, np.hypot(0.2, 0.3)])  # with those of no larger residuals
        np.testing.assert_allclose(found[3:], np.sqrt([0.3**2, 0.3**2 + 0.4**2 + 0.8**2, 0.3**2 + 0.4**2]))
        np.testing.assert_array_equal(error_bounds(ritz([1.0], [0.2])), [0.2])

    def test_one_eigenvalue_does_not_serve_two_ritz_values(self):
        """Two Ritz values beside one eigenvalue: that of the other lies further off than either residual."""
        dense, angle = np.diag([1.0, -1.0, 1.0]), 0.3
        q = np.array([[1, 0, 0], [0, np.sin(angle), np.cos(angle)]]).T  # no eigenvalue is near cos 2a but 1, taken
        values, turn = np.linalg.eigh(q.T @ dense @ q)
        residuals = np.linalg.norm(dense @ q @ turn - q @ turn * values, axis=0)
        assert (np.abs(values - 1) <= error_bounds(ritz(values, residuals)) + 1e-12).all()

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
    def rule(self, which="largest", k=1, tolerance=1e-3):
        """A rule, and how it judges values and residuals that have stood still for some steps."""
        rule = StoppingRule(Wanted(which, k), tolerance, EPSILON)

        def judge(values, residuals, **options):
            for _ in range(3):
                found = rule.judge(ritz(values, residuals), **options)
            return found

        return judge

    def test_values_settle_where_every_bound_is_within_the_tolerance(self):
        near = self.rule(k=2, tolerance=1e-2)([0, 5, 10], [1, 0.1, 0.1])
        np.testing.assert_array_equal(near.values, [10, 5])
        np.testing.assert_allclose(near.margin, [0.1, 0.05])
        assert near.converged.all()
        assert len(near.places)
        far = self.rule(k=2, tolerance=1e-2)([0, 5, 10], [1, 2, 0.1])
        assert far.converged.tolist() == [True, False]
        assert not len(far.places)
        assert far.moving.tolist() == [1]
        assert far.relative_error == pytest.approx(2**2 / min(5 - 1, 5 - 0.1) / 5)

    def test_a_value_that_still_moves_has_not_converged_however_small_its_bound(self):
        rule = StoppingRule(Wanted("largest", 1), 1e-3, EPSILON)

        def bounds(*values):
            return [float(rule.judge(ritz([0, value], [1e-9, 1e-9])).bounds[0]) for value in values]

        assert bounds(8.0, 9.0) == [np.inf, np.inf]  # two moves are needed to see whether they shrink
        # The last move is 1/4 of that before: 1/4 + 1/16 + ... of it are still to come.
        assert bounds(9.25)[0] == pytest.approx(0.25 / 3)
        assert bounds(9.5)[0] == pytest.approx(2.5)  # a move as large as the last: ten times it
        assert bounds(9.5, 9.5)[1] == pytest.approx(1e-18 / 9.5, rel=1e-6)
        assert rule.judge(ritz([0, 99], [1e-9, 1e-9]), complete=True).converged[0]

    def test_places_are_where_another_eigenvalue_would_be_wanted_and_none_while_a_value_moves(self):
        places = self.rule(k=2)([0, 5, 10], [1e-9] * 3).places
        assert (places > 5).all()
        assert ((places > 5.005) & (places < 9.99)).sum() >= 6
        assert (places > 10.01).sum() >= 6
        assert len(self.rule(k=2)([0, 5, 10], [1e-9, 1, 1e-9]).places) == 0

    def test_a_value_of_rounding_beside_the_largest_is_as_good_as_it_can_be(self):
        values, rounding = [0, 1e-9, 1e6], EPSILON * 1e6
        assert self.rule("smallest")(values, [5 * rounding, 5 * rounding, 1]).converged.all()
        coarse = values, [20 * rounding, 20 * rounding, 1]
        assert not self.rule("smallest")(*coarse).converged.all()
        assert self.rule("smallest")(*coarse, restarts=8).converged.all()  # each of them rounds anew

    def test_a_resumed_rule_judges_alike(self):
        one, other = (StoppingRule(Wanted("largest", 1), 1e-3, EPSILON) for _ in range(2))
        for value in (8.0, 9.0, 9.9):
            one.judge(ritz([0, value], [1, 1e-9]))
        other.resume(one.state())
        found = [rule.judge(ritz([0, 10], [1, 1e-9])) for rule in (one, other)]
        assert found[0].bounds.tolist() == found[1].bounds.tolist()
        assert 0 < found[0].bounds[0] < 0.1
