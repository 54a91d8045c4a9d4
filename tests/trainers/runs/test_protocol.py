"""What keeps runs from being compared as they are, and runs of versions in which algorithms chose weights."""

import json

import pytest

from landscape import FedscapeError
from tests.trainers.runs.recorded import record, write
from trainers import FedAvg, FedDC, FedSAM, MimeLite, Scaffold, Settings, train
from trainers.commands.report import main
from trainers.runs import read_runs
from trainers.runs.earlier import in_todays_terms, recorded_weighting
from trainers.tables import presented, report, warnings

SHORT = {"clients": 4, "per_round": 2, "rounds": 1, "local_steps": 3, "eval_every": 0, "save_every": 0, "device": "cpu"}
NOW = {"weighting": "samples", "aggregation": "ratio", "evaluated_model": "server", "batch_size": 32, "local_epochs": 2}


def test_runs_that_differ_in_objective_or_budget_are_told(tmp_path, capsys):
    counted = [record(n, steps=12, gradients=24) for n in (1, 2)]
    write(tmp_path / "a", [record(n, steps=12, gradients=12) for n in (1, 2)], rounds=2, **NOW)
    write(tmp_path / "b", counted, rounds=2, **{**NOW, "weighting": "uniform", "local_steps": 7})
    write(tmp_path / "c", counted, rounds=2, **{**NOW, "aggregation": "unbiased", "last_batch": "drop"})
    runs = read_runs(tmp_path / name for name in "abc")
    assert warnings(runs) == [
        "the runs differ in client weights: samples (a, c), uniform (b)",
        "the runs differ in aggregation: ratio (a, b), unbiased (c)",
        "the runs differ in batches: 32, last one kept (a, b), 32, last one dropped (c)",
        "the runs differ in local work: 2 epochs (a, c), 7 steps (b)",
        "the runs differ in gradients a step: 1 (a), 2 (b, c)",
    ]
    shown = presented(report(runs)).columns
    assert "client weights" in shown
    assert "evaluated model" not in shown  # all have the same
    assert warnings(runs[:1]) == []
    assert main([str(run.path) for run in runs]) == 0
    assert capsys.readouterr().err.count("warning: the runs differ in") == 5


@pytest.mark.parametrize(("algorithm", "gradients"), [(FedAvg(), 1), (FedSAM(0.1), 2), (MimeLite(), 1)])
def test_steps_and_gradients_are_counted(algorithm, gradients, tmp_path):
    (done,) = train(algorithm, Settings(**SHORT), out=tmp_path).metrics
    assert (done["steps"], done["gradients"]) == (2 * 3, 2 * 3 * gradients)
    (run,) = read_runs([tmp_path])
    assert run.protocol["gradients a step"] == gradients


def test_weights_are_recorded(tmp_path):
    train(FedAvg(), Settings(**{**SHORT, "rounds": 0, "per_round": 1}), out=tmp_path)
    weights = json.loads((tmp_path / "weights.json").read_text())
    assert sum(weights["objective"]) == pytest.approx(1)
    assert weights["expected"] == pytest.approx([0.25] * 4)  # whoever comes alone is the whole mean
    assert weights["difference"] == pytest.approx(sum(abs(p - 0.25) for p in weights["objective"]) / 2)


def begun(path, algorithm, **settings):
    """A run as an earlier version left it: without what it did not record."""
    train(algorithm, Settings(**{**SHORT, "weighting": "uniform"}), out=path)
    config = json.loads((path / "config.json").read_text())
    del config["settings"]["aggregation"]
    config["settings"] |= settings
    if isinstance(algorithm, FedDC):
        config["algorithm"] = {"name": "feddc", "alpha": 0.01, "variant": "paper"}
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("algorithm", "recorded", "sentence"),
    [
        (FedSAM(0.1), {"weighting": "auto"}, "auto, which meant uniform for fedsam: give --weighting uniform"),
        (Scaffold(), {"weighting": "samples"}, "cannot go on with it; start it anew with another --out"),
        (FedDC(), {"weighting": "auto"}, "cannot go on with it"),
        (FedAvg(), {"weighting": "samples", "evaluated_model": "sampled-mean"}, "cannot go on with it"),
        (FedDC(), {"weighting": "uniform"}, "server_correction was sampled and is all"),
    ],
)
def test_a_run_whose_weights_were_others_is_refused(algorithm, recorded, sentence, tmp_path):
    asked = "uniform" if recorded["weighting"] == "uniform" else "samples"
    settings = Settings(**{**SHORT, "rounds": 2, "weighting": asked})
    with pytest.raises(FedscapeError, match=sentence):
        train(algorithm, settings, out=begun(tmp_path / "run", algorithm, **recorded), resume=True)


@pytest.mark.parametrize("recorded", ["auto", "uniform"])
def test_a_run_whose_weights_were_the_same_goes_on(recorded, tmp_path):
    later = Settings(**{**SHORT, "rounds": 2, "weighting": "uniform"})
    whole = train(FedSAM(0.1), later, out=tmp_path / "whole")
    resumed = train(FedSAM(0.1), later, out=begun(tmp_path / "run", FedSAM(0.1), weighting=recorded), resume=True)
    assert resumed.metrics[-1]["train_loss"] == whole.metrics[-1]["train_loss"]


def test_what_auto_meant_is_told_in_comparisons():
    def weighting(name, **settings):
        return recorded_weighting({"algorithm": {"name": name}, "settings": settings})

    assert weighting("fedavg", weighting="auto") == "samples"
    assert weighting("fedgloss", weighting="auto") == "samples (states uniform)"
    assert weighting("mine:Own", weighting="auto") == "auto"
    assert weighting("scaffold", weighting="samples", aggregation="ratio") == "samples"
    assert weighting("fedavg") is None
    with pytest.raises(FedscapeError, match="cannot go on"):
        in_todays_terms({"algorithm": {"name": "mine:Own"}, "settings": {"weighting": "auto"}}, "samples", "run")
