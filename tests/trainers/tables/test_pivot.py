"""Pivots of a grid's runs: means and deviations worked by hand, targets that some seeds do not reach, what is best."""

import csv
import json
import sys

import pytest

from landscape import FedscapeError
from landscape.terminal.table import Best, Table
from tests.trainers.runs.recorded import write
from trainers.commands.report import main
from trainers.runs import read_runs
from trainers.tables.pivot import pivot
from trainers.tables.selection import groups, where


def one(folder, algorithm, seed, accuracies, *, rounds=20, result="finished", **settings):
    """A run with these test accuracies by round; the loss is one minus them."""
    records = [
        {"round": n, "train_loss": 1.0, "test_accuracy": a, "test_loss": 1 - a, "bytes_up": 1e9, "bytes_down": 0}
        for n, a in accuracies.items()
    ]
    ended = {"status": "diverged", "round": 13, "reason": "inf"} if result == "diverged" else result
    return write(folder, records, name=algorithm, result=ended, rounds=rounds, seed=seed, **settings)


@pytest.fixture
def grid(tmp_path):
    """Two algorithms, two partitions, three seeds: worked by hand below."""
    lasts = {
        ("fedavg", "dirichlet:0.1"): (0.70, 0.74, 0.78),
        ("fedavg", "dirichlet:10"): (0.88, 0.89, 0.90),
        ("fedsam", "dirichlet:0.1"): (0.72, 0.75, 0.81),
        ("fedsam", "dirichlet:10"): (0.91, 0.91, 0.91),
    }
    rounds = {
        ("fedavg", "dirichlet:0.1"): (4, 6, None),
        ("fedavg", "dirichlet:10"): (4, 6, 8),
        ("fedsam", "dirichlet:0.1"): (None, None, None),
        ("fedsam", "dirichlet:10"): (5, 5, 5),
    }
    folders = []
    for (algorithm, partition), values in lasts.items():
        for seed, (last, reached) in enumerate(zip(values, rounds[algorithm, partition], strict=True)):
            accuracies = {2: 0.1, **({} if reached is None else {reached: 0.95}), 20: last}
            folder = tmp_path / f"{algorithm}-{partition.replace(':', '')}-{seed}"
            folders.append(one(folder, algorithm, seed, accuracies, partition=partition))
    return folders


def test_means_and_deviations_are_those_worked_by_hand(grid):
    """0.70, 0.74, 0.78: mean 0.74, squares 0.0016 + 0 + 0.0016 over 2: 0.04; 0.72, 0.75, 0.81: 0.76 and √0.0021."""
    found = pivot(read_runs(grid), ["algorithm"], ["partition"], "test_accuracy")
    numbers = {
        (row[0], column[0]): (cell.spread.mean, cell.spread.deviation, cell.spread.n)
        for (row, column), cell in found.cells.items()
    }
    assert numbers["fedavg", "dirichlet:0.1"] == pytest.approx((0.74, 0.04, 3))
    assert numbers["fedsam", "dirichlet:0.1"] == pytest.approx((0.76, 0.0021**0.5, 3))
    assert numbers["fedavg", "dirichlet:10"] == pytest.approx((0.89, 0.01, 3))
    assert numbers["fedsam", "dirichlet:10"] == pytest.approx((0.91, 0.0, 3))
    assert str(found.table()).splitlines() == [
        "algorithm  dirichlet:0.1  dirichlet:10",
        "---------  -------------  ------------",
        "fedavg        74.0 ± 4.0    89.0 ± 1.0",
        "fedsam       *76.0 ± 4.6       *91 ± 0",
    ]
    assert found.notes() == [
        "test accuracy in %, mean ± deviation over 3 seeds (divisor n − 1); * or bold: the best of its column"
    ]


def test_rounds_to_a_target_have_a_mean_only_where_all_seeds_reach_it(grid):
    """4, 6, 8: mean 6, deviation 2; two of three are no mean, none is more than all rounds."""
    found = pivot(read_runs(grid), ["algorithm"], ["partition"], "rounds_to:0.95")
    assert found.table().rows == (
        ("fedavg", "2 of 3 reached it", "6.0 ± 2.0"),
        ("fedsam", ">20", "5 ± 0"),
    )
    assert isinstance(found.table().rows[1][2], Best)  # fewer rounds are better
    listed = [dict(zip(found.listed().columns, row, strict=True)) for row in found.listed().rows]
    assert [(row["reached"], row["n"], row["mean"]) for row in listed] == [
        (2, 3, None),
        (3, 3, 6),
        (0, 3, None),
        (3, 3, 5),
    ]
    assert found.notes()[0].startswith("rounds to 95 % test accuracy, mean ± deviation over 3 seeds (divisor n − 1)")


def test_traffic_to_a_target_is_that_until_the_first_round_that_reaches_it(grid):
    found = pivot(read_runs(grid), ["algorithm"], ["partition"], "gigabytes_to:0.95")
    assert found.table().rows[0][2] == "2 ± 0"  # rounds 2 and the one that reached it are recorded, a gigabyte each


def test_a_single_seed_has_no_deviation_and_different_numbers_of_seeds_are_told(tmp_path):
    runs = [one(tmp_path / f"a{seed}", "fedavg", seed, {20: 0.5 + seed / 10}) for seed in (0, 1)]
    runs.append(one(tmp_path / "b", "fedsam", 0, {20: 0.5}))
    found = pivot(read_runs(runs), ["algorithm"], [], "test_accuracy")
    assert found.table().rows == (("fedavg", "55.0 ± 7.1 (n=2)"), ("fedsam", "50.00 (n=1)"))
    alone = pivot(read_runs(runs[2:]), ["algorithm"], [], "test_loss")
    assert alone.table().rows == (("fedsam", "0.5"),)
    assert alone.notes() == ["test loss, of one seed each"]
    assert not alone.best  # of one there is no best


@pytest.mark.parametrize(
    ("value", "best"), [("test_accuracy", "b"), ("test_loss", "b"), ("train_loss", None), ("bytes_up", None)]
)
def test_the_best_is_the_largest_score_or_the_smallest_loss_and_nothing_where_that_is_unknown(tmp_path, value, best):
    runs = [one(tmp_path / name, name, 0, {20: accuracy}) for name, accuracy in (("a", 0.5), ("b", 0.7))]
    found = {row[0] for row, _ in pivot(read_runs(runs), ["algorithm"], [], value).best}
    assert found == ({"a", "b"} if value == "train_loss" else {best} if best else set())


def test_runs_that_diverged_or_go_on_are_left_out_and_told(tmp_path):
    runs = [
        one(tmp_path / "a", "fedavg", 0, {20: 0.5}),
        one(tmp_path / "b", "fedavg", 1, {12: 0.9}, result="diverged"),
        one(tmp_path / "c", "fedavg", 2, {12: 0.9}, result=None),
    ]
    found = pivot(read_runs(runs), ["algorithm"], [], "test_accuracy")
    assert found.table().rows == (("fedavg", "50.00"),)
    assert found.notes()[1:] == ["fedavg: 1 of 3 runs diverged, left out", "fedavg: 1 of 3 runs unfinished, left out"]
    target = pivot(
        read_runs(runs), ["algorithm"], [], "rounds_to:0.9"
    )  # the diverged run reached it, the first did not
    assert target.table().rows == (("fedavg", "1 of 2 reached it"),)
    assert target.notes()[1] == "fedavg: 1 of 3 runs diverged, counted by what they had reached"


def test_columns_are_in_the_order_of_their_numbers_and_algorithms_in_the_order_given(tmp_path):
    settings = [("z", "dirichlet:10"), ("z", "dirichlet:0.6"), ("a", "iid"), ("a", "dirichlet:0.05")]
    runs = [one(tmp_path / f"{i}", name, 0, {20: 0.5}, partition=spec) for i, (name, spec) in enumerate(settings)]
    table = pivot(read_runs(runs), ["algorithm"], ["partition"], "test_accuracy").table()
    assert table.columns == ("algorithm", "dirichlet:0.05", "dirichlet:0.6", "dirichlet:10", "iid")
    assert table.rows == (("z", None, "50.00", "50.00", None), ("a", "50.00", None, None, "50.00"))
    left = where(read_runs(runs), ["partition=iid"])
    assert [run.path.name for run in left] == ["2"]


def test_alpha_is_dirichlets_unless_an_algorithm_has_one(tmp_path):
    runs = [one(tmp_path / spec[-1], "fedavg", 0, {20: 0.5}, partition=f"dirichlet:0.{spec}") for spec in "16"]
    table = pivot(read_runs(runs), ["algorithm"], ["alpha"], "test_accuracy").table()
    assert table.columns == ("algorithm", "alpha 0.1", "alpha 0.6")
    mixed = one(tmp_path / "mixed", "feddyn", 0, {20: 0.5}, partition="dirichlet:0.1")
    config = json.loads((mixed / "config.json").read_text())
    config["algorithm"]["alpha"] = 0.01
    (mixed / "config.json").write_text(json.dumps(config))
    assert pivot(read_runs([mixed]), ["alpha"], [], "test_accuracy").down == ((0.01,),)
    with pytest.raises(FedscapeError, match="alpha is a hyper-parameter of some of the algorithms and not of others"):
        pivot(read_runs([*runs, mixed]), ["algorithm"], ["alpha"], "test_accuracy")


@pytest.mark.parametrize(
    ("rows", "value", "sentence"),
    [
        (["algorithm"], "test_accuracy", "the runs of fedavg differ in partition: give that to --rows or --columns"),
        (["algoritm"], "test_accuracy", "no run was given an option algoritm: did you mean algorithm?"),
        (["algorithm", "partition"], "test_los", "there is no value test_los: did you mean test_loss?"),
        (["algorithm", "partition"], "rounds_to:80", "the target of rounds_to:80 is no accuracy"),
        (["algorithm", "partition"], "rounds_to:", "the target of rounds_to: is no accuracy"),
    ],
)
def test_what_would_be_no_table_is_refused(grid, rows, value, sentence):
    with pytest.raises(FedscapeError) as error:
        pivot(read_runs(grid), rows, [], value)
    assert str(error.value).startswith(sentence)


def test_a_seed_that_is_there_twice_is_refused(grid):
    with pytest.raises(FedscapeError, match=r"fedavg, dirichlet:0\.1 has seed 0 more than once"):
        pivot(read_runs([*grid, grid[0]]), ["algorithm"], ["partition"], "test_accuracy")
    with pytest.raises(FedscapeError, match="has seed 0 more than once"):
        groups(read_runs([grid[0], grid[0]]))


def test_groups_are_named_by_what_tells_them_apart(tmp_path):
    for i, (name, lr) in enumerate((("fedavg", 0.1), ("fedavg", 0.2), ("fedsam", 0.1))):
        one(tmp_path / f"{i}", name, 0, {20: 0.5}, lr=lr)
    found = groups(read_runs(sorted(tmp_path.iterdir())))
    assert list(found) == ["fedavg, lr 0.1", "fedavg, lr 0.2", "fedsam, lr 0.1"]


def test_the_command_writes_the_table_in_every_form(grid, tmp_path, capsys, monkeypatch):
    out = {kind: tmp_path / f"table.{kind}" for kind in ("csv", "json", "latex", "markdown")}
    words = [*map(str, grid), "--group", "--rows", "algorithm", "--columns", "partition", "--value", "test_loss"]
    assert main([*words, *(w for kind, file in out.items() for w in (f"--{kind}", str(file)))]) == 0
    shown = capsys.readouterr().out
    assert "*0.240 ± 0.046" in shown
    assert "| fedsam | **0.240 ± 0.046** |" in out["markdown"].read_text()
    assert r"fedsam & \textbf{0.240 $\pm$ 0.046} &" in out["latex"].read_text()
    assert "% test loss, mean ± deviation over 3 seeds" in out["latex"].read_text()
    with out["csv"].open() as file:
        rows = {(row["algorithm"], row["partition"]): row for row in csv.DictReader(file)}
    assert float(rows["fedsam", "dirichlet:0.1"]["deviation"]) == pytest.approx(0.0021**0.5)
    assert rows["fedsam", "dirichlet:0.1"]["best"] == "yes"
    assert json.loads(out["json"].read_text())["cells"][0]["n"] == 3
    assert main([*words, "--csv", str(out["csv"]), "--json", str(out["json"])]) == 0  # its own files are replaced
    capsys.readouterr()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert main([*words, "--wide"]) == 0
    assert main(words) == 0
    assert "\033[1m0.240 ± 0.046\033[0m" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--rows", "algorithm"], "--rows is an option of --group: give that too"),
        (["--group", "--value", "drift", "--targets", "0.8"], "--targets and --value do not go together"),
        (["--where", "algorithm"], "--where is 'algorithm': give NAME=VALUE"),
        (["--where", "algorithm=none"], "no run has algorithm=none: there are fedavg, fedsam"),
    ],
)
def test_options_that_do_not_go_together_are_refused(grid, words, sentence):
    with pytest.raises(FedscapeError) as error:
        main([*map(str, grid), *words])
    assert str(error.value).startswith(sentence)


def test_the_list_of_a_grid_stands_for_its_runs_and_says_how_many_are_missing(grid, tmp_path, capsys):
    named = [{"path": folder.name} for folder in grid] + [{"path": "not-yet"}]
    (tmp_path / "grid.json").write_text(json.dumps({"grid": "grid", "runs": named}))
    assert main([str(tmp_path / "grid.json"), "--group", "--rows", "algorithm", "partition"]) == 0
    said = capsys.readouterr()
    assert "74.0 ± 4.0" in said.out
    assert "warning: 1 runs of the grid are not begun" in said.err
    (tmp_path / "grid.json").write_text(json.dumps({"grid": "grid", "runs": [{"path": 3}]}))
    with pytest.raises(FedscapeError, match=r"grid\.json is damaged: runs\[0\]\.path is 3"):
        main([str(tmp_path / "grid.json")])
    (tmp_path / "grid.json").write_text(json.dumps({"grid": "grid", "runs": [{"path": "not-yet"}]}))
    with pytest.raises(FedscapeError, match=r"none of the 1 runs of .* is there: make them with fedscape sweep"):
        main([str(tmp_path / "grid.json")])


def test_bold_cells_keep_the_columns_in_line():
    table = Table(("run", "accuracy", "loss"), (("a", Best("81.25"), 1.0), ("b", "7.5", 2.0)))
    plain = [line.replace("*", " ") for line in str(table).splitlines()]
    bold = table.folded(80, bold=True).replace("\033[1m", "").replace("\033[0m", "").splitlines()
    assert plain == bold
