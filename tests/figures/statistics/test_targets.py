"""Rounds, bytes and seconds to a target, by hand and against the printed numbers of FedSMOO's Tables 3 and 7."""

import pytest

from figures.statistics import Smoothing, first_round, relative_cost, speed_up, to_target
from figures.statistics.targets import seconds_until
from landscape import FedscapeError
from tests.figures.statistics.recorded import recorded

SEEDS = [recorded({2: 0.3, 4: 0.6, 6: 0.4}), recorded({2: 0.5, 4: 0.4, 6: 0.7})]


def test_the_first_evaluated_round_at_or_above_counts():
    found = to_target(SEEDS, 0.5)
    assert found.rounds == (4, 2)
    assert found.mean_rounds == 3
    assert found.gigabytes == (3.0, 1.5)
    assert found.seconds == (8.0, 4.0)
    assert (found.mean_gigabytes, found.mean_seconds) == (2.25, 6.0)
    assert str(found) == "3 (4, 2)"
    assert found.rounds == tuple(run.reaching(0.5) for run in SEEDS)


def test_a_seed_that_does_not_reach_it_is_kept_and_leaves_no_mean():
    found = to_target(SEEDS, 0.65)
    assert found.rounds == (None, 6)
    assert (found.mean_rounds, found.mean_gigabytes, found.gigabytes[0], found.seconds[0]) == (None, None, None, None)
    assert str(found) == "reached by 1 of 2 (>6, 6)"
    assert str(to_target(SEEDS, 0.9)) == "not reached in 6"
    assert str(to_target(SEEDS, 0.65, until=5)) == "not reached in 5"
    assert str(to_target(SEEDS[1:], 0.65)) == "6"


def test_a_smoothed_curve_reaches_it_elsewhere():
    # Means of two evaluations: 0.3, 0.45, 0.5; Hann of three: (2·0.3+0.6)/3 = 0.4, 0.475, (0.6+2·0.4)/3 = 0.467.
    run = SEEDS[0]
    assert to_target([run], 0.5, smoothing=Smoothing("running", 2)).rounds == (6,)
    assert to_target([run], 0.47, smoothing=Smoothing("hann", 3)).rounds == (4,)
    assert to_target([run], 0.48, smoothing=Smoothing("hann", 3)).rounds == (None,)
    assert "Hann window of 3" in str(Smoothing("hann", 3))


def test_costs_are_fedsmoos_printed_ones():
    rounds = {"SCAFFOLD": 533, "FedCM": 442, "FedDyn": 424, "FedSAM": 604, "MoFedSAM": 298, "FedSMOO": 194}
    speed = {"SCAFFOLD": 1.36, "FedCM": 1.64, "FedDyn": 1.71, "FedSAM": 1.20, "MoFedSAM": 2.43, "FedSMOO": 3.73}
    cost = {"SCAFFOLD": 1.47, "FedCM": 1.22, "FedDyn": 0.59, "FedSAM": 0.84, "MoFedSAM": 0.82, "FedSMOO": 0.53}
    for name, number in rounds.items():
        assert speed_up(number, 723) == pytest.approx(speed[name], abs=0.006)
        factor = 1 if name in ("FedDyn", "FedSAM") else 2
        # The paper truncates FedSMOO's 0.537 and rounds FedDyn's 0.586 (recipes/fedsmoo.md, section 4.7).
        assert relative_cost(number, 723, factor) == pytest.approx(cost[name], abs=0.0075)
    assert speed_up(None, 723) is speed_up(194, None) is relative_cost(None, 723) is relative_cost(194, None) is None


def test_time_that_was_not_recorded_in_every_round_is_unknown():
    run = recorded({2: 0.5}, 4)
    assert seconds_until(run, 3) == 6.0
    del run.metrics[1]["seconds"]
    assert seconds_until(run, 1) == 2.0
    assert seconds_until(run, 3) is None


def test_other_metrics_can_be_the_target():
    run = recorded({1: 0.1}, 3)
    run.metrics[2]["test_miou"] = 0.4
    assert to_target([run], 0.4, metric="test_miou").rounds == (3,)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: to_target([], 0.5), "there is no run"),
        (lambda: to_target(SEEDS, 50), "the target 50 is no accuracy: give a share"),
        (lambda: to_target(SEEDS, 0.5, metric="test_miou"), "a/run has no test_miou"),
        (lambda: first_round([1, 2], [0.5], 0.5), "2 rounds and values of shape"),
        (lambda: Smoothing("median", 3), "unknown smoothing 'median'"),
        (lambda: speed_up(0, 1), "no speed-up from 1 to 0"),
    ],
)
def test_mistakes_are_one_sentence(call, reason):
    with pytest.raises(FedscapeError, match=reason):
        call()
