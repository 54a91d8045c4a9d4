"""Verdicts against closed forms, against SciPy's t tests, and against synthetic groups whose difference is known."""

import math

import numpy as np
import pytest
from scipy import stats

from figures.report import Group, difference, ratio, sentence
from landscape import FedscapeError


def group(label, values, errors=(), first=0):
    seeds = range(first, first + len(values))
    return Group(label, dict(zip(seeds, values, strict=True)), dict(zip(seeds, errors, strict=False)))


def test_paired_and_unpaired_intervals_are_scipys():
    a, b = [0.91, 0.93, 0.90], [0.90, 0.89, 0.88]
    paired = difference(group("a", a), group("b", b))
    theirs = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert paired.paired
    assert (paired.low, paired.high) == pytest.approx((theirs.low, theirs.high))
    apart = difference(group("a", a), group("b", b, first=7))
    theirs = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert not apart.paired
    assert (apart.low, apart.high) == pytest.approx((theirs.low, theirs.high))


def test_a_ratio_is_of_geometric_means_and_turns_round():
    a, b = group("a", [1.0, 4.0]), group("b", [10.0, 10.0])
    found, turned = ratio(a, b), ratio(b, a)
    assert found.estimate == pytest.approx(0.2)
    assert turned.estimate == pytest.approx(5.0)
    assert (turned.low, turned.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_errors_of_measurements_widen_the_interval_by_their_mean():
    a, b = group("a", [1.0, 3.0], [0.5, 0.1]), group("b", [4.0, 6.0], [0.2, 0.2])
    plain, wide = difference(group("a", [1.0, 3.0]), group("b", [4.0, 6.0])), difference(a, b)
    assert wide.high - wide.low == pytest.approx(plain.high - plain.low + 2 * (0.3 + 0.2))
    one = ratio(group("a", [2.0], [0.2]), group("b", [1.0], [0.05]))
    assert (one.low, one.high) == pytest.approx((2 * math.exp(-0.15), 2 * math.exp(0.15)))


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_cover_the_truth_as_often_as_they_say(paired):
    draw = np.random.default_rng(0)
    hits, times = 0, 1500
    for _ in range(times):
        seeds = draw.normal(0, 1.0, 4)  # a partition that is hard for both
        a = np.exp(1.0 + seeds + draw.normal(0, 0.2, 4))
        b = np.exp((seeds if paired else draw.normal(0, 1.0, 4)) + draw.normal(0, 0.2, 4))
        found = ratio(group("a", a), group("b", b, first=0 if paired else 9))
        hits += found.low <= math.e <= found.high
    assert 0.93 < hits / times < 0.97


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        ([2.0, 2.1, 2.0], [16.0, 16.5, 16.2], "λ1 of a is 8 times smaller than of b (7.7 to 8.3, 95 %, 3 seeds)"),
        ([16.0, 16.5, 16.2], [2.0, 2.1, 2.0], "λ1 of a is 8 times greater than of b (7.7 to 8.3, 95 %, 3 seeds)"),
        ([2.0, 3.0, 1.0], [2.1, 1.5, 2.5], "λ1 of a and of b cannot be told apart (0.12 to 6.8 times, 95 %, 3 seeds)"),
        ([2.0], [16.0], "λ1 of a is 8 times smaller than of b in these runs; one seed says nothing of others"),
        (
            [2.0],
            [2.0],
            "λ1 of a and of b cannot be told apart in these runs (1 to 1 times, by the measurements' errors)",
        ),
    ],
)
def test_sentences_of_known_results(a, b, told):
    assert sentence("λ1", ratio(group("a", a), group("b", b)), "a", "b") == told


def test_shares_are_told_in_points():
    better = difference(group("a", [0.906, 0.907, 0.905]), group("b", [0.900, 0.901, 0.8995]))
    words = "test accuracy of a is 0.58 points higher than of b (0.51 to 0.66, 95 %, 3 seeds)"
    assert sentence("test accuracy", better, "a", "b", points=True) == words
    level = difference(group("a", [0.9, 0.8]), group("b", [0.85, 0.86]))
    assert "cannot be told apart (-70 to +69 points" in sentence("test accuracy", level, "a", "b", points=True)


def test_more_comparisons_need_a_higher_level():
    a, b = group("a", [1.0, 1.2, 1.1]), group("b", [1.3, 1.5, 1.6])
    assert ratio(a, b).decided
    assert not ratio(a, b, level=1 - 0.05 / 10).decided


def test_what_has_no_ratio_or_no_value_is_told():
    with pytest.raises(FedscapeError, match="a ratio needs values above 0"):
        ratio(group("a", [0.0]), group("b", [1.0]))
    with pytest.raises(FedscapeError, match="b has no value to compare"):
        difference(group("a", [1.0]), group("b", []))
