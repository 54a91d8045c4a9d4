"""``open_run``: one door to a run, an earlier round, a local model and a file from elsewhere."""

import json
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest
import torch

from analysis import measure_hessian, measure_surface
from figures import OpenedRun, compare, open_run
from figures.alike import Recipe
from figures.graph import Store
from figures.measurements import Measurements
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.activations import MAN
from tests.conftest import REPOSITORY
from trainers import FedASAM, FedAvg, Settings, train

CHEAP = {"top": 5, "samples": 60}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two short runs with the clients' models of each second round."""
    made = tmp_path_factory.mktemp("runs")
    settings = Settings(rounds=4, clients=5, per_round=2, device="cpu", save_every=2, save_clients=True)
    for name, algorithm in (("a", FedAvg()), ("b", FedASAM(rho=0.3))):
        train(algorithm, settings, out=made / name)
    return made


@pytest.fixture
def run(folder):
    return open_run(folder / "a", device="cpu")


def test_it_tells_what_was_recorded(folder, run):
    config = json.loads((folder / "b" / "config.json").read_text())
    opened = open_run(folder / "b")
    assert opened.settings == config["settings"]
    assert opened.algorithm == config["algorithm"]
    assert opened.algorithm["rho"] == 0.3
    lines = (folder / "a" / "metrics.jsonl").read_text().splitlines()
    assert run.metrics == [json.loads(line) for line in lines]
    assert torch.equal(run.landscape().weights, Landscape.from_checkpoint(folder / "a" / "ckpt.pt").weights)
    assert run.landscape(split="test", clients=None).samples == 355


def test_a_round_and_a_clients_model_are_opened_through_the_same_door(folder):
    earlier = open_run(folder / "a" / "rounds" / "00002.pt")
    assert (earlier.checkpoint.round, len(earlier.metrics)) == (2, 4)
    labels = [line.get_label() for ax in earlier.curves().axes for line in ax.get_lines()]
    assert labels.count("the model, round 2") == 2
    for file, path in ((earlier.file, f"{earlier.file}@"), (folder / "a" / "ckpt.pt", f"{folder / 'a'}@")):
        held = Checkpoint.load(file).clients
        client = min(held)
        local = open_run(f"{path}{client}")
        assert f"client {client}'s local model" in repr(local)
        assert torch.equal(local.landscape().weights, held[client])
        assert local.folder == folder / "a" / "measurements"


def test_spectrum_and_surface_are_those_of_the_functions_beneath(run):
    report, plain = run.spectrum(**CHEAP), measure_hessian(run.file, 5, samples=60, device="cpu")
    assert report.eigen.values.tolist() == plain.eigen.values.tolist()
    assert report.density is not None
    assert run.density(**CHEAP).values.tolist() == report.density.values.tolist()
    surface = run.surface(points=5, samples=60)
    assert surface.loss.tolist() == measure_surface(run.file, 5, samples=60, exact=True, device="cpu").loss.tolist()
    assert run.layers(samples=60).layers == tuple(run.landscape().space.layers())
    assert len(run.clients(samples=20).clients) == 5


def test_what_was_measured_is_read_again_also_by_compare(folder, run, monkeypatch):
    other = open_run(folder / "b", device="cpu")
    sizes = {"top": 5, "points": 5, "samples": 60}
    for one in (run, other):
        one.spectrum(**CHEAP)
        one.surface(points=5, samples=60)
        one.compare(folder / "b" if one is run else run, **sizes)
    assert {file.name.split("-")[0] for file in other.folder.iterdir()} == {"hessian", "surface", "evaluation"}
    monkeypatch.setattr(Store, "_measure", None)  # would fail if it were called
    again = open_run(folder / "a", device="cpu").compare(folder / "b", **sizes)
    assert again.subjects[0].report.to_dict() == run.spectrum(**CHEAP).to_dict()
    assert again.subjects[0].surface.loss.tolist() == run.surface(points=5, samples=60).loss.tolist()
    assert [s.label for s in again.subjects] == ["fedavg", "fedasam"]
    with pytest.raises(TypeError, match="NoneType"):  # another measurement
        run.spectrum(top=4, samples=60)


def test_the_usual_measurements_are_those_of_compare(folder, run, monkeypatch):
    asked = {}

    def note(measurements, kind, file, checkpoint, recipe):
        asked.setdefault(kind, []).append(recipe)
        return {"loss": 1.0, "accuracy": 1.0}

    monkeypatch.setattr(Measurements, "made", note)
    run.spectrum()
    run.surface()
    run.compare(folder / "b")
    for kind in ("hessian", "surface"):
        ours, *compared = asked[kind]
        assert compared == [ours, ours]
    given = [signature(function).parameters.items() for function in (Recipe, compare)]
    usual = [{name: one.default for name, one in each if one.default is not one.empty} for each in given]
    assert usual[0].items() <= usual[1].items()


def test_a_store_may_be_elsewhere(folder, tmp_path):
    run = open_run(folder / "a", device="cpu", store=tmp_path / "kept")
    run.spectrum(top=1, density=False, samples=30)
    assert run.folder == tmp_path / "kept" / "measurements"
    assert len(list(run.folder.glob("hessian-*.done.json"))) == 1


def test_weights_from_elsewhere_are_opened_by_naming_what_they_are_of(run, tmp_path):
    file = tmp_path / "weights.pt"
    torch.save(run.checkpoint.parameters, file)
    opened = open_run(file, model="digits_mlp", data="digits", device="cpu")
    assert opened.landscape().value() == run.landscape().value()
    assert (opened.metrics, opened.settings, opened.algorithm) == ([], {}, {"name": "unknown"})
    assert opened.spectrum(**CHEAP).eigen.values.tolist() == run.spectrum(**CHEAP).eigen.values.tolist()
    assert opened.folder == tmp_path / "measurements"
    assert "img" not in opened._repr_html_()
    with pytest.raises(FedscapeError, match="lies in no run directory, so nobody knows its training curves"):
        opened.curves()
    with pytest.raises(FedscapeError, match="give --model NAME and --data NAME"):
        open_run(file)


def test_what_cannot_be_is_refused_in_a_sentence(folder, run, tmp_path):
    for path, sentence in (
        (tmp_path, "holds no ckpt.pt: give a run directory"),
        (tmp_path / "nothing", "there is no run and no checkpoint"),
        (f"{folder / 'a'}@99", "no local model of client 99"),
    ):
        with pytest.raises(FedscapeError, match=sentence):
            open_run(path)
    with pytest.raises(FedscapeError, match="man is a MAN, by which no measurement can be kept"):
        run.spectrum(man=MAN(0.1))
    with pytest.raises(FedscapeError, match="1 checkpoints are given: compare 2 to 7"):
        run.compare()
    for measure, wrong, meant in (
        (run.spectrum, "tolerence", "tolerance"),
        (run.surface, "point", "points"),
        (run.compare, "samplse", None),
    ):
        with pytest.raises(TypeError, match=meant and f"did you mean '{meant}'"):
            measure(**{wrong: 1})


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", "import figures.comparison, figures.runs, figures.__main__"])
def test_names_of_the_packages_are_functions_whatever_was_imported_first(before):
    lines = [
        before,
        "import types, pkgutil, landscape, trainers, analysis, figures",
        "from figures import compare, contact_sheet, open_run",
        "assert all(isinstance(f, types.FunctionType) for f in (compare, contact_sheet, open_run))",
        "for package in (landscape, trainers, analysis, figures):",
        "    below = {module.name for module in pkgutil.iter_modules(package.__path__)}",
        "    assert not below & set(package.__all__), below & set(package.__all__)",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=REPOSITORY)


def test_an_opened_run_shows_its_curves_and_where_measurements_are(run):
    page = run._repr_html_()
    assert "data:image/png;base64," in page
    assert str(Path(run.folder)) in page
    assert isinstance(run, OpenedRun)
    assert len(repr(run)) <= 240
