"""Surfaces of every plane: values are those of a plain evaluation, files can be continued, several models meet."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.surface import Surface, measure_surface
from analysis.surface.__main__ import main
from analysis.surface.directions import Directions
from analysis.surface.plots.lines import plot_lines
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.activations import MAN
from landscape.storage.lock import sole_writer
from landscape.terminal.command import run
from tests.analysis.surface.test_store import assert_same, evaluations, save_checkpoint, stop_after
from tests.processes import python, start_process

__all__ = ["evaluations"]

CHEAP = {"samples": 60, "points": 5, "batch_size": 256}
"""With a size of micro-batches that is not chosen by the clock: values are the same to the last bit."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three models of one network."""
    folder = tmp_path_factory.mktemp("three")
    return [save_checkpoint(folder / f"{name}.pt", seed) for seed, name in enumerate("abc")]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder: rounds that drift, and the last model, with two local models."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "rounds").mkdir()
    last = Checkpoint.load(save_checkpoint(folder / "ckpt.pt"))
    generator = torch.Generator().manual_seed(0)
    drift = {name: torch.randn(p.shape, generator=generator) for name, p in last.parameters.items()}
    for t in range(5):
        parameters = {
            name: p + 0.02 * (4 - t) * drift[name] + 0.01 * np.cos(2 * t) * p for name, p in last.parameters.items()
        }
        kept = replace(last, round=t, parameters=parameters)
        kept.save(folder / "rounds" / f"{t:05d}.pt")
    w = torch.cat([p.reshape(-1) for p in parameters.values()])
    replace(kept, clients={3: w + 0.1, 7: w * 1.2}).save(folder / "ckpt.pt")
    return folder


def command(*arguments: object) -> int:
    return run(lambda: main([str(argument) for argument in arguments]))


def test_three_models_have_their_own_losses_in_their_plane(three):
    surface = measure_surface(three[0], (9, 7), plane="three", others=three[1:], samples=60, test=True)
    assert surface.kind == "three"
    assert surface.loss.shape == surface.test.loss.shape == (7, 9)
    assert [mark.label for mark in surface.marks] == ["fedavg 1", "fedavg 2", "fedavg 3"]
    assert surface.marks[1].y == 0
    for path, mark in zip(three, surface.marks, strict=True):
        assert surface.x[0] < mark.x < surface.x[-1]
        assert surface.y[0] < mark.y < surface.y[-1]
        w = Landscape.from_checkpoint(path).weights
        origin = Landscape.from_checkpoint(three[0]).weights
        assert np.hypot(mark.x, mark.y) == pytest.approx(float((w - origin).norm()), rel=1e-5)
    assert "Garipov" in surface.recipe


def test_test_data_are_measured_in_the_same_pass(three, tmp_path):
    path = tmp_path / "s.h5"
    both = measure_surface(three[0], **CHEAP, test=True, store=path)
    alone = measure_surface(three[0], **CHEAP, split="test")
    np.testing.assert_array_equal(both.test.loss, alone.loss)
    np.testing.assert_array_equal(both.test.accuracy, alone.accuracy)
    assert (both.test.split_word, both.split_word) == ("test", "training")
    again = Surface.load(path)
    assert_same(again, both)
    assert_same(again.test, both.test)
    with pytest.raises(FedscapeError, match="differs in test"):
        measure_surface(three[0], **CHEAP, store=path)


def test_line_between_two_models_ends_in_them(three, tmp_path, capsys):
    out = tmp_path / "line.h5"
    arguments = ["--plane", "line", "--points", 21, "--samples", 60, "--out", out, "--exact", "--quiet"]
    assert command(three[0], three[1], *arguments) == 0
    surface = Surface.load(out)
    assert surface.loss.shape == (1, 21)
    for position, path in enumerate(three[:2]):
        wanted = Landscape.from_checkpoint(path, samples=60).value()
        assert surface.loss[0, np.flatnonzero(surface.x == position)[0]] == pytest.approx(wanted, rel=1e-5)
    inner = (surface.x >= 0) & (surface.x <= 1)
    chord = np.interp(surface.x[inner], [0, 1], [surface.loss[0, surface.x == p][0] for p in (0, 1)])
    height = (surface.loss[0, inner] - chord).max()
    assert f"barrier: {max(height, 0):.4g} at" in capsys.readouterr().out


def test_profiles_along_several_directions_are_lines_of_their_own(three):
    together = measure_surface(three[0], **CHEAP, plane="line", seeds=3, seed=4)
    assert (together.kind, together.loss.shape) == ("profile", (3, 5))
    fewer = measure_surface(three[0], **CHEAP, plane="line", seeds=2, seed=4)
    np.testing.assert_array_equal(fewer.loss, together.loss[:2])
    assert (together.loss[:, 2] == Landscape.from_checkpoint(three[0], samples=60).value()).all()
    figure = together.plot()
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), together.loss.mean(axis=0), rtol=1e-12)
    assert "seed 4; grid 5 points on each of 3 lines" in figure.get_supxlabel().replace("\n", " ")


def test_principal_components_of_a_run(run_folder):
    surface = measure_surface(run_folder / "ckpt.pt", (9, 6), plane="pca", samples=60)
    assert surface.kind == "pca"
    assert surface.trajectory.shape == (5, 2)
    assert [mark.label for mark in surface.marks] == ["round 0", "round 4"]
    assert surface.trajectory[-1] == pytest.approx((0, 0), abs=1e-6)
    assert sum(surface.notes["plane"]["explained"]) > 0.9
    files = [run_folder / "rounds" / f"{t:05d}.pt" for t in range(5)]
    named = measure_surface(files[0], (9, 6), plane="pca", others=files[1:], samples=60)
    np.testing.assert_allclose(np.abs(named.trajectory), np.abs(surface.trajectory), rtol=1e-4, atol=1e-4)


def test_local_models_of_clients_take_part(run_folder):
    path = run_folder / "ckpt.pt"
    surface = measure_surface(path, 5, plane="three", others=[f"{path}@3", f"{path}@7"], samples=60)
    assert [mark.label for mark in surface.marks] == ["fedavg", "client 3", "client 7"]
    d = Landscape.from_checkpoint(path).dimension
    assert surface.marks[1].x == pytest.approx(0.1 * np.sqrt(d), rel=1e-5)
    around = measure_surface(f"{path}@7", 3, samples=60)
    landscape = Landscape.from_checkpoint(path, samples=60)
    assert around.loss[1, 1] == landscape.value(Checkpoint.load(path).clients[7])
    with pytest.raises(FedscapeError, match=r"holds no local model of client 5 \(those it holds: 3, 7\)"):
        measure_surface(f"{path}@5", 3)


def test_hessian_plane_is_found_once_and_kept_beside_the_store(three, tmp_path, monkeypatch, evaluations):
    path = tmp_path / "h.h5"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(7, patch)
        with pytest.raises(KeyboardInterrupt):
            measure_surface(three[0], **CHEAP, plane="hessian", store=path)
    monkeypatch.setattr(Landscape, "hessian", None)  # would fail if it were asked again
    surface = measure_surface(three[0], **CHEAP, plane="hessian", store=path)
    assert len(evaluations) == 25
    assert surface.kind == "hessian"
    assert all("λ = " in label for label in surface.axis_labels)
    with pytest.raises(TypeError):  # other data have another Hessian
        measure_surface(three[0], points=5, samples=61, plane="hessian", store=path)


def test_lines_along_kept_directions(three, tmp_path, capsys):
    """Along the Hessian's eigenvectors, or the same random directions through another model."""
    out, kept = tmp_path / "h.h5", tmp_path / "h.directions.pt"
    plane = measure_surface(three[0], 5, 0.1, samples=60, plane="hessian", store=out, exact=True)
    function = Landscape.from_checkpoint(three[0], samples=60)
    vectors = Directions.load(kept, function.space).vectors
    arguments = ["--plane", "line", "--points", 5, "--span", 0.1, "--samples", 60, "--quiet"]
    line, picture = tmp_path / "l.h5", tmp_path / "l.png"
    assert command(three[0], *arguments, "--directions", kept, "--out", line, "--plot", picture) == 0
    along = Surface.load(line)
    assert (along.kind, along.axis_labels[0]) == ("profile", "distance along eigenvector")
    for k, profile in enumerate((plane.loss[2], plane.loss[:, 2])):
        np.testing.assert_allclose(along.loss[k], profile, rtol=1e-6)
        assert along.loss[k, 4] == pytest.approx(function.value(function.weights + 0.1 * vectors[k]), rel=1e-6)
    legend = [text.get_text() for text in plot_lines([along]).axes[0].get_legend().get_texts()]
    assert [text.partition(", ")[2] for text in legend] == ["eigenvector 1", "eigenvector 2"]
    shared = tmp_path / "d.pt"
    first, second = (
        measure_surface(path, 3, samples=60, plane="line", seeds=3, directions=shared) for path in three[:2]
    )
    assert first.notes["directions"] == second.notes["directions"]
    assert first.loss.shape == second.loss.shape == (3, 3)


def test_checkpoints_share_directions_through_a_file(three, tmp_path, capsys):
    shared, out = tmp_path / "d.pt", tmp_path / "s.h5"
    arguments = ["--points", 3, "--samples", 60, "--directions", shared, "--out", out, "--quiet"]
    assert command(*three[:2], *arguments) == 0
    surfaces = [Surface.load(tmp_path / f"s-{k}.h5") for k in (1, 2)]
    assert surfaces[0].notes["directions"] == surfaces[1].notes["directions"]
    assert surfaces[0].provenance.checkpoint != surfaces[1].provenance.checkpoint
    for path, surface in zip(three, surfaces, strict=False):
        function = Landscape.from_checkpoint(path, samples=60)
        kept = Directions.load(shared, function.space)
        wanted = function.value(function.weights - kept.vectors[0] + kept.vectors[1])
        assert surface.loss[2, 0] == pytest.approx(wanted, rel=1e-6)


def test_interpolated_values_are_told_and_near_the_true_ones(three, tmp_path, capsys):
    arguments = [three[0], "--samples", 60, "--points", 41, "--span", 0.5, "--out", tmp_path / "s.h5"]
    assert command(*arguments, "--tolerance", 0.02) == 0
    printed = capsys.readouterr()
    assert "interpolated: " in printed.out
    assert "error 0." in printed.err
    rough = Surface.load(tmp_path / "s.h5")
    measured = int(rough.computed.sum())
    assert 36 < measured < 41**2 / 3
    assert rough.measured.all()
    assert rough.computed[rough.centre], "the checkpoint's own loss is measured"
    assert 0 < rough.estimated_error <= 0.02
    assert "points, estimated errors: loss " in printed.out
    assert "interpolation: checked at 20 random points: largest error of the loss " in printed.out
    assert " at most" not in printed.out
    assert rough.notes["checks"]["largest"] <= rough.estimated_error == rough.promised_error
    assert rough.to_dict()["estimated_error"] == rough.estimated_error
    assert rough.notes["checks"]["off"]["train_acc"] <= rough.accuracy_spread
    assert command(*arguments, "--exact", "--quiet") == 0
    exact = Surface.load(tmp_path / "s.h5")
    assert exact.computed.all()
    assert exact.estimated_error is None
    assert "checks" not in exact.notes
    np.testing.assert_array_equal(exact.loss[rough.computed], rough.loss[rough.computed])
    assert np.abs(rough.loss / exact.loss - 1).max() <= rough.estimated_error


def test_more_checks_go_on_and_fewer_only_read(three, tmp_path, evaluations):
    options = {"samples": 60, "points": 31, "span": 0.5, "tolerance": 0.05, "store": tmp_path / "s.h5"}
    first = measure_surface(three[0], **options, checks=5)
    count = len(evaluations)
    assert first.notes["checks"]["points"] == 5
    for fewer in ({}, {"checks": 4}):
        again = measure_surface(three[0], **options, **fewer)
        assert len(evaluations) == count
        assert again.notes["checks"]["points"] == 5
    more = measure_surface(three[0], **options, checks=30)
    assert more.notes["checks"]["points"] == 30
    assert count < len(evaluations) <= count + 30


def test_a_tighter_tolerance_goes_on_and_a_looser_one_only_reads(three, tmp_path, evaluations):
    options = {"samples": 60, "points": 31, "span": 0.5, "store": tmp_path / "s.h5"}
    first = measure_surface(three[0], **options, tolerance=0.05)
    count = len(evaluations)
    assert count == first.computed.sum()
    measure_surface(three[0], **options, tolerance=0.1)
    assert len(evaluations) == count
    tighter = measure_surface(three[0], **options, tolerance=5e-4)
    assert tighter.estimated_error <= 5e-4
    assert len(evaluations) == tighter.computed.sum() > count


@pytest.mark.parametrize("stop", [5, 40, 50])
def test_an_adaptive_measurement_that_was_stopped_ends_as_one_that_was_not(three, tmp_path, evaluations, stop):
    options = {"samples": 60, "points": 31, "span": 0.5, "tolerance": 0.02, "batch_size": 32}
    whole = measure_surface(three[0], **options)
    del evaluations[:]
    with pytest.MonkeyPatch.context() as patch:
        stop_after(stop, patch)
        with pytest.raises(KeyboardInterrupt):
            measure_surface(three[0], **options, store=tmp_path / "s.h5")
    part = Surface.load(tmp_path / "s.h5")
    assert part.measured.sum() == stop
    assert np.isnan(part.loss[~part.measured]).all()
    assert_same(measure_surface(three[0], **options, store=tmp_path / "s.h5"), whole)
    assert len(evaluations) == whole.computed.sum()


def test_regularisers_are_measured_and_told(three, tmp_path):
    plain = measure_surface(three[0], **CHEAP)
    surface = measure_surface(three[0], **CHEAP, weight_decay=0.01, penalty=MAN(0.1), store=tmp_path / "s.h5")
    landscape = Landscape.from_checkpoint(three[0], samples=60, penalty=MAN(0.1))
    decay = 0.005 * float(landscape.weights.double().square().sum())
    assert surface.loss[2, 2] == pytest.approx(landscape.value() + decay, rel=1e-6)
    assert (surface.loss > plain.loss).all()
    assert surface.loss_label == "mean training loss + 0.1 MAN + 0.01 ‖w‖²/2 (cross-entropy, nats)"
    with pytest.raises(FedscapeError, match="differs in regulariser"):
        measure_surface(three[0], **CHEAP, store=tmp_path / "s.h5")


def test_a_store_of_other_models_is_refused(three, tmp_path):
    options = {**CHEAP, "plane": "line", "store": tmp_path / "s.h5"}
    measure_surface(three[0], others=[three[1]], **options)
    with pytest.raises(FedscapeError, match=r"differs in others \("):
        measure_surface(three[0], others=[three[2]], **options)


def test_two_processes_on_one_store_refuse_each_other(three, tmp_path):
    path = tmp_path / "s.h5"
    holder = (
        "import sys, pathlib, signal; from landscape.storage.lock import sole_writer\n"
        "with sole_writer(pathlib.Path(sys.argv[1])): print('held', flush=True); signal.pause()"
    )
    holding = start_process(python, holder, path)
    assert holding.lines.readline() == "held\n"
    with pytest.raises(FedscapeError, match=r"process \d+ on host \S+ is writing .*s\.h5: wait until it has ended"):
        measure_surface(three[0], **CHEAP, store=path)
    holding.kill()  # -9: the claim ends with the process
    surface = measure_surface(three[0], **CHEAP, store=path)
    assert surface.computed.all()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["s.h5"]
    with sole_writer(path):  # a finished surface can be read meanwhile
        assert_same(measure_surface(three[0], **CHEAP, store=path), surface)


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ("a", ["--points", 5, "--figure", "relief", "--scale", "linear"]),
        ("ab", ["--points", 5, "--figure", "superimposed", "--labels", "one", "two"]),
        ("abc", ["--points", 5, "--plane", "three", "--test"]),
        ("ab", ["--points", 20, "--plane", "line", "--test"]),
        ("a", ["--points", 20, "--plane", "line", "--seeds", 3]),
        ("a", ["--points", 20, "--plane", "line", "--seeds", 3, "--labels", "ours"]),
        ("a", ["--points", 3, "--labels", "ours"]),
    ],
)
def test_every_kind_is_drawn_and_written(names, options, three, tmp_path, capsys):
    files = [three["abc".index(name)] for name in names]
    picture, page = tmp_path / "s.png", tmp_path / "s.html"
    where = ["--out", tmp_path / "s.h5", "--plot", picture, "--quiet"]
    where += ["--html", page] if (plotly := importlib.util.find_spec("plotly")) else []
    assert command(*files, *options, "--samples", 60, *where) == 0, capsys.readouterr().err
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert not plotly or "<html" in page.read_text()[:500].lower()


def test_paraview_has_files_of_each_checkpoint(three, tmp_path, capsys):
    arguments = ["--points", 3, "--samples", 60, "--out", tmp_path / "s.h5", "--vtk", tmp_path / "s.vts", "--quiet"]
    assert command(*three[:2], *arguments) == 0
    names = {f"s-{k}{end}" for k in (1, 2) for end in (".h5", ".vts", "-models.vtk")}
    assert {file.name for file in tmp_path.iterdir()} == names
    assert f"VTK: {tmp_path / 's-2.vts'}, the models: {tmp_path / 's-2-models.vtk'}" in capsys.readouterr().out


def test_paraview_has_the_models_and_the_trajectory_beside_the_surface(run_folder, tmp_path):
    arguments = ["--plane", "pca", "--points", 4, "--samples", 60, "--out", tmp_path / "s.h5", "--quiet"]
    assert command(run_folder / "ckpt.pt", *arguments, "--vtk", tmp_path / "s.vtk") == 0
    surface, lines = Surface.load(tmp_path / "s.h5"), (tmp_path / "s-models.vtk").read_text().splitlines()
    points = np.array([line.split() for line in lines[5 : 5 + 7]], float)
    marks = [(mark.x, mark.y) for mark in surface.marks]
    np.testing.assert_array_equal(points[:, :2], np.concatenate([marks, surface.trajectory]))
    assert "LINES 1 6" in lines


def test_json_has_the_test_data_the_mask_and_the_errors(three, tmp_path):
    values = tmp_path / "s.json"
    out = ["--out", tmp_path / "s.h5", "--json", values, "--quiet"]
    assert command(three[0], "--points", 3, "--samples", 60, "--test", *out) == 0
    found = json.loads(values.read_text())
    assert found["computed"] == [[True] * 3] * 3
    assert found["error"] == [[0.0] * 3] * 3
    assert found["test"]["split"] == "test"
    assert found["test"]["loss_stderr"][1][1] > 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["A", "--plane", "three"], "1 checkpoints are given: the plane 'three' goes through 3"),
        (["A", "B", "C", "--plane", "line"], "3 checkpoints are given: the plane 'line' goes through 1 or 2"),
        (["A", "A", "B", "--plane", "three"], "lie on one line"),
        (["A", "A", "--plane", "line"], "the two models are the same"),
        (["A", "B", "--plane", "pca"], "2 models are given: principal components need at least 3"),
        (["A", "--plane", "pca"], "lies beside no rounds/*.pt"),
        (["A", "B", "C", "--plane", "three", "--directions", "d.pt"], "leave out the file of directions"),
        (["A", "--tolerance", "0"], "the tolerance is 0.0"),
        (["A", "--checks", "0"], "the number of checks is 0"),
        (["A", "--test", "--split", "test"], "the test data are measured already"),
        (["A", "--weight-decay", "-1"], "the weight decay is -1.0"),
        (["A", "--man", "-1"], "MAN's ζ is -1.0"),
        (["A", "--batchnorm", "interpolated"], "take frozen or recalculated"),
        (["A", "--plane", "line", "--seeds", "0"], "0 profiles are asked for"),
        (["A", "--points", "3", "4", "5"], "3 numbers of points"),
        (["A", "--directions", "A"], "that file is read, and would be lost"),
        (["A", "--html", "s.png"], "is no name of a page"),
        (["A", "--vtk", "t.vtk", "--json", "t-models.vtk"], "was a name forgotten? it ends in .vtk"),
        (["A", "--vtk", "s.png"], "is no kind of VTK file"),
        (["A", "B", "--labels", "x"], "--labels gives 1 names: give 2, one for each surface"),
        (
            ["A", "--plane", "line", "--seeds", "2", "--labels", "x", "y"],
            "give one, as the plane is one surface",
        ),
        (["A", "B", "--plane", "line", "--labels", "x", "y"], "gives 2 names: give one"),
        (["A", "--plot", "s.png", "--figure", "superimposed"], "give two or more"),
        (["A", "--plot", "s.png", "--figure", "line"], "a plane is no line"),
        (["A", "--plot", "s.png", "--plane", "line", "--figure", "relief"], "cannot be drawn as 'relief'"),
        (["A@1"], "holds no local model of client 1 (those it holds: none: train with --save-clients)"),
    ],
)
def test_what_makes_no_plane_is_told_in_a_sentence(arguments, sentence, three, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = dict(zip("ABC", map(str, three), strict=True)) | {"A@1": f"{three[0]}@1"}
    given = [names.get(argument, argument) for argument in arguments]
    points = [] if "--points" in given else ["--points", "3"]
    assert command(*given, *points, "--samples", 60, "--out", tmp_path / "s.h5", "--quiet") == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err
    assert not (tmp_path / "s.h5").exists(), "told before anything is measured"
