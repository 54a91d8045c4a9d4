"""Cells of tables: values over seeds, values of several nodes together, remarks, decimals."""

from __future__ import annotations

from pathlib import Path

from figures.contents.content import Results
from figures.contents.table import Entry, Joint, TableOf
from figures.contents.values import accuracy, best_accuracy, collapsed, rounds_to
from figures.statistics import Smoothing
from trainers import FedAvg, Settings
from trainers.runs.planned import PlannedRun
from trainers.runs.records import RecordedRun

A, B = (PlannedRun(FedAvg(), Settings(seed=seed)) for seed in (0, 1))


def recorded(accuracies: list[float], status: str = "finished") -> RecordedRun:
    metrics = [{"round": i + 1, "test_accuracy": each} for i, each in enumerate(accuracies)]
    settings = {"data": "digits", "data_dir": "", "rounds": len(accuracies)}
    return RecordedRun(
        Path("run"), {"algorithm": {"name": "fedavg"}, "settings": settings}, metrics, {"status": status}
    )


def test_a_joint_cell_gets_the_results_in_the_order_of_its_nodes_and_says_what_failed() -> None:
    cell = Joint((B, A), lambda found: found[0] / found[1])
    assert cell.measured(Results({A: 2.0, B: 6.0})).text(1) == "3.0"
    assert cell.measured(Results({A: 2.0}, {B: "no memory"})).text(1) == "failed: no memory"


def test_a_cell_of_a_run_at_chance_says_so_and_the_caption_says_where() -> None:
    table = TableOf({("FedAvg", "C10"): Entry((A, B), accuracy(), remark=collapsed)}, "%", 1)
    runs = {A: recorded([0.105]), B: recorded([0.905])}  # chance is 10 %
    (product,) = table.products(Results(runs), {})
    assert product.table is not None
    assert product.table.rows == (("FedAvg", "50.5 ± 56.6 (near chance)"),)
    assert "FedAvg, C10: near chance: 10.50 % of 10 classes." in product.caption
    (product,) = table.products(Results({A: recorded([0.9], "diverged"), B: recorded([0.905])}), {})
    assert product.table is not None
    assert product.table.rows == (("FedAvg", "diverged, 90.5"),)
    assert "FedAvg, C10: diverged in round 2." in product.caption


def test_neither_the_last_nor_the_best_accuracy_of_a_diverged_run_is_a_number() -> None:
    run = recorded([0.9, 0.8], "diverged")
    assert accuracy()(run) == best_accuracy()(run) == "diverged"
    assert best_accuracy()(recorded([0.9, 0.8])) == 90


def test_columns_have_decimals_of_their_own() -> None:
    entries = {("row", column): Entry((A,), lambda value: value) for column in ("rounds", "cost")}
    (product,) = TableOf(entries, digits={"rounds": 0, "cost": 2}).products(Results({A: 1.5}), {})
    assert product.table is not None
    assert product.table.rows == (("row", "2", "1.50"),)


def test_rounds_to_a_target_are_of_the_smoothed_curve_where_smoothing_is_asked_for() -> None:
    run = recorded([0.1, 0.9, 0.1, 0.6, 0.6])
    assert rounds_to(0.6)(run) == 2
    assert rounds_to(0.6, smoothing=Smoothing("running", 2))(run) == 5  # means 0.1, 0.5, 0.5, 0.35, 0.6
    assert rounds_to(0.95)(run) == ">5"
    assert rounds_to(0.5)(recorded([], "diverged")) == "diverged in round 1"
