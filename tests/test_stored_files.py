"""Files that an earlier version wrote open for ever and say what they said: ``tests/stored/YEAR-MONTH`` each.

A later change of a format adds a folder beside them and leaves these as they are.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from analysis import HessianReport, Surface, measure_hessian
from analysis.hessian.__main__ import main as hessian
from analysis.surface.__main__ import main as surface
from landscape import Checkpoint, FedscapeError, Landscape, Partition
from tests.conftest import REPOSITORY
from trainers.__main__ import main as trainers
from trainers.runs.records import read_runs

STORED = REPOSITORY / "tests" / "stored"
VERSIONS = sorted(path for path in STORED.iterdir() if path.is_dir())
CLOSE = 1e-5
"""Of a float32 loss of the same arithmetic on another CPU."""
TRAINED = 1e-3
"""Of a loss after some rounds of training: rounding grows on the way."""


def read(file: Path):
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def stored(request, tmp_path):
    """A copy of what one version wrote, because commands write beside it."""
    return Path(shutil.copytree(request.param, tmp_path / "stored"))


def checkpoints(stored: Path) -> list[Path]:
    found = [*stored.glob("*/ckpt.pt"), *stored.glob("*/swa.pt"), *stored.glob("*/rounds/*.pt")]
    assert len(found) == 7
    return found


def test_checkpoints_give_the_loss_they_recorded(stored):
    for file in checkpoints(stored):
        checkpoint = Checkpoint.verify(file)
        here = Landscape.from_checkpoint(file, "test", device="cpu").evaluate()
        assert here.accuracy is not None
        if "test_loss" in checkpoint.metrics:
            assert here.loss == pytest.approx(checkpoint.metrics["test_loss"], rel=CLOSE), file
            assert here.accuracy == pytest.approx(checkpoint.metrics["test_accuracy"], abs=0.01), file


def test_clients_data_and_local_models_are_in_them(stored):
    checkpoint = Checkpoint.load(stored / "scaffold" / "ckpt.pt")
    (client,) = checkpoint.clients
    around = Landscape.from_checkpoint(checkpoint, clients=[client], device="cpu")
    partition = Partition.load(stored / "scaffold" / "partition.npz")
    assert around.samples == len(partition.clients[client])
    assert checkpoint.clients[client].shape == around.weights.shape


def test_a_run_goes_on_as_it_would_have_then(stored, capsys):
    config, rounds = read(stored / "scaffold" / "config.json"), read(stored / "expected.json")["resumed rounds"]
    settings = config["settings"]
    asked = [f"--{name.replace('_', '-')}={settings[name]}" for name in ("clients", "per_round", "partition")]
    saved = ["--save-every", "1", "--save-clients", "--rounds", str(len(rounds)), "--device", "cpu"]
    line = ["scaffold", *asked, *saved, "--quiet", "--resume", "--out", str(stored / "scaffold")]
    with pytest.raises(FedscapeError, match=r"auto, which meant uniform for scaffold: give --weighting uniform"):
        trainers(line)
    assert trainers([*line, "--weighting", "uniform"]) == 0
    lines = (stored / "scaffold" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    for found, wanted in zip(map(json.loads, lines), rounds, strict=True):
        assert found["clients"] == wanted["clients"]
        for name in ("train_loss", "test_loss"):
            assert found[name] == pytest.approx(wanted[name], rel=TRAINED), (found["round"], name)


def test_runs_are_reported(stored, capsys):
    runs = read_runs([stored / "scaffold", stored / "mixed"])
    assert [(run.rounds, run.status) for run in runs] == [(2, "finished"), (4, "finished")]
    assert trainers(["report", str(stored / "scaffold"), str(stored / "mixed")]) == 0
    assert "scaffold" in capsys.readouterr().out


def test_a_hessian_report_is_read_and_measured_again_the_same(stored, capsys):
    numbers = read(stored / "hessian.json")
    report = HessianReport.from_dict(numbers)
    assert report.density is not None
    assert report.trace.value == numbers["trace"]["value"]
    assert hessian(["--replot", str(stored / "hessian.json"), "--quiet"]) == 0
    again = measure_hessian(stored / "scaffold" / "ckpt.pt", top=5, device="cpu")
    assert again.loss == pytest.approx(report.loss, rel=CLOSE)
    np.testing.assert_allclose(again.eigen.values, report.eigen.values, rtol=2e-3)  # twice the tolerance asked for
    within = 4 * (again.trace.stderr + report.trace.stderr)
    assert again.trace.value == pytest.approx(report.trace.value, abs=within)


@pytest.mark.parametrize("name", ["random", "pca"])
def test_a_surface_is_what_it_was(stored, name):
    there, numbers = Surface.load(stored / f"{name}.h5"), read(stored / f"{name}.json")
    np.testing.assert_array_equal(there.loss, np.array(numbers["loss"]))
    assert there.measured.all()
    assert there.plot().axes
    assert (there.promised_error is None) == (name == "random")


def command(stored: Path, file: str, *more: str) -> list[str]:
    return [str(stored / "scaffold" / "ckpt.pt"), "--out", str(stored / file), "--quiet", "--device", "cpu", *more]


def test_a_finished_surface_is_not_measured_again(stored, capsys, monkeypatch):
    monkeypatch.setattr("analysis.surface.points.Points.measure", lambda *_: pytest.fail("it measured"))
    directions = str(stored / "random.directions.pt")
    assert surface(command(stored, "random.h5", "--points", "5", "--test", "--directions", directions)) == 0


def test_kept_directions_give_the_same_surface_again(stored, capsys):
    """The directions and their normalisation are in the file; the losses are those of then."""
    directions = str(stored / "random.directions.pt")
    assert surface(command(stored, "anew.h5", "--points", "5", "--directions", directions)) == 0
    np.testing.assert_allclose(
        Surface.load(stored / "anew.h5").loss, Surface.load(stored / "random.h5").loss, rtol=CLOSE
    )


def test_a_surface_that_was_stopped_goes_on(stored, capsys):
    before = Surface.load(stored / "stopped.h5")
    assert 0 < before.measured.sum() < before.measured.size
    assert surface(command(stored, "stopped.h5", "--points", "17", "--seed", "3", "--tolerance", "0.02")) == 0
    after = Surface.load(stored / "stopped.h5")
    np.testing.assert_array_equal(after.loss[before.measured], before.loss[before.measured])
    assert after.measured.all()
    # Which points are measured next may differ, and interpolated ones are known to the tolerance on both sides.
    wanted = np.array(read(stored / "expected.json")["stopped surface, finished: loss"])
    np.testing.assert_allclose(after.loss, wanted, rtol=0.04)
