"""Verdicts of the page docs/local-against-global.md, on numbers worked by hand."""

import pytest

from analysis.alignment.rounds import TITLES
from benchmarks.all_algorithms import write
from benchmarks.local_against_global import (
    ALGORITHMS,
    CLAIMS,
    PARTITIONS,
    SHOWN,
    STUDIES,
    USED,
    Claim,
    Settings,
    claims_table,
    judged,
    means_table,
    used_table,
    words,
)
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
        ((1.0,), (4.0,), "on its side"),
        ((4.0,), (1.0,), "on the other side"),
        ((1.0,), (), "undecided"),
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
    known = {*SHOWN, *USED, "test_accuracy"}
    assert {*SHOWN, *USED} <= TITLES.keys()
    for claim in CLAIMS:
        assert set(claim.runs) <= {*ALGORITHMS, None}
        assert ({claim.quantity} if isinstance(claim.quantity, str) else set(claim.quantity)) <= known


@pytest.mark.parametrize(("study", "clients"), [("digits", 20), ("cifar10", 100)])
def test_every_run_of_a_study_is_a_command_that_trains_accepts(study, clients):
    settings = Settings(study=study)
    for name in STUDIES[study].algorithms:
        for alpha in PARTITIONS:
            assert read([*words(settings, name, alpha), "--out", "x"]).settings.clients == clients


def test_a_study_answers_the_claims_about_its_algorithms():
    claims = claims_table(Settings(study="cifar10"), {}).rows
    assert {row[2] for row in claims} == {"undecided"}
    assert 0 < len(claims) < len(CLAIMS) == len(claims_table(Settings(), {}).rows)


def test_what_was_not_measured_is_undecided():
    claim = Claim("a paper", "x over y is below 1", ("x", "y"), ("a", None), "lower")
    assert judged(claim, "0", {("a", "0", 0): {"x": 1.0}}) == ("undecided", "not measured")


def test_means_are_over_the_seeds():
    numbers = dict.fromkeys(SHOWN, 2.0)
    found = {("fedavg", "0", seed): numbers | {"test_accuracy": 0.5 + 0.1 * seed} for seed in range(3)}
    (row,) = means_table("0", found).rows
    assert row[:4] == ("fedavg", 3, pytest.approx(0.6), 2.0)


def test_tables_of_two_studies_stand_on_one_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table -->\nold\n<!-- end of table -->\nb\n<!-- table: x -->\n<!-- end of table -->\nc\n")
    write(page, "of x", "x")
    write(page, "first")
    assert page.read_text().replace("\n", "") == (
        "a<!-- table -->first<!-- end of table -->b<!-- table: x -->of x<!-- end of table -->c"
    )


def test_what_was_used_has_a_row_where_an_algorithm_perturbs():
    none = {"test_accuracy": 0.5}
    some = none | dict.fromkeys(USED, 0.25) | {"server_worst_case_found": float("nan")}
    found = {("fedavg", "0", 0): none, ("fedsam", "0", 0): some, ("fedsam", "0", 1): some}
    (row,) = used_table("0", found).rows
    assert row == ("fedsam", *(None if name == "server_worst_case_found" else 0.25 for name in USED))
