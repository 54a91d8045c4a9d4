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
