"""The surface is the loss at the points it says, and its command says what it did."""

import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from analysis.source import SurfaceSource
from analysis.surface import Surface, measure_surface
from analysis.surface.__main__ import main
from analysis.surface.options import Effort, Grid, Output, Quantities
from analysis.surface.planes import random_plane
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.storage.files import write_json
from landscape.storage.style import PictureStyle
from landscape.terminal.command import run
from landscape.terminal.progress import Progress
from tests.analysis.surface.test_store import save_checkpoint
from tests.conftest import REPOSITORY

X = torch.tensor([[1.0, 2.0, -1.0], [0.5, -1.0, 3.0], [2.0, 0.0, 1.0], [-1.0, 1.0, 1.0]], dtype=torch.float64)
T = torch.tensor([[1.0], [-2.0], [0.5], [3.0]], dtype=torch.float64)


def bowl() -> Landscape:
    """mean (X w − T)², a quadratic with no symmetry that swapped axes could hide behind."""
    module = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0.3, -0.7, 1.1]], dtype=torch.float64))
    return Landscape(module, (X, T), nn.functional.mse_loss, device="cpu")


def closed_form(function: Landscape, x: float, y: float, seed: int = 0) -> float:
    first, second = random_plane(function, seed).directions.numpy()
    w = np.array([0.3, -0.7, 1.1]) + x * first + y * second
    return float(np.mean((X.numpy() @ w - T.numpy()[:, 0]) ** 2))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("run") / "ckpt.pt")


@pytest.fixture(scope="module")
def small(checkpoint) -> Surface:
    return measure_surface(checkpoint, points=5, samples=100, batch_size=256)


@pytest.mark.parametrize("points", [2, 5, 8])
def test_quadratic_bowl_is_exact_at_every_point(points):
    function = bowl()
    surface = measure_surface(function, points=points, span=2.0, seed=4)
    wanted = [[closed_form(function, x, y, seed=4) for x in surface.x] for y in surface.y]
    np.testing.assert_allclose(surface.loss, wanted, rtol=1e-13)
    assert not np.allclose(surface.loss, surface.loss.T)


def test_loss_j_i_belongs_to_x_i_and_y_j_on_a_grid_that_is_not_square():
    """A peer writes values at wrong coordinates, and another shifts every odd row."""
    surface = measure_surface(bowl(), points=(3, 5))
    assert surface.loss.shape == (5, 3)
    wanted = [[closed_form(bowl(), x, y) for x in surface.x] for y in surface.y]
    np.testing.assert_allclose(surface.loss, wanted, rtol=1e-13)


def test_centre_is_the_loss_at_the_checkpoint(checkpoint, small):
    function = Landscape.from_checkpoint(checkpoint, samples=100)
    assert small.centre == (2, 2)
    assert small.loss[2, 2] == function.value()
    assert small.accuracy[2, 2] == pytest.approx(function.accuracy(), rel=1e-15)


def test_path_checkpoint_and_landscape_give_one_surface(checkpoint, small):
    loaded = measure_surface(Checkpoint.load(checkpoint), points=5, samples=100, batch_size=256)
    own = measure_surface(Landscape.from_checkpoint(checkpoint, samples=100), points=5)
    np.testing.assert_array_equal(loaded.loss, small.loss)
    np.testing.assert_array_equal(own.loss, small.loss)
    assert loaded.provenance == small.provenance
    assert own.provenance.plane == small.provenance.plane


def test_split_and_clients_choose_the_data(checkpoint):
    for options in ({"split": "test"}, {"clients": [1, 3]}):
        surface = measure_surface(checkpoint, points=3, **options)
        function = Landscape.from_checkpoint(checkpoint, **options)
        assert surface.loss[1, 1] == pytest.approx(function.value(), rel=1e-6)
        assert surface.provenance.samples == len(function.data)


def test_landscape_and_global_state_are_as_before():
    function = bowl()
    weights, random = function.weights.clone(), torch.get_rng_state()
    measure_surface(function, points=3)
    assert torch.equal(function.weights, weights)
    assert torch.equal(torch.get_rng_state(), random)


def test_regression_has_no_accuracy(tmp_path):
    surface = measure_surface(bowl(), points=3, store=tmp_path / "s.h5")
    assert surface.accuracy is None
    assert Surface.load(tmp_path / "s.h5").accuracy is None
    assert "accuracy at the centre" not in surface.facts()
    surface.plot(tmp_path / "s.png")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"points": 1}, "1 points along an axis: give 2 to 1000"),
        ({"points": 10**9}, "give 2 to 1000"),
        ({"span": 0.0}, "the span is 0.0: give a number above 0"),
        ({"span": float("nan")}, "the span is nan"),
        ({"span": float("inf")}, "the span is inf"),
        ({"split": "valid"}, "unknown split 'valid'"),
        ({"samples": 3}, "a Landscape brings its data"),
        ({"device": "cpu"}, "a Landscape brings its data"),
    ],
)
def test_bad_arguments_are_told_in_a_sentence(options, sentence):
    with pytest.raises(FedscapeError, match=sentence):
        measure_surface(bowl(), **options)


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_plot_writes_a_picture(small, tmp_path, kind):
    small.plot(tmp_path / f"s.{kind}")
    beginning = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[kind]
    assert (tmp_path / f"s.{kind}").read_bytes().startswith(beginning)


def test_plot_says_what_it_shows(small):
    figure = small.plot()
    loss, accuracy = figure.axes[:2]
    for panel in (loss, accuracy):
        assert panel.get_xlabel() == "step along direction 1 (filter-normalised)"
        assert panel.get_ylabel() == "step along direction 2 (filter-normalised)"
    bars = [axes.get_ylabel() for axes in figure.axes[2:]]
    assert bars == ["mean training loss (cross-entropy, nats)", "training accuracy (%)"]
    title, caption = figure.get_suptitle(), figure.get_supxlabel()
    assert all(word in title for word in ("fedavg", "round 0", "digits_mlp", "digits", "100 training samples"))
    assert all(word in caption for word in ("filter-normalised", "seed 0", "cosine", "5 × 5", "float32"))


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_plot_stands_every_kind_of_values(small, tmp_path):
    nan, shape = np.nan, small.loss.shape
    hole = np.where(np.eye(5) == 1, nan, small.loss)
    steep = np.logspace(-30, 300, 25).reshape(shape)
    zeros = np.where(np.eye(5) == 1, 0.0, steep)
    for loss in (hole, np.full(shape, nan), np.zeros(shape), np.full(shape, 3.0), -small.loss, steep, zeros):
        replace(small, loss=loss).plot(tmp_path / "s.png")
    begun = np.arange(25).reshape(shape) < 20
    figure = replace(small, loss=np.where(begun, hole, nan), measured=begun, computed=begun).plot()
    assert "4 not finite, 5 not measured" in figure.get_supxlabel()
    strange = replace(small.provenance, data="$x^$ {", algorithm="$\\frac$", loss="$a$b$")
    replace(small, provenance=strange).plot(tmp_path / "s.png")


def test_plot_refuses_what_matplotlib_does_not_write(small, tmp_path):
    for name in ("s.doc", "s"):
        with pytest.raises(FedscapeError, match="no kind of picture"):
            small.plot(tmp_path / name)
    with pytest.raises(FedscapeError, match="cannot write"):
        small.plot(tmp_path / "missing" / "s.png")


def test_facts_tell_the_test_data_too(checkpoint):
    surface = measure_surface(checkpoint, points=3, samples=60, test=True)
    facts = surface.facts()
    function = Landscape.from_checkpoint(checkpoint, "test", samples=60)
    assert facts["test loss at the centre"] == f"{function.value():.4g}"
    assert facts["test highest loss"].startswith(f"{surface.test.loss.max():.4g} at (")
    assert "test measured" not in facts


def test_surface_as_json_and_html(small, tmp_path):
    write_json(tmp_path / "s.json", small.to_dict())
    back = json.loads((tmp_path / "s.json").read_text())
    assert back["loss"] == small.loss.tolist()
    assert back["measured"] == [[True] * 5] * 5
    assert back["checkpoint"] == small.provenance.checkpoint
    page = small._repr_html_()
    assert "<table>" in page
    assert "data:image/png;base64," in page
    assert "fedavg" in repr(small)


# The command


def command(*arguments: object) -> int:
    return run(lambda: main([str(argument) for argument in arguments]))


def test_command_measures_draws_and_tells(checkpoint, tmp_path, capsys):
    out, picture, values = tmp_path / "new" / "s.h5", tmp_path / "s.png", tmp_path / "s.json"
    options = ("--points", 5, "--samples", 100, "--out", out, "--plot", picture, "--json", values)
    assert command(checkpoint, *options) == 0
    printed = capsys.readouterr()
    surface = Surface.load(out)
    for words in ("loss at the centre: ", "lowest loss: ", "highest loss: ", "25 of 25 points in ", f"values: {out}"):
        assert words in printed.out
    assert "surface 25/25 points, loss " in printed.err
    assert picture.stat().st_size > 10_000
    assert json.loads(values.read_text())["loss"] == surface.loss.tolist()


def test_command_writes_here_not_into_the_run_and_says_how_to_draw(checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    out, before = tmp_path / "surface.h5", sorted(checkpoint.parent.iterdir())
    assert command(checkpoint, "--points", 2, "--clients", 0, 2, "--split", "train", "--quiet") == 0
    printed = capsys.readouterr()
    assert Surface.load(out).provenance.clients == "0, 2"
    assert sorted(checkpoint.parent.iterdir()) == before
    assert "--plot" in printed.out
    assert "loss at the centre" not in printed.out
    assert printed.err == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.pt"], "there is no file"),
        (["CKPT", "--points", "0"], "give 2 to 1000"),
        (["CKPT", "--points", "many"], "--help"),
        (["CKPT", "--span", "nan"], "the span is nan"),
        (["CKPT", "--split", "valid"], "--help"),
        (["CKPT", "--split", "test", "--clients", "0"], "clients hold training data only"),
        (["CKPT", "--clients", "99"], "there is no client"),
        (["CKPT", "--samples", "0"], "give a number from 1"),
        (["CKPT", "--device", "tpu"], "unknown device"),
        (["CKPT", "--batch-size", "0"], "at least 1"),
        (["CKPT", "--batch-size", "many"], "--batch-size"),
        (["CKPT", "--data", "no.such.module:data"], "cannot import"),
        (["CKPT", "--plot", "s.doc"], "no kind of picture"),
        (["CKPT", "--out", "."], "cannot write .: Is a directory"),
        (["CKPT", "--out", "CKPT", "--fresh"], "was a name forgotten? it ends in .pt, and a surface in .h5"),
        (["CKPT", "--out", "link.h5", "--fresh"], "that file is read, and would be lost"),
        (["CKPT", "--out", "/dev/null/x/s.h5"], "cannot write /dev/null/x/s.h5: Not a directory"),
        (["CKPT", "--out", "x" * 300], "cannot write"),
        (["--exact"], "--help"),
    ],
)
def test_command_tells_bad_input_in_a_sentence(arguments, sentence, checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.h5").symlink_to(checkpoint)
    given = [str(checkpoint) if argument == "CKPT" else argument for argument in arguments]
    if "--out" not in given and given:
        given += ["--out", str(tmp_path / "s.h5")]
    assert command(*given) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err


def test_command_runs_as_a_module_and_has_no_traceback(tmp_path):
    process = subprocess.run(
        [sys.executable, "-m", "analysis.surface", tmp_path / "none.pt"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert process.returncode == 2
    assert process.stderr == f"error: there is no file {tmp_path / 'none.pt'}\n"


def test_help_tells_every_default(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help-all"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    options = sum(len(fields(group)) for group in (Grid, Quantities, Effort, Output, SurfaceSource, PictureStyle))
    assert text.count("(default:") == options


def test_progress_tells_count_fields_and_rate(capsys):
    with Progress("round", 30, done=10, unit="rounds") as progress:
        progress.update(12, loss=0.4321, acc=0.91, absent=None)
    line = capsys.readouterr().err
    assert line.startswith("round 12/30 rounds, loss 0.432, acc 0.91, ")
    assert line.endswith("left\n")
    with Progress("Hessian", unit="HVPs") as progress:
        progress.update(23, error=3e-4)
    assert capsys.readouterr().err.startswith("Hessian 23 HVPs, error 0.0003, ")
    with Progress("round", 30, enabled=False) as progress:
        progress.update(12)
    assert capsys.readouterr().err == ""
