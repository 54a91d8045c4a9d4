"""Labelled arrays hold the numbers of the results, by the coordinates that they are named by."""

import json
import shutil
import sys

import numpy as np
import pytest

from analysis.corruptions.robustness import Robustness
from analysis.hessian.client_results import ClientCurves
from figures import labelled, open_run
from figures.graph import Measure, RunModel, Store, execute
from figures.graph.kinds import KINDS
from figures.labels.results import NAMES
from landscape import FedscapeError
from landscape.version import __version__
from trainers import FedAvg, Settings, train
from trainers.runs import PlannedRun

xarray = pytest.importorskip("xarray")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    settings = Settings(rounds=3, clients=4, per_round=2, local_steps=1, device="cpu", eval_every=2)
    return train(FedAvg(), settings, out=tmp_path_factory.mktemp("run")).path


@pytest.fixture
def run(trained, tmp_path):
    """A run in which nothing was measured."""
    return open_run(shutil.copytree(trained, tmp_path / "run"), device="cpu")


def test_everything_kept_of_a_model_is_in_one_tree(run, tmp_path):
    spectrum = run.spectrum(top=3, samples=50, density_probes=2, density_steps=5)
    surface = run.surface(points=3, samples=50)
    results = run.results
    (one,) = results["spectra"].children.values()
    np.testing.assert_array_equal(one.value, spectrum.eigen.values)
    assert one.value.sel(rank=2) == spectrum.eigen.values[1]
    assert one.trace == spectrum.trace.value
    np.testing.assert_array_equal(one["density"].density, spectrum.density.values)
    np.testing.assert_array_equal(one["density"].eigenvalue, spectrum.density.grid)
    (plane,) = results["surfaces"].children.values()
    assert plane.loss.sel(x=1.0, y=-1.0) == surface.loss[0, 2]
    assert plane.loss.attrs["units"] == "nat"
    assert plane.attrs["checkpoint"] == one.attrs["checkpoint"] == run.checkpoint.digest()
    assert json.loads(plane.attrs["options"])["points"] == 3
    losses = [record["train_loss"] for record in run.metrics]
    np.testing.assert_array_equal(results["curves"].train_loss.sel(round=[1, 2, 3]), losses)
    np.testing.assert_array_equal(np.isnan(results["curves"].test_loss), [True, False, False])
    assert results.attrs["checkpoint"] == run.checkpoint.digest()
    assert results.attrs["fedscape_version"] == __version__
    assert json.loads(results.attrs["settings"])["rounds"] == 3
    assert json.loads(results.attrs["algorithm"])["name"] == "fedavg"
    assert (one.attrs["seed"], one.attrs["samples"]) == (0, 50)
    results.to_netcdf(tmp_path / "results.nc", engine="h5netcdf")
    with xarray.open_datatree(tmp_path / "results.nc", engine="h5netcdf") as again:
        assert again.identical(results) or again.equals(results)


def test_the_call_of_a_measurement_gives_it_again_and_measures_nothing(run):
    run.spectrum(top=2, samples=40, density=False)
    run.surface(points=3, samples=40)
    before = sorted(path.name for path in run.folder.iterdir())
    for name in ("spectra", "surfaces"):
        for tree in run.results[name].children.values():
            again = labelled(eval(tree.attrs["call"], {"open_run": open_run}))
            assert again.equals(tree)
    assert sorted(path.name for path in run.folder.iterdir()) == before


@pytest.mark.slow
def test_what_figures_measured_of_a_run_in_their_store_is_found_there(tmp_path):
    trained = PlannedRun(
        FedAvg(), Settings(rounds=2, clients=4, per_round=2, local_steps=1, save_every=1, device="cpu")
    )
    model, store = RunModel(trained), Store(tmp_path)
    nodes = [
        Measure("hessian", (model,), {"top": 1, "samples": 40, "trace": False}),
        Measure("evaluation", (model,), {"samples": 40}),
        Measure(
            "corruptions", (model,), {"generate": True, "corruptions": ("fog",), "severities": (5,), "samples": 20}
        ),
        Measure("client-accuracy", (RunModel(trained, "rounds"),)),
        Measure("client-eigenvalues", (RunModel(trained, "rounds"),), {"top": 1, "clients": (1, 3)}),
    ]
    outcome = execute([*nodes, Measure("evaluation", (RunModel(trained, 1),), {"samples": 40})], store)
    assert not outcome.failed
    results = open_run(store.runs.path(trained), device="cpu").results
    spectrum, tested, corrupted, accuracies, eigenvalues = (store.result(node) for node in nodes)
    assert set(results.children) == {
        "curves", "spectra", "evaluations", "corruptions", "client-accuracies", "client-eigenvalues"
    }  # fmt: skip
    assert {name: len(of.children) for name, of in results.children.items() if name != "curves"} == dict.fromkeys(
        ["spectra", "evaluations", "corruptions", "client-accuracies", "client-eigenvalues"], 1
    ), "the model of round 1 is another one"
    one = results[f"spectra/{nodes[0].key}"]
    assert one.value.values.tolist() == spectrum.eigen.values.tolist()
    assert results[f"evaluations/{nodes[1].key}"].loss == tested["loss"]
    fog = results[f"corruptions/{nodes[2].key}"]
    assert fog.accuracy.sel(corruption="fog", severity=5).item() == corrupted["accuracy"][0][0][0]
    assert fog.loss.attrs["units"] == "nat"
    shares = results[f"client-accuracies/{nodes[3].key}"]
    assert shares.accuracy.sel(round=1, client=2) == accuracies["accuracy"][1][2]
    tops = results[f"client-eigenvalues/{nodes[4].key}"]
    assert tops.value.sel(round=2, client=3, rank=1) == eigenvalues["measured"][-1]["values"][1][0]
    assert tops.error_bound.sel(round=2, client=3, rank=1) == eigenvalues["measured"][-1]["bounds"][1][0]


def test_every_kind_of_measurement_has_a_name_in_the_tree():
    assert NAMES.keys() >= KINDS.keys()
    assert len(set(NAMES.values())) == len(NAMES)


def test_measurements_of_another_model_are_left_out(run):
    run.surface(points=3, samples=40)
    earlier = open_run(run.run.path / "rounds" / "00000.pt", device="cpu", store=run.run.path)
    assert "surfaces" not in earlier.results.children


def test_layers_and_clients_are_named_and_kept(run):
    layers = run.layers(samples=50)
    tree = labelled(layers)
    (kept,) = run.results["layers"].children.values()
    assert kept.value.identical(tree.value)
    assert ".layers(" in kept.attrs["call"]
    assert tree.value.sel(layer="3", rank=1) == layers.values[1, 0]
    clients = run.clients(samples=20)
    tree = labelled(clients)
    np.testing.assert_array_equal(tree.loss.sel(client=[2, 3]), clients.losses[2:])
    curves = labelled(ClientCurves((clients,), together={clients.round: (2.5, 0.1)}))
    assert curves.lambda_max.sel(round=3, client=1) == clients.largest[1]
    assert curves.together.sel(round=3) == 2.5


def test_corruptions_are_named():
    accuracy = np.arange(8.0).reshape(2, 2, 2) / 8
    found = Robustness(
        ("a", "b"), "digits", "digits-C", True, ("fog", "contrast"), (1, 5), np.array([0.9, 0.8]), np.array([0.1, 0.2]),
        accuracy, 1 - accuracy, 10, 0, "cpu", "float32",
    )  # fmt: skip
    tree = labelled(found)
    assert tree.accuracy.sel(model="b", corruption="contrast", severity=1) == accuracy[1, 1, 0]
    assert tree.attrs["generated"] == 1


def test_other_objects_and_a_missing_package_are_told(run, monkeypatch):
    with pytest.raises(FedscapeError, match="a dict has no labelled form: give one of HessianReport"):
        labelled({})
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(FedscapeError, match="pip install xarray"):
        run.results  # noqa: B018
