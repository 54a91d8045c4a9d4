"""Where algorithms come to rest, on quadratics with unequal clients of whom three of eight come in a round.

Unbiased ones reach ∇F = 0, F = Σ p_i f_i, to rounding and at a constant rate with several full-batch local steps; the
others stay away from it, and say why.
"""

import pytest

from tests.trainers.quadratics import slope_after
from trainers import (
    ALGORITHMS,
    AdaBest,
    Centralised,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedCM,
    FedDC,
    FedDyn,
    FedGAMMA,
    FedGloSS,
    FedLESAM,
    FedProx,
    FedRobust,
    FedSAM,
    FedSMOO,
    FedSpeed,
    FedWMSAM,
    MimeLite,
    Scaffold,
)

ALPHA = 0.3
AT_REST = [
    Scaffold(),
    FedDyn(ALPHA),
    FedDC(ALPHA),
    FedSpeed(0.0, 1.0, 1 / ALPHA),
    FedSpeed(0.0, 1.0, 1 / ALPHA, "official"),
    FedSMOO(0.0, 1 / ALPHA),
    FedGloSS(0.0, 0.0, 1 / ALPHA),
    FedGAMMA(0.0),
    FedLESAM(0.0, "scaffold"),
    FedLESAM(0.0, "feddyn", ALPHA),
    FedWMSAM(0.0, 0.0, ALPHA),
    FedWMSAM(0.0, 0.1, 0.1),
]
AWAY = [
    FedAvg(),
    FedProx(0.1),
    FedAvgM(1.0, 0.5),
    FedAdam(),
    FedSAM(0.1),
    FedCM(ALPHA),
    MimeLite(0.5),
    AdaBest(0.1, 0.5),
    FedDC(ALPHA, "sampled"),
    FedSpeed(0.0, 1.0, 1 / ALPHA, server_correction="sampled"),
    FedSpeed(0.3, 1.0, 1 / ALPHA),
    FedSMOO(0.1, 1 / ALPHA),
    FedGloSS(0.1, 0.0, 1 / ALPHA),
    FedGloSS(0.0, 0.1, 1 / ALPHA),
    FedGAMMA(0.1),
    FedLESAM(0.1, "scaffold"),
    FedLESAM(0.1, "feddyn", ALPHA),
    *(kind() for kind in map(ALGORITHMS.get, ALGORITHMS) if kind().bias and kind not in (FedRobust, Centralised)),
]


def combinations():
    for weighting in ("samples", "uniform"):
        for sampling in ("exact", "bernoulli"):
            for algorithm in AT_REST:
                fast = isinstance(algorithm, FedDC | Scaffold) and (weighting == "samples") == (sampling == "exact")
                fast = fast and not isinstance(algorithm, FedGAMMA)
                marks = () if fast else pytest.mark.slow
                yield pytest.param(
                    algorithm, weighting, sampling, marks=marks, id=f"{algorithm}-{weighting}-{sampling}"
                )


@pytest.mark.parametrize(("algorithm", "weighting", "sampling"), list(combinations()))
def test_comes_to_rest_where_the_objective_does(algorithm, weighting, sampling):
    assert algorithm.bias == ""
    assert slope_after(algorithm, 2000, weighting, sampling) < 1e-12


@pytest.mark.parametrize("aggregation", ["ratio", pytest.param("unbiased", marks=pytest.mark.slow)])
def test_both_means_of_models_have_the_same_point_of_rest(aggregation):
    assert slope_after(Scaffold(0.5), 2000, "samples", aggregation=aggregation) < 1e-12


@pytest.mark.parametrize("weighting", ["samples", pytest.param("uniform", marks=pytest.mark.slow)])
@pytest.mark.parametrize("algorithm", AWAY, ids=str)
def test_stays_away_from_it_and_says_why(algorithm, weighting):
    assert algorithm.bias
    assert slope_after(algorithm, 60, weighting) > 1e-3


def test_each_algorithm_is_in_one_list_or_the_other():
    """FedRobust's objective is another one, and Centralised has a single client."""
    assert {type(a) for a in [*AT_REST, *AWAY]} | {FedRobust, Centralised} == set(map(ALGORITHMS.get, ALGORITHMS))
    assert FedRobust().bias.startswith("moved inputs")
    assert Centralised().bias == ""
