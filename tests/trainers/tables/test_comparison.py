"""The comparison table against numbers worked out by hand."""

import pytest

from landscape import FedscapeError
from tests.trainers.runs.recorded import record, row, write
from trainers import FedAvg, Settings, train
from trainers.runs.protocol import PROTOCOL
from trainers.runs.records import read_runs
from trainers.tables.comparison import presented, report


def test_every_column_of_a_run_worked_out_by_hand(tmp_path):
    parts = {"ascent": {"name": "asam", "rho": 0.7, "eta": 0.2}, "man": {"name": "man", "zeta": 0.15}, "mixup": True}
    write(tmp_path / "a", parts=parts)
    found = row(report(read_runs([tmp_path / "a"]), [0.8, 0.95]))
    assert found == {
        "run": "a",
        "algorithm": "scaffold + asam + man + mixup",
        "status": "finished",
        "rounds": 10,
        "accuracy %": 75.0,
        "best %": 90.0,
        "last tenth %": None,  # only round 10 is among the last tenth, and one number is no mean
        "mIoU %": None,
        "test loss": pytest.approx(0.4),
        "train loss": pytest.approx(0.1),
        "SWA %": None,
        "SWA mIoU %": None,
        "rounds to 80 %": 4,
        "GB to 80 %": pytest.approx(4 * 0.006),
        "rounds to 95 %": ">10",
        "GB to 95 %": None,
        **dict.fromkeys(PROTOCOL),
        "drift": pytest.approx(1.0),
        "MB down": pytest.approx(2.0),
        "MB up": pytest.approx(1.0),
        "GB": pytest.approx(0.06),
        "s/round": pytest.approx(5.5),
        "local s": pytest.approx(3.5),
        "aggregation s": pytest.approx(0.5),
        "evaluation s": pytest.approx(1.5),
        "client train %": None,
        "client train % ±": None,
        "client test %": None,
        "client test % ±": None,
    }


def test_the_last_tenth_is_averaged_over_its_evaluated_rounds(tmp_path):
    records = [record(n, test_accuracy=n / 100) for n in range(1, 41)]
    write(tmp_path / "a", records, rounds=40)
    assert row(report(read_runs([tmp_path / "a"])))["last tenth %"] == pytest.approx((37 + 38 + 39 + 40) / 4)


def test_traffic_is_of_each_round_whatever_its_number_of_clients(tmp_path):
    """Bernoulli sampling: 1 client with 3 bytes down, then 5 with 15."""
    records = [
        record(1, clients=[4], bytes_down=3, bytes_up=2),
        record(2, clients=[0, 1, 2, 3, 4], bytes_down=15, bytes_up=10),
    ]
    found = row(report(read_runs([write(tmp_path / "a", records, rounds=2)])))
    assert (found["MB down"], found["MB up"], found["GB"]) == pytest.approx((3e-6, 2e-6, 30e-9))


def test_status(tmp_path):
    diverged = {"status": "diverged", "round": 4, "reason": "the loss stopped being finite"}
    write(tmp_path / "diverged", [record(1), record(2), record(3)], result=diverged)
    write(tmp_path / "running", [record(1), record(2), record(3)], result=None)
    write(tmp_path / "longer", rounds=20)  # finished with 10, now resumed for 20
    write(tmp_path / "old", result=None)
    write(tmp_path / "none", [], result=None)
    names = ["diverged", "running", "longer", "old", "none"]
    table = report(read_runs(tmp_path / name for name in names), [0.5])
    assert [row[2] for row in table.rows] == [
        "diverged in round 4", "unfinished, 3 of 10", "unfinished, 10 of 20", "finished", "unfinished, 0 of 10",
    ]  # fmt: skip
    assert row(table, 4)["accuracy %"] is None
    assert row(table, 4)["rounds to 50 %"] == ">0"


def test_clients_accuracies_are_shown_with_their_deviation(tmp_path):
    clients = {
        "client_train_accuracy": 0.9616, "client_train_accuracy_deviation": 0.0114,
        "client_test_accuracy": 0.8475, "client_test_accuracy_deviation": 0.0411,
    }  # fmt: skip
    write(tmp_path / "a", [record(1), record(2, **clients), record(3)], rounds=3)
    table = report(read_runs([tmp_path / "a"]))
    assert row(table)["client test % ±"] == pytest.approx(4.11)
    shown = presented(table)
    assert row(shown)["client train %"] == "96.2 ± 1.1"
    assert row(shown)["client test %"] == "84.8 ± 4.1"
    assert not any(name.endswith("±") for name in shown.columns)


def test_runs_from_before_the_new_fields_are_read(tmp_path):
    new = ("seconds_local", "seconds_aggregation", "seconds_evaluation", "drift", "bytes_up", "bytes_down")
    old = [{k: v for k, v in record(n).items() if k not in new} for n in range(1, 11)]
    table = report(read_runs([write(tmp_path / "a", old, result=None)]))
    assert row(table)["s/round"] == 5.5
    assert all(row(table)[name] is None for name in ("local s", "drift", "GB", "MB up"))
    assert "local s" not in presented(table).columns


def test_runs_that_differ_by_their_seed_are_grouped(tmp_path):
    for seed, last in enumerate((0.70, 0.74, 0.78)):
        records = [record(n) for n in range(1, 10)] + [record(10, test_accuracy=last)]
        write(tmp_path / f"fedavg-seed-{seed}", records, name="fedavg", seed=seed, device=f"cuda:{seed}")
    write(tmp_path / "other", name="fedavg", seed=0, lr=0.3)
    table = report(read_runs(sorted(tmp_path.iterdir())), [0.8], group=True)
    first = row(table)
    assert (first["run"], first["seeds"], first["status"]) == ("fedavg", "0 1 2", "3 finished")
    assert (first["accuracy %"], first["accuracy % ±"]) == pytest.approx((74.0, 4.0))  # sqrt((16 + 0 + 16) / 2)
    assert (first["rounds to 80 %"], first["rounds to 80 % ±"]) == (4, 0)
    assert row(presented(table))["accuracy %"] == "74.0 ± 4.0"
    second = row(table, 1)
    assert (second["run"], second["seeds"], second["accuracy %"], second["accuracy % ±"]) == ("other", "0", 75.0, None)


def test_a_diverged_seed_counts_as_diverged_and_in_no_mean(tmp_path):
    write(tmp_path / "a0", seed=0)
    write(tmp_path / "a1", seed=1)
    write(tmp_path / "a2", [record(1), record(2)], seed=2, result={"status": "diverged", "round": 3, "reason": "x"})
    found = row(report(read_runs(sorted(tmp_path.iterdir())), [0.85, 0.99], group=True))
    assert found["status"] == "2 finished; diverged in round 3"
    assert (found["accuracy %"], found["accuracy % ±"]) == (75.0, 0.0)
    assert (found["rounds to 85 %"], found["rounds to 99 %"], found["GB to 99 %"]) == (6, ">10", None)


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path):
    paths = [write(tmp_path / folder / "fedavg") for folder in ("x", "y")]
    assert [row[0] for row in report(read_runs(paths)).rows] == [str(path) for path in paths]
    assert [row[0] for row in report(read_runs(paths[:1])).rows] == ["fedavg"]


def test_no_runs_are_refused():
    with pytest.raises(FedscapeError, match="give at least one run directory"):
        report([])


def test_a_real_run(tmp_path):
    settings = Settings(clients=6, per_round=2, rounds=2, local_epochs=1, device="cpu")
    done = train(FedAvg(), settings, out=tmp_path / "run")
    found = row(report(read_runs([done.path]), [0.01]))
    assert (found["run"], found["algorithm"], found["status"], found["rounds"]) == ("run", "fedavg", "finished", 2)
    assert found["accuracy %"] == 100 * done.metrics[-1]["test_accuracy"]
    assert found["rounds to 1 %"] == 1
    assert found["MB down"] == found["MB up"] == done.metrics[0]["bytes_up"] / 2 / 1e6
    assert found["GB"] == sum(r["bytes_up"] + r["bytes_down"] for r in done.metrics) / 1e9
