"""Means, deviations, last rounds and runs that failed, against hand-worked cases."""

from dataclasses import replace

import numpy as np
import pytest

from figures.statistics import curve_over_seeds, hann, over_clients, over_seeds, remark
from figures.statistics.spread import best, last_rounds
from landscape import FedscapeError
from tests.figures.statistics.recorded import recorded
from trainers import FedAvg, Settings, train
from trainers.runs import read_runs


def test_deviation_over_seeds_is_a_samples():
    found = over_seeds([1.0, 2.0, 6.0])
    assert (found.mean, found.n, found.over, found.values) == (3.0, 3, "seeds", (1.0, 2.0, 6.0))
    assert found.deviation == pytest.approx(np.sqrt((4 + 1 + 9) / 2))
    assert str(found.times(10)) == "30.00 ± 26.46 (3 seeds)"


def test_one_seed_has_no_deviation():
    assert over_seeds([0.5]).deviation is None
    assert str(over_seeds([0.5])) == "0.50 (1 seed)"


def test_deviation_over_clients_is_as_recorded_of_the_round_asked_for(tmp_path):
    settings = Settings(rounds=2, clients=4, per_round=2, local_steps=1, client_accuracy=1, device="cpu")
    (run,) = read_runs([train(FedAvg(), settings, out=tmp_path).path])
    for round in (None, 1):
        record = run.metrics[-1 if round is None else 0]
        found = over_clients(run, round=round)
        assert found.mean == record["client_test_accuracy"]
        assert found.deviation == record["client_test_accuracy_deviation"]
        assert (found.n, found.over) == (4, "clients")
    with pytest.raises(FedscapeError, match="has no client_test_accuracy in round 7"):
        over_clients(run, round=7)


def test_the_mean_of_the_last_rounds_has_those_that_were_evaluated():
    run = recorded({5: 0.9, 8: 0.2, 9: 0.4, 10: 0.6})
    assert last_rounds(run, rounds=3) == pytest.approx(0.4)
    assert last_rounds(run, rounds=2) == pytest.approx(0.5)
    assert last_rounds(run, share=0.2) == pytest.approx(0.5)
    assert last_rounds(run, share=0.11) == pytest.approx(0.5), "1.1 rounds are 2"
    assert last_rounds(run, rounds=1) == 0.6
    assert last_rounds(recorded({300: 0.5, 297: 0.1}), share=0.01) == 0.5, "0.01 · 300 is a little more than 3"
    assert best(run) == 0.9


@pytest.mark.parametrize(
    ("accuracy", "classes", "wanted"),
    [  # Table 6 of Caldarola et al., and what is not collapsed there
        (0.10, 10, "at chance: 10.00 % of 10 classes"),
        (0.01, 100, "at chance: 1.00 % of 100 classes"),
        (0.014, 100, "near chance: 1.40 % of 100 classes"),
        (0.046, 100, "near chance: 4.60 % of 100 classes"),
        (0.3025, 100, None),
        (0.40, 10, None),
    ],
)
def test_collapsed_runs_are_told(accuracy, classes, wanted):
    assert remark(recorded({100: 0.8, 199: accuracy, 200: accuracy}), classes) == wanted
    assert remark(recorded({100: 0.8, 195: accuracy}, 200), classes) == wanted, "the last rounds were not evaluated"


def test_a_diverged_run_says_in_which_round():
    run = replace(recorded({1: 0.5}, 3), result={"status": "diverged", "round": 4})
    assert remark(run, 10) == "diverged in round 4"


def test_the_band_is_one_sample_deviation_over_the_rounds_that_all_have():
    runs = [recorded({1: 0.1, 2: 0.2, 3: 0.5}), recorded({1: 0.3, 3: 0.5, 4: 0.9})]
    found = curve_over_seeds(runs)
    assert found.rounds.tolist() == [1, 3]
    assert found.seeds == 2
    np.testing.assert_allclose(found.mean, [0.2, 0.5])
    np.testing.assert_allclose(found.high - found.mean, [np.sqrt(0.02), 0], atol=1e-15)
    np.testing.assert_allclose(found.mean - found.low, [np.sqrt(0.02), 0], atol=1e-15)
    alone = curve_over_seeds(runs[:1], smoothing=3, until=3)
    assert alone.low is alone.high is None
    np.testing.assert_allclose(alone.mean, hann([0.1, 0.2, 0.5], 3))


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: over_seeds([]), "there is no seed"),
        (lambda: over_seeds([0.5, float("nan")]), "have no mean: leave out runs that diverged"),
        (lambda: over_clients(recorded({1: 0.5})), "has no client_test_accuracy: train it with --client-accuracy"),
        (lambda: last_rounds(recorded({1: 0.5}, 9), rounds=3), "no test_accuracy in its last 3 of 9 rounds"),
        (lambda: last_rounds(recorded({1: 0.5})), "give either rounds or a share"),
        (lambda: last_rounds(recorded({1: 0.5}), rounds=1, share=0.5), "give either rounds or a share"),
        (lambda: last_rounds(recorded({1: 0.5}), share=2), "2 is no share"),
        (lambda: last_rounds(recorded({1: 0.5}), rounds=0), "the last 0 rounds is none"),
        (lambda: best(recorded({1: 0.5}), "test_loss"), "the largest test_loss is not the best"),
        (lambda: best(recorded({1: 0.5}), "test_miou"), "has no test_miou"),
        (lambda: remark(recorded({1: 0.5}), 1), "give 2 or more"),
        (lambda: curve_over_seeds([]), "there is no run"),
        (lambda: curve_over_seeds([recorded({1: 0.5}), recorded({2: 0.5})]), "no round in common"),
    ],
)
def test_mistakes_are_one_sentence(call, reason):
    with pytest.raises(FedscapeError, match=reason):
        call()
