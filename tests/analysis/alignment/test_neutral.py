"""Verdicts of the page docs/local-against-global.md, on numbers worked by hand."""

import pytest

from benchmarks.local_against_global import ALGORITHMS, BUDGET, CLAIMS, PARTITIONS, SHOWN, Claim, judged, means_table
from trainers.__main__ import read

LOWER = Claim("a paper", "a is flatter than b", "lambda_max_global", ("a", "b"), "lower")


def runs(**values):
    return {(name, "0", seed): {"lambda_max_global": v} for name, some in values.items() for seed, v in enumerate(some)}


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ((1.0, 1.1, 0.9), (4.0, 4.4, 3.6), "confirmed"),
        ((4.0, 4.4, 3.6), (1.0, 1.1, 0.9), "not confirmed"),
        ((1.0, 2.0, 0.5), (1.1, 1.0, 0.9), "undecided"),
        ((1.0,), (4.0,), "undecided"),
    ],
)
def test_a_verdict_is_the_side_of_the_interval(a, b, verdict):
    assert judged(LOWER, "0", runs(a=a, b=b))[0] == verdict


def test_the_evidence_is_the_ratio_of_geometric_means_and_its_interval():
    """Ratios of 1/4 in each pair: no spread over the seeds."""
    assert judged(LOWER, "0", runs(a=(1.0, 1.1, 0.9), b=(4.0, 4.4, 3.6)))[1] == "×0.25 (0.25 to 0.25)"


def test_ratios_within_a_run_are_compared_with_one():
    claim = Claim("a paper", "x over y is below 1", ("x", "y"), ("a", None), "lower")
    found = {("a", "0", seed): {"x": x, "y": 2.0} for seed, x in enumerate((1.0, 1.1, 0.9))}
    assert judged(claim, "0", found)[0] == "confirmed"
    share = Claim("a paper", "x is below 0.5", "x", ("a", None), "lower", "difference", 0.5)
    assert judged(share, "0", found)[0] == "not confirmed"


def test_every_claim_is_of_algorithms_and_quantities_that_are_measured():
    known = {*SHOWN, "test_accuracy"}
    for claim in CLAIMS:
        assert set(claim.runs) <= {*ALGORITHMS, None}
        assert ({claim.quantity} if isinstance(claim.quantity, str) else set(claim.quantity)) <= known
    for name in ALGORITHMS:
        for partition in PARTITIONS.values():
            assert read([name, *BUDGET.split(), "--partition", partition, "--out", "x"]).settings.clients == 20


def test_means_are_over_the_seeds():
    numbers = dict.fromkeys(SHOWN, 2.0)
    found = {("fedavg", "0", seed): numbers | {"test_accuracy": 0.5 + 0.1 * seed} for seed in range(3)}
    (row,) = means_table("0", found).rows
    assert row[:4] == ("fedavg", 3, pytest.approx(0.6), 2.0)
