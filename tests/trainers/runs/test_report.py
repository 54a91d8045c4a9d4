"""The comparison table against numbers worked out by hand."""

import csv
import json

import pytest

from landscape import FedscapeError
from landscape.terminal.command import run
from landscape.terminal.table import Table
from trainers import FedAvg, Settings, train
from trainers.runs.report import main, presented, read_runs, report

ACCURACIES = {2: 0.5, 4: 0.8, 6: 0.9, 8: 0.85, 10: 0.75}


def record(round: int, **changes):
    """A round of two clients: each receives 2 MB and sends 1 MB."""
    plain = {
        "round": round, "train_loss": 1 / round, "clients": [0, 3], "drift": 0.1 * round, "bytes_down": 4_000_000,
        "bytes_up": 2_000_000, "seconds": 5.0 + round % 2, "seconds_local": 3.0 + round % 2,
        "seconds_aggregation": 0.5, "seconds_evaluation": 1.5,
    }  # fmt: skip
    if round in ACCURACIES:
        plain |= {"test_loss": 0.3 + round / 100, "test_accuracy": ACCURACIES[round]}
    return plain | changes


def write(path, records=None, *, name="scaffold", parts=None, result="finished", **settings):
    path.mkdir(parents=True)
    config = {"algorithm": {"name": name, "server_lr": 1.0}, "settings": {"rounds": 10, "seed": 0, **settings}}
    if parts is not None:
        config["parts"] = parts
    (path / "config.json").write_text(json.dumps(config))
    records = [record(number) for number in range(1, 11)] if records is None else records
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    if isinstance(result, str):
        result = {"status": result, "round": len(records), "reason": None}
    if result:
        (path / "result.json").write_text(json.dumps(result))
    return path


def row(table: Table, number: int = 0):
    return dict(zip(table.columns, table.rows[number], strict=True))


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


def test_the_command_prints_and_writes(tmp_path, capsys):
    a, b = write(tmp_path / "a_1"), write(tmp_path / "b&c", name="fedavg")
    out = {kind: tmp_path / f"table.{kind}" for kind in ("csv", "json", "latex")}
    words = [str(a), str(b), "--targets", "0.8", "0.95", *(w for k, f in out.items() for w in (f"--{k}", str(f)))]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["run", "algorithm", "status", "rounds"]
    assert "rounds to 80 %" in lines[0]
    assert lines[2].split()[:7] == ["a_1", "scaffold", "finished", "10", "75", "90", "0.4"]
    assert lines[-3:] == [f"table: {out[kind]}" for kind in out]
    with out["csv"].open() as file:
        found = list(csv.DictReader(file))
    assert [r["run"] for r in found] == ["a_1", "b&c"]
    assert (found[0]["rounds"], found[0]["rounds to 95 %"], float(found[0]["GB"])) == ("10", ">10", 0.06)
    assert json.loads(out["json"].read_text())["runs"][1]["rounds to 80 %"] == 4
    latex = out["latex"].read_text()
    assert r"a\_1 & scaffold & finished & 10 & 75 & 90" in latex
    assert r"b\&c" in latex
    assert r"rounds to 80 \%" in latex
    assert "$>$10" in latex
    body = latex.splitlines()
    assert body[0].startswith(r"\begin{tabular}{lr")
    assert (body[1], body[3], body[-2], body[-1]) == (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}")
    assert len({line.replace(r"\&", "").count("&") for line in body[2:3] + body[4:-2]}) == 1


def test_latex_escapes_what_latex_reads_as_its_own():
    text = Table(("a\\b", "50 % ± 1"), (("~x^2_{i}", "#1 & $5 < 7"),)).latex()
    assert r"a\textbackslash{}b & 50 \% $\pm$ 1 \\" in text
    assert r"\textasciitilde{}x\textasciicircum{}2\_\{i\} & \#1 \& \$5 $<$ 7 \\" in text


def damage(path, file, text):
    (path / file).write_bytes(text)
    return path


BAD = {
    "no such folder": (lambda p: p / "nowhere", "there is no run directory"),
    "no run": (lambda p: p, "is no run directory: it holds no config.json"),
    "a file": (lambda p: write(p / "r") / "config.json", "is no run directory"),
    "config cut": (lambda p: damage(write(p / "r"), "config.json", b'{"algo'), "config.json is damaged"),
    "config list": (lambda p: damage(write(p / "r"), "config.json", b"[]"), "config.json is damaged: it holds no obj"),
    "config empty": (lambda p: damage(write(p / "r"), "config.json", b"{}"), "config.json is damaged: it has no algo"),
    "config nameless": (
        lambda p: damage(write(p / "r"), "config.json", b'{"algorithm": {}, "settings": {}}'),
        "it does not say which algorithm",
    ),
    "result": (lambda p: damage(write(p / "r"), "result.json", b"3"), "result.json is damaged"),
    "binary": (lambda p: damage(write(p / "r"), "metrics.jsonl", b"\xff\xfe\n{}"), "metrics.jsonl is damaged: it is"),
    "middle": (
        lambda p: damage(write(p / "r"), "metrics.jsonl", b'{"round": 1}\n{"ro\n{"round": 3}\n'),
        "metrics.jsonl is damaged at line 2",
    ),
    "no round": (lambda p: damage(write(p / "r"), "metrics.jsonl", b"{}\n"), "it is no object with a round"),
    "order": (
        lambda p: damage(write(p / "r"), "metrics.jsonl", b'{"round": 2}\n{"round": 2}\n'),
        "round 2 comes after round 2",
    ),
    "word": (
        lambda p: damage(write(p / "r"), "metrics.jsonl", b'{"round": 2, "test_accuracy": "high"}\n'),
        "test_accuracy is no number",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_exit_code_two(case, tmp_path, capsys):
    make, sentence = BAD[case]
    path = make(tmp_path)
    assert run(lambda: main([str(path)])) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert sentence in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give at least one run directory (see python -m trainers report --help)"),
        (["{run}", "--targets", "80"], "the target 80.0 is no accuracy: give a share above 0 and up to 1"),
        (["{run}", "--csv", "{run}"], "cannot write"),
    ],
)
def test_bad_options_are_one_sentence_and_exit_code_two(words, sentence, tmp_path, capsys):
    write(tmp_path / "r")
    assert run(lambda: main([word.format(run=tmp_path / "r") for word in words])) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_a_last_line_cut_short_by_a_kill_is_left_out(tmp_path):
    path = write(tmp_path / "r", [record(1), record(2)], result=None)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "train_lo')
    assert row(report(read_runs([path])))["status"] == "unfinished, 2 of 10"


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
