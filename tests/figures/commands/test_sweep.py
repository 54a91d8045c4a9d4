"""``python -m figures sweep``: what is made, kept, resumed, told; the same runs as those of figures; curves of it."""

import csv
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from figures.__main__ import main
from figures.commands.sweep import left
from figures.graph import Store, execute
from figures.graph.cost import Costs, shapes_seconds
from figures.graph.grid import read_grid
from figures.graph.nodes import with_runs
from figures.graph.store import Place
from figures.recipes import PAPERS, Asked
from landscape import FedscapeError
from tests.figures.graph.small import planned
from tests.processes import start_process
from trainers import FedAvg, FedSAM, train
from trainers.algorithm import Algorithm
from trainers.federation.federation import Federation
from trainers.runs import PlannedRun, read_runs

SMALL = """
clients = 4
per-round = 2
local-epochs = 1
save-every = 4
"""
"""The settings of ``tests.figures.graph.small``, but for the rounds."""


@pytest.fixture
def sweep(tmp_path, monkeypatch, capsys):
    """The command on a grid of this text: exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def given(text, *words, name="grid"):
        Path(f"{name}.toml").write_text(SMALL + text, encoding="utf-8")
        code = main(["sweep", f"{name}.toml", "--device", "cpu", "--quiet", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return given


TWO = 'algorithm = ["fedavg", "fedsam"]\nrounds = 2\nrho = 0.1\n'


def test_runs_are_made_listed_logged_and_not_made_again(sweep, tmp_path, monkeypatch):
    code, out, err = sweep(TWO)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "2 runs: 2 missing; logs in sweep/store/logs"
    assert out.splitlines()[1] == "2 runs: 2 made now, 2 finished"
    assert "python -m trainers report sweep/grid.json --group --rows algorithm" in out
    listed = json.loads((tmp_path / "sweep" / "grid.json").read_text())["runs"]
    assert [(run["algorithm"], run.get("rho")) for run in listed] == [("fedavg", None), ("fedsam", 0.1)]
    assert [run.rounds for run in read_runs(tmp_path / "sweep" / run["path"] for run in listed)] == [2, 2]
    for run in listed:
        log = (tmp_path / "sweep" / "store" / "logs" / f"{Path(run['path']).name}.log").read_text()
        assert f"{run['algorithm']} on digits: digits_mlp" in log
        assert "2/2 rounds" in log
    monkeypatch.setattr("trainers.runs.planned.train", None)  # would fail if it were called
    assert sweep(TWO)[1].splitlines()[1] == "2 runs: 0 made now, 2 finished"


def test_a_sweep_finds_the_runs_of_figures_and_figures_those_of_a_sweep(sweep, tmp_path, monkeypatch):
    """The same folder, the same keys: what one has made the other does not train."""
    store, trained = Store(tmp_path / "both" / "store"), "trainers.runs.planned.train"
    by_hand = [planned(algorithm, rounds=2) for algorithm in (FedAvg(), FedSAM(0.1))]
    execute(by_hand[:1], store, Place("cpu"))
    monkeypatch.setattr(trained, lambda algorithm, *rest, **more: _only(FedSAM, algorithm, *rest, **more))
    code, out, _ = sweep(TWO, "--out", "both")
    assert (code, out.splitlines()[1]) == (0, "2 runs: 1 made now, 2 finished")
    monkeypatch.setattr(trained, None)
    outcome = execute(by_hand, store, Place("cpu"))
    assert (outcome.made, outcome.done) == (0, by_hand)


def _only(kind, algorithm, *rest, **more):
    assert isinstance(algorithm, kind), "it was there"
    return train(algorithm, *rest, **more)


def test_runs_of_a_paper_have_the_keys_of_a_grid_with_the_same_options(tmp_path):
    """A figure's runs, asked for as a grid would: from all that config.json would say of each."""
    for paper in PAPERS:
        recipe = next(r for r in paper.recipes.values() if r.content(Asked("smoke")).nodes())
        run = next(n for n in with_runs(recipe.content(Asked("smoke")).nodes()) if isinstance(n, PlannedRun))
        text = [f'algorithm = "{run.content["algorithm"]["name"]}"']
        own = {key: value for key, value in run.content["algorithm"].items() if key != "name"}
        for key, value in {**own, **run.content["settings"]}.items():
            if value is not None:
                text.append(f"{key} = {json.dumps(value)}")
        assert not run.content["parts"]
        (tmp_path / "grid.toml").write_text("\n".join(text))
        assert [each.run.key for each in read_grid(tmp_path / "grid.toml").runs] == [run.key]


def test_dry_run_tells_the_runs_their_states_and_what_is_left_and_makes_nothing(sweep, tmp_path):
    text = 'algorithm = ["fedavg", "fedsam"]\nrounds = [2, 5000]\n'
    store = Store(tmp_path / "sweep" / "store")
    assert sweep(text, "--dry-run")[0] == 0
    assert not store.folder.exists()
    execute([planned(FedAvg(), rounds=2)], store, Place("cpu"))
    half = store.runs.path(planned(FedSAM(), rounds=5000))
    half.mkdir()
    (half / "config.json").write_text(json.dumps({"algorithm": {"name": "fedsam"}, "settings": {}}))
    (half / "metrics.jsonl").write_text("".join(json.dumps({"round": n}) + "\n" for n in range(1, 2501)))
    lines = [line.split() for line in sweep(text, "--dry-run")[1].splitlines()]
    assert lines[0] == ["algorithm", "rounds", "state", "h:min"]
    assert lines[2] == ["fedavg", "2", "finished", "0:00"]
    assert lines[4][:3] == ["fedsam", "2", "missing"]
    assert lines[5][:6] == ["fedsam", "5000", "interrupted,", "2500", "of", "5000"]
    assert " ".join(lines[6]).startswith("4 runs: 1 finished, 1 interrupted, 2 missing;")
    grid = read_grid(tmp_path / "grid.toml")
    whole = shapes_seconds(grid.runs[3].run)
    plain = Costs(Store(tmp_path / "none"))  # not corrected by a run of two rounds
    assert left(grid.runs[3], store, plain) == pytest.approx(whole / 2)
    assert left(grid.runs[0], store, plain) == 0


def test_failed_and_diverged_runs_are_told_and_the_others_go_on(sweep, tmp_path):
    text = 'algorithm = "fedavg"\nrounds = 2\nlr = [1e30, 0.1]\n'
    code, out, err = sweep(text)
    assert code == 3
    assert "2 runs: 2 made now, 1 finished, 1 diverged" in out
    assert err.startswith("diverged: lr 1e+30: in round 1, the ")
    code, out, err = sweep(text)  # it is done, and told again
    assert (code, err.count("diverged:")) == (3, 1)
    assert "0 made now" in out
    code, out, err = sweep('algorithm = "fedavg"\nrounds = 2\ndata = ["no/such.npz", "digits"]\nlr = [1e30, 0.1]\n')
    assert code == 1
    assert "4 runs: 0 made now, 1 finished, 1 diverged, 2 failed" in out
    assert err.count("failed: ") == 2
    assert "no/such.npz, lr 0.1: " in err
    log = next(file for file in (tmp_path / "sweep" / "store" / "logs").iterdir() if str(file) not in out and
               "error:" in file.read_text())  # fmt: skip
    assert "no/such.npz" in log.read_text()
    code, out, _ = sweep('algorithm = "fedavg"\nrounds = 2\ndata = ["no/such.npz", "digits"]\n', "--dry-run")
    assert "1 finished, 1 failed" in out


def test_a_folder_or_list_that_is_not_ours_is_refused(sweep, tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "notes.txt").write_text("mine")
    with pytest.raises(FedscapeError, match=r"the folder holds notes\.txt and nothing of ours"):
        sweep(TWO)


def test_curves_have_the_mean_and_the_band_of_the_seeds(sweep, tmp_path, capsys):
    assert sweep('algorithm = "fedavg"\nrounds = 2\nseed = {from = 0, to = 2}\nlr = [0.1, 0.2]\n')[0] == 0
    words = ["curves", "sweep/grid.json", "--where", "lr=0.1", "--csv", "points.csv", "--out", "curves.svg"]
    stems = {}
    for band in ("deviation", "range"):
        assert main([*words, "--band", band]) == 0
        stems[band] = list(csv.DictReader((tmp_path / "points.csv").open()))
    runs = [
        run
        for run in read_runs((tmp_path / "sweep" / "store" / "runs").iterdir())
        if run.config["settings"]["lr"] == 0.1
    ]
    values = [run.metrics[1]["test_accuracy"] for run in runs]
    (row,) = (r for r in stems["range"] if r["metric"] == "test_accuracy" and r["round"] == "2")
    assert (row["n"], row["curve"]) == ("3", "fedavg")
    assert [float(row[name]) for name in ("low", "mean", "high")] == pytest.approx(
        [min(values), sum(values) / 3, max(values)]
    )
    (row,) = (r for r in stems["deviation"] if r["metric"] == "test_accuracy" and r["round"] == "2")
    mean = sum(values) / 3
    deviation = (sum((value - mean) ** 2 for value in values) / 2) ** 0.5
    assert float(row["high"]) - mean == pytest.approx(deviation)
    picture = (tmp_path / "curves.svg").read_text()
    for said in ("mean over 3 seeds", "from the smallest to the largest", "test accuracy (%)", "test loss"):
        assert said in picture
    assert "left out" not in capsys.readouterr().err


@dataclass(frozen=True)
class DiesOnce(Algorithm):
    """Kills its process in round 3, where the marker file is not there yet."""

    paper = "none"
    marker: str = ""

    def direction(self, w, gradient, client, server, round):
        if self.marker and round.number == 3 and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid(), 9)
        return gradient(w)


def killing(folder):
    """A grid of 24 runs, in two of which a worker is killed."""
    name = f"{DiesOnce.__module__}:DiesOnce"
    return f"""
        algorithm = ["{name}", "fedsam"]
        seed = {{from = 0, to = 2}}
        partition = {{values = [0.1, 10], as = "dirichlet:{{}}"}}
        rounds = 6
        [overrides."{name}"]
        marker = ["{folder}/one", "{folder}/two"]
        [overrides.fedsam]
        rho = [0.05, 0.1]
        """


def records(folder):
    found = {}
    for run in read_runs(sorted(folder.iterdir())):
        found[run.path.name] = [{k: v for k, v in r.items() if not k.startswith("seconds")} for r in run.metrics]
    return found


@pytest.fixture
def grid(tmp_path):
    (tmp_path / "grid.toml").write_text(SMALL + killing(tmp_path))
    assert len(read_grid(tmp_path / "grid.toml").runs) == 24
    return str(tmp_path / "grid.toml")


def plainly(grid, folder):
    """The same grid, one run after another in this process: no worker is killed any more."""
    assert main(["sweep", grid, "--device", "cpu", "--quiet", "--out", str(folder)]) == 0
    return records(folder / "store" / "runs")


@pytest.mark.slow
def test_a_grid_on_ray_ends_complete_though_two_workers_are_killed_with_the_results_of_one_without(
    grid, tmp_path, capfd
):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    ray.init(address="local", num_cpus=2, log_to_driver=False, logging_level="error", include_dashboard=False)
    try:
        assert main(["sweep", grid, "--device", "cpu", "--ray", "local", "--out", str(tmp_path / "ray")]) == 0
    finally:
        ray.shutdown()
    said = capfd.readouterr()
    assert "24 runs: 24 made now, 24 finished" in said.out
    assert all(len(line) <= 80 for line in said.err.splitlines()), said.err
    assert (tmp_path / "one").exists()
    assert (tmp_path / "two").exists()
    assert len(list((tmp_path / "ray" / "store" / "logs").iterdir())) == 24
    found = records(tmp_path / "ray" / "store" / "runs")
    assert len(found) == 24
    assert found == plainly(grid, tmp_path / "plain")


@pytest.mark.slow
def test_a_grid_in_two_processes_ends_complete_though_two_of_them_are_killed(grid, tmp_path):
    assert main(["sweep", grid, "--device", "cpu", "--quiet", "--jobs", "2", "--out", str(tmp_path / "jobs")]) == 0
    assert (tmp_path / "one").exists()
    assert (tmp_path / "two").exists()
    assert records(tmp_path / "jobs" / "store" / "runs") == plainly(grid, tmp_path / "plain")


def begin(grid, out, *more):
    """The command."""
    raise SystemExit(main(["sweep", grid, "--device", "cpu", "--quiet", "--out", out, *more]))


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--jobs", "2"]])
def test_a_sweep_killed_in_the_middle_repeats_no_finished_run(grid, tmp_path, more):
    for name in ("one", "two"):
        (tmp_path / name).touch()  # no worker is killed by itself
    runs = tmp_path / "out" / "store" / "runs"
    command = start_process(begin, grid, str(tmp_path / "out"), *more)
    while command.process.is_alive() and len(list(runs.glob("*/result.json"))) < 9:
        time.sleep(0.002)
    assert command.process.is_alive(), "it was not killed in the middle"
    command.kill()
    ended = {file: file.stat().st_mtime_ns for file in runs.glob("*/result.json")}
    assert 9 <= len(ended) < 24
    last = start_process(begin, grid, str(tmp_path / "out"), *more)
    printed = last.lines.read()
    assert last.wait() == 0, printed
    assert f"24 runs: {24 - len(ended)} made now, 24 finished" in printed
    assert {file: file.stat().st_mtime_ns for file in ended} == ended
    assert records(runs) == plainly(grid, tmp_path / "plain")


def test_an_interrupted_run_of_a_sweep_goes_on_from_its_last_round(sweep, tmp_path, monkeypatch):
    step, rounds = Federation.step, []

    def stopping(federation):
        if federation.round == 2:
            raise KeyboardInterrupt
        return step(federation)

    monkeypatch.setattr(Federation, "step", stopping)
    with pytest.raises(KeyboardInterrupt):
        sweep('algorithm = "fedavg"\nrounds = 4\n')
    monkeypatch.setattr(Federation, "step", lambda federation: rounds.append(federation.round) or step(federation))
    assert sweep('algorithm = "fedavg"\nrounds = 4\n')[0] == 0
    assert rounds in ([1, 2, 3], [2, 3])  # round 1 is always saved, round 2 where that costs little
