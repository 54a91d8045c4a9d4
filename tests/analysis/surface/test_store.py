"""The surface's file: loss-landscape reads it, a kill spoils nothing, and nothing is mixed up."""

import signal
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from analysis.surface import Surface, measure_surface
from analysis.surface.provenance import Provenance, client_ranges
from analysis.surface.store import SurfaceStore
from landscape import Checkpoint, FedscapeError, Landscape, build_model, load_dataset, make_partition
from landscape.evaluation import Evaluator
from tests.processes import python, run_process


def save_checkpoint(path: Path, seed: int = 0) -> Path:
    dataset = load_dataset("digits")
    kwargs = {"input_shape": list(dataset.input_shape), "classes": dataset.classes}
    module = build_model("digits_mlp", seed=seed, **kwargs)
    partition = make_partition("iid", dataset.train.targets.numpy(), 4, 0)
    recipe = {"spec": "iid", "clients": 4, "digest": partition.digest()}
    Checkpoint(
        model={"name": "digits_mlp", "kwargs": kwargs},
        data={"name": "digits", "kwargs": {}, "partition": recipe, "seed": 0},
        algorithm={"name": "fedavg"},
        round=0,
        seed=seed,
        parameters={name: parameter.detach() for name, parameter in module.named_parameters()},
        buffers={},
    ).save(path)
    return path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path / "ckpt.pt")


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each evaluation of a landscape."""
    calls: list[int] = []
    evaluate = Evaluator.__call__

    def counted(self, w, **options):
        calls.append(1)
        return evaluate(self, w, **options)

    monkeypatch.setattr(Evaluator, "__call__", counted)
    return calls


def stop_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate, calls = Evaluator.__call__, []

    def interrupted(self, w, **options):
        calls.append(1)
        if len(calls) > count:
            raise KeyboardInterrupt
        return evaluate(self, w, **options)

    monkeypatch.setattr(Evaluator, "__call__", interrupted)


def assert_same(a: Surface, b: Surface) -> None:
    for name in ("x", "y", "loss", "accuracy", "measured", "computed", "error", "loss_stderr"):
        assert getattr(a, name).tobytes() == getattr(b, name).tobytes(), name


NAMES = ("train_loss", "train_acc")


def provenance(**changes) -> Provenance:
    values = {
        "model": "m", "data": "d", "algorithm": "a", "round": 3, "checkpoint": "c" * 64, "plane": "p" * 64,
        "normalisation": "filter", "seed": 0, "span": 1.0, "points": 3, "split": "train", "samples": 10,
        "clients": "all", "samples_digest": "s" * 64, "loss": "cross_entropy", "dtype": "float32",
    }  # fmt: skip
    return Provenance(**{**values, **changes})


def test_file_is_laid_out_as_loss_landscapes_plotters_read_it(tmp_path, checkpoint):
    path = tmp_path / "s.h5"
    surface = measure_surface(checkpoint, points=3, samples=100, store=path)
    with h5py.File(path, "r") as f:
        x, y = np.array(f["xcoordinates"][:]), np.array(f["ycoordinates"][:])
        grid_x, grid_y = np.meshgrid(x, y)
        z, errors = np.array(f["train_loss"][:]), 100 - np.array(f["train_acc"][:])
        done = f["done"][()]
        attributes = dict(f.attrs)
    assert grid_x.shape == grid_y.shape == z.shape == errors.shape == done.shape == (3, 3)
    np.testing.assert_array_equal(z, surface.loss)
    np.testing.assert_allclose(errors, 100 * (1 - surface.accuracy))
    assert done.dtype == np.uint8
    assert (done == 1).all()
    assert attributes["format"] == "fedscape-surface/2"
    names = {"checkpoint", "plane", "seed", "span", "normalisation", "split", "samples", "clients", "dtype", "versions"}
    assert (names | {"model", "data", "algorithm"}) <= attributes.keys()


def test_resumed_quantities_are_in_the_order_of_a_new_measurement(tmp_path):
    """The file has them by the alphabet; interpolated together in another order, their last bits would differ."""
    path, names = tmp_path / "s.h5", ["train_loss", "train_loss_stderr", "train_acc"]
    first = SurfaceStore(np.arange(3.0), np.arange(3.0), provenance(), names, path=path, notes={"batch_size": {}})
    first.put(0, 0, {"train_loss": 1.0, "train_loss_stderr": 2.0, "train_acc": 3.0})
    first.save()
    resumed = SurfaceStore(np.arange(3.0), np.arange(3.0), provenance(), names, path=path)
    resumed.resume()
    assert list(resumed.values) == names
    assert [resumed.values[name][0, 0] for name in names] == [1, 2, 3]


def test_rows_belong_to_y_on_a_grid_that_is_not_square(tmp_path):
    """A peer allocates [nx, ny] and fills it as [ny, nx]: right on square grids only."""
    path = tmp_path / "s.h5"
    store = SurfaceStore(np.arange(3.0), np.arange(5.0), provenance(split="test"), ["test_loss"], path=path)
    for j in range(5):
        for i in range(3):
            store.put(j, i, {"test_loss": 10 * store.x[i] + store.y[j]})
    store.save()
    with h5py.File(path, "r") as f:
        grid_x, grid_y = np.meshgrid(f["xcoordinates"][:], f["ycoordinates"][:])
        np.testing.assert_array_equal(f["test_loss"][:], 10 * grid_x + grid_y)
        for name in ("test_loss", "done", "error"):
            scales = [dimension[0].name for dimension in f[name].dims]
            assert scales == ["/ycoordinates", "/xcoordinates"], "the axes that xarray and netCDF's tools name"


def test_points_not_measured_are_marked_by_the_mask_and_by_no_value(tmp_path):
    """A peer marks them with -1 and takes a loss of 0 or less for a point not measured."""
    path = tmp_path / "s.h5"
    store = SurfaceStore(np.arange(3.0), np.arange(3.0), provenance(), NAMES, path=path)
    for j, i, loss in ((0, 0, 0.0), (0, 1, -1.0), (0, 2, float("nan")), (1, 0, float("inf"))):
        store.put(j, i, {"train_loss": loss, "train_acc": 50.0})
    store.save()
    again = SurfaceStore.read(path)
    assert again.done.sum() == 4
    loss = again.values["train_loss"]
    np.testing.assert_array_equal(loss[0], [0.0, -1.0, np.nan])
    assert loss[1, 0] == np.inf
    assert np.isnan(loss[~again.done]).all()


def measure_in_two_parts(function: Landscape, first: int, path: Path, evaluations: list[int], **options) -> Surface:
    """Stopped after ``first`` points and resumed; every point must be measured once."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(first, patch)
        with pytest.raises(KeyboardInterrupt):
            measure_surface(function, points=5, store=path, **options)
    assert len(evaluations) == first
    surface = measure_surface(function, points=5, store=path, **options)
    assert len(evaluations) == 25
    measure_surface(function, points=5, store=path, **options)
    assert len(evaluations) == 25
    return surface


def test_loss_of_exactly_zero_is_not_measured_again(tmp_path, evaluations):
    data = torch.randn(4, 2), torch.zeros(4, 1)
    flat = Landscape(torch.nn.Linear(2, 1), data, lambda outputs, _: 0 * outputs.sum(), device="cpu")
    surface = measure_in_two_parts(flat, 10, tmp_path / "s.h5", evaluations)
    assert (surface.loss == 0).all()


def test_loss_that_is_not_finite_is_kept_and_not_measured_again(tmp_path, evaluations):
    torch.manual_seed(0)
    data = torch.ones(4, 2), torch.zeros(4, 1)
    cliff = Landscape(torch.nn.Linear(2, 1), data, lambda outputs, _: outputs.mean().log(), device="cpu")
    surface = measure_in_two_parts(cliff, 20, tmp_path / "s.h5", evaluations, span=5.0)
    assert 0 < surface.not_finite < 25
    assert not np.isfinite(surface.loss[:4]).all(), "some of them must be in the first part"
    assert surface.measured.all()


def test_finished_file_is_only_read(tmp_path, checkpoint, evaluations):
    path = tmp_path / "s.h5"
    surface = measure_surface(checkpoint, points=3, samples=100, store=path)
    before = path.read_bytes()
    again = measure_surface(checkpoint, points=3, samples=100, store=path)
    assert_same(surface, again)
    assert again.seconds == surface.seconds
    assert len(evaluations) == 9
    assert path.read_bytes() == before


def test_interrupted_measurement_goes_on_where_it_was(tmp_path, checkpoint, evaluations):
    path = tmp_path / "s.h5"
    options = {"points": 5, "samples": 100, "batch_size": 64}
    whole = measure_surface(checkpoint, **options)
    with pytest.MonkeyPatch.context() as patch:
        stop_after(7, patch)
        with pytest.raises(KeyboardInterrupt):
            measure_surface(checkpoint, **options, store=path)
    part = Surface.load(path)
    assert part.measured.sum() == 7
    del evaluations[:]
    assert_same(measure_surface(checkpoint, **options, store=path), whole)
    assert len(evaluations) == 18


DEADLY = """
import itertools, os, signal, sys, types
import torch
import analysis.surface.store
from analysis.surface import measure_surface
from landscape.evaluation import Evaluator

checkpoint, path, name, count, points = sys.argv[1:]
owner = Evaluator if name == "__call__" else os
original, calls = getattr(owner, name), itertools.count(1)

def deadly(*arguments, **options):
    if next(calls) == int(count):
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments, **options)

setattr(owner, name, deadly)
# writes every 20 points or so
analysis.surface.store.time = types.SimpleNamespace(monotonic=itertools.count().__next__)
torch.set_num_threads(1)
measure_surface(checkpoint, points=int(points), store=path)
"""


@pytest.mark.parametrize(
    ("name", "count", "points"),
    [
        pytest.param("__call__", 137, 15, id="while a point is measured"),
        pytest.param("fsync", 5, 15, id="while the file is written", marks=pytest.mark.slow),
        pytest.param("replace", 5, 15, id="before the new file takes the old one's place", marks=pytest.mark.slow),
        pytest.param("__call__", 62, 31, id="while points are chosen"),
    ],
)
def test_killed_measurement_goes_on_bit_for_bit(tmp_path, checkpoint, evaluations, name, count, points):
    path = tmp_path / "s.h5"
    status, printed = run_process(python, DEADLY, checkpoint, path, name, count, points)
    assert status == -signal.SIGKILL, printed
    done = int(Surface.load(path).measured.sum())
    assert 40 < done < 137
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        resumed = measure_surface(checkpoint, points=points, store=path)
        assert len(evaluations) == resumed.computed.sum() - done
        assert resumed.computed.all() == (points == 15)
        assert_same(resumed, measure_surface(checkpoint, points=points))
    finally:
        torch.set_num_threads(threads)
    assert_same(Surface.load(path), resumed)


def test_results_do_not_depend_on_the_clock_unless_asked_for(tmp_path, checkpoint, monkeypatch):
    monkeypatch.setattr(Evaluator, "_seconds_per_sample", lambda self, data, size: 1 / size if size < 100 else 1.0)
    options = {"points": 3, "store": tmp_path / "s.h5"}
    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "tune", None)  # would fail if it were asked
        plain = measure_surface(checkpoint, **options)
    assert plain.notes["batch_size"] == {"train": 1024}
    assert plain.notes["batch_size_chosen"] == "by shape"
    timed = measure_surface(checkpoint, **options, batch_size="auto", resume=False)
    assert timed.notes["batch_size"] == {"train": 64}
    assert timed.notes["batch_size_chosen"] == "by time"
    given = measure_surface(checkpoint, **options, batch_size=64, resume=False)
    assert given.notes["batch_size_chosen"] == "given"
    assert_same(given, timed)
    np.testing.assert_allclose(plain.loss, timed.loss, rtol=1e-5)
    with pytest.raises(FedscapeError, match="is 'fast': give a number, or auto"):
        measure_surface(checkpoint, points=3, batch_size="fast")


def test_micro_batches_of_a_measurement_that_goes_on_are_those_it_had(tmp_path, checkpoint):
    options = {"points": 5, "samples": 100}
    with pytest.MonkeyPatch.context() as patch:
        stop_after(7, patch)
        patch.setattr(Evaluator, "_seconds_per_sample", lambda self, data, size: abs(size - 32) + 1.0)
        with pytest.raises(KeyboardInterrupt):
            measure_surface(checkpoint, **options, batch_size="auto", store=tmp_path / "s.h5")
    resumed = measure_surface(checkpoint, **options, store=tmp_path / "s.h5")
    assert resumed.notes["batch_size"] == {"train": 32}
    assert resumed.notes["batch_size_chosen"] == "by time"
    assert_same(resumed, measure_surface(checkpoint, **options, batch_size=32))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, r"seed \(0 there, 1 here\)"),
        ({"span": 0.5}, r"span \(1.0 there, 0.5 here\)"),
        ({"points": 5}, r"points \(3 there, 5 here\)"),
        ({"split": "test"}, r"split \(train there, test here\)"),
        ({"samples": 99}, r"samples \(100 there, 99 here\)"),
        ({"samples": None, "clients": [0, 2, 3]}, r"clients \(all there, 0, 2-3 here\)"),
        ({"dtype": "float64"}, r"dtype \(float32 there, float64 here\)"),
    ],
)
def test_file_of_another_surface_is_refused_and_left_alone(tmp_path, checkpoint, changes, named):
    path = tmp_path / "s.h5"
    options = {"points": 3, "samples": 100, "store": path}
    measure_surface(checkpoint, **options)
    before = path.read_bytes()
    with pytest.raises(FedscapeError, match=f"holds another surface, which differs in .*{named}.*give another --out"):
        measure_surface(checkpoint, **{**options, **changes})
    assert path.read_bytes() == before


def test_file_of_another_checkpoint_is_refused(tmp_path, checkpoint):
    measure_surface(checkpoint, points=3, samples=100, store=tmp_path / "s.h5")
    other = save_checkpoint(tmp_path / "other.pt", seed=1)
    with pytest.raises(FedscapeError, match=r"differs in checkpoint \(\w{12}… there, \w{12}… here\): "):
        measure_surface(other, points=3, samples=100, store=tmp_path / "s.h5")


def test_file_of_other_data_is_refused(tmp_path):
    torch.manual_seed(0)
    module, inputs = torch.nn.Linear(2, 3), torch.randn(4, 2)
    labels = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 2, 1])
    measure_surface(Landscape(module, (inputs, labels[0]), device="cpu"), points=3, store=tmp_path / "s.h5")
    with pytest.raises(FedscapeError, match="differs in samples digest"):
        measure_surface(Landscape(module, (inputs, labels[1]), device="cpu"), points=3, store=tmp_path / "s.h5")


def test_measuring_anew_replaces_another_surface(tmp_path, checkpoint):
    path = tmp_path / "s.h5"
    measure_surface(checkpoint, points=3, samples=100, store=path)
    anew = measure_surface(checkpoint, points=3, samples=100, seed=1, store=path, resume=False)
    assert_same(Surface.load(path), anew)


@pytest.mark.parametrize("resume", [True, False])
def test_file_that_is_no_surface_is_never_overwritten(tmp_path, checkpoint, resume):
    foreign = tmp_path / "foreign.h5"
    with h5py.File(foreign, "w") as f:
        f["xcoordinates"] = np.zeros(3)
    for path in (checkpoint, foreign):
        before = path.read_bytes()
        with pytest.raises(FedscapeError, match="is not a surface of Fedscape's"):
            measure_surface(checkpoint, points=3, samples=100, store=path, resume=resume)
        assert path.read_bytes() == before


def test_damaged_file_is_refused(tmp_path, checkpoint):
    """Wherever the damage is: HDF5's own reader would crash, or read other values."""
    path = tmp_path / "s.h5"
    measure_surface(checkpoint, points=3, samples=100, store=path)
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for position in random.integers(512, len(whole), size=200):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(FedscapeError, match="is damaged or was changed: give another --out"):
            SurfaceStore.read(path)
    for size in (0, 10, 100, 512, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(FedscapeError, match=r"is damaged|is not a surface"):
            measure_surface(checkpoint, points=3, samples=100, store=path)


def test_missing_file_and_directory_cannot_be_read(tmp_path):
    with pytest.raises(FedscapeError, match="there is no file"):
        Surface.load(tmp_path / "none.h5")
    with pytest.raises(FedscapeError, match="cannot read"):
        Surface.load(tmp_path)


def test_place_that_cannot_be_written_is_told_before_the_work(tmp_path, checkpoint, evaluations):
    with pytest.raises(FedscapeError, match="cannot write"):
        measure_surface(checkpoint, points=3, samples=100, store=tmp_path / "missing" / "s.h5")
    assert not evaluations


def test_huge_seed_survives_the_file(tmp_path):
    store = SurfaceStore(
        np.arange(3.0), np.arange(3.0), provenance(seed=10**30, round=None), NAMES, path=tmp_path / "s.h5"
    )
    store.save()
    assert SurfaceStore.read(tmp_path / "s.h5").provenance == store.provenance


def test_clients_are_written_as_ranges():
    assert client_ranges(None) == "all"
    assert client_ranges([0, 1, 2, 7, 9, 10]) == "0-2, 7, 9-10"
    assert client_ranges([3, 3]) == "3, 3"
