"""Which eigenvalues are wanted: their order, what a restart keeps, what would count as one more."""

import numpy as np
import pytest

from analysis.hessian.spectrum.wanted import Wanted
from landscape import FedscapeError

VALUES = np.array([-5.0, -1.0, 0.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("which", "chosen", "limits"),
    [
        ("largest", [4.0, 3.0], (-np.inf, 3.0)),
        ("smallest", [-5.0, -1.0], (-1.0, np.inf)),
        ("magnitude", [-5.0, 4.0], (-4.0, 4.0)),
        ("both", [4.0, 3.0, -5.0, -1.0], (-1.0, 3.0)),
    ],
)
def test_values_come_in_the_order_asked_for_and_one_beyond_the_last_would_be_another(which, chosen, limits):
    wanted = Wanted(which, 2)
    assert wanted.count == len(chosen)
    found = VALUES[wanted.choose(VALUES)]
    assert found.tolist() == chosen
    assert wanted.limits(found) == limits


@pytest.mark.parametrize(
    ("which", "kept"), [("largest", {8, 9, 7, 6}), ("smallest", {0, 1, 2, 3}), ("both", {9, 8, 7, 0, 1, 2})]
)
def test_half_of_the_room_beyond_the_wanted_is_filled_with_the_next_ones(which, kept):
    wanted = Wanted(which, 2)
    room = wanted.count + 4
    assert set(wanted.keep(np.arange(10.0), room)) == kept


@pytest.mark.parametrize("k", [0, 6])
def test_a_number_that_there_is_not_is_refused(k):
    with pytest.raises(FedscapeError, match="from 1 to the 5 parameters"):
        Wanted("largest", k).check(5)
    with pytest.raises(FedscapeError, match=r"at both ends are more than the 5|from 1 to the 5"):
        Wanted("both", k).check(5)


class TestWhereOthersMayHide:
    def test_points_lie_in_the_gaps_between_the_wanted_and_beyond_them(self):
        found = np.sort(Wanted("largest", 2).gaps(np.array([0.0, 5.0, 10.0]), 1e-2, 0.0))
        near = np.sqrt(0.05 * 5), np.sqrt(0.1 * 5)  # the geometric mean of the margin and the gap
        gap = np.array([near[0], 1, 1.75, 2.5, 2.5, 3.25, 4, 5 - near[0]]) + 5
        beyond = np.array([near[1], 1, 1.75, 2.5, 2.5, 3.25, 4, 5 - near[1]]) + 10  # as wide as the last gap
        np.testing.assert_allclose(found, np.sort(np.r_[gap, beyond]))

    def test_the_other_end_is_the_mirror_image(self):
        values = np.array([-7.0, -3.0, 0.0, 2.0, 3.5])
        for one, other in (("largest", "smallest"), ("both", "both"), ("magnitude", "magnitude")):
            here, there = Wanted(one, 2).gaps(values, 1e-3, 0.0), Wanted(other, 2).gaps(-values[::-1], 1e-3, 0.0)
            np.testing.assert_allclose(np.sort(here), np.sort(-there))

    def test_points_nearer_than_the_tolerance_or_the_floor_are_left_out(self):
        values = np.array([0.0, 9.999, 10.0])
        for options in ((1e-2, 0.0), (0.0, 0.01)):
            found = Wanted("largest", 2).gaps(values, *options)
            assert found.min() > 10.0
            assert found.max() == pytest.approx(20 - np.sqrt(10 * max(10 * options[0], options[1])))

    def test_by_magnitude_an_end_without_a_wanted_value_is_looked_at_where_one_would_be_wanted(self):
        assert -8.0 in Wanted("magnitude", 2).gaps(np.array([-1.0, 0.0, 8.0, 10.0]), 1e-3, 0.0)

    def test_a_copy_of_the_innermost_value_takes_no_place(self):
        values = np.array([0.0, 4.0, 6.0, 9.0])
        assert Wanted("largest", 3).copied(values, 1e-3, 0.0).tolist() == [6.0]
        assert Wanted("largest", 1).copied(values, 1e-3, 0.0).tolist() == []
        assert Wanted("largest", 3).copied(np.array([0.0, 5.999, 6.0, 9.0]), 1e-2, 0.0).tolist() == [9.0]
        assert Wanted("both", 2).copied(values, 1e-3, 0.0).tolist() == [9.0, 0.0]
        assert Wanted("smallest", 2).copied(values, 1e-3, 0.0).tolist() == [0.0]
