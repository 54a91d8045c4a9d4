"""The panels of clients, layers, λ_max in the plane, and local against global: their numbers and what is told."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from analysis import Surface
from analysis.alignment import measure_alignment
from analysis.source import Source
from figures.__main__ import Report, read
from figures.alike import Panels, Recipe
from figures.expected import expected
from figures.graph import Store
from figures.measurements import Measurements
from figures.report import contents, grouped, notes, read_alignments
from figures.reporting import measured, opened, write_report
from landscape import FedscapeError, Landscape
from landscape.storage.files import write_json
from trainers import FedAvg, FedSAM, Settings, train

SMALL = Settings(rounds=2, clients=3, per_round=2, local_steps=1, device="cpu", model="digits_mlp", save_clients=True)
SOURCE = Source(device="cpu", samples=30)
RECIPE = Recipe(top=1, points=3, probes=2, steps=4, trace_tolerance=0.5)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, algorithm in (("fedavg", FedAvg()), ("fedsam", FedSAM(rho=0.1))):
        train(algorithm, SMALL, out=folder / name)
    return [folder / "fedavg", folder / "fedsam"]


@pytest.fixture(scope="module")
def subjects(runs, tmp_path_factory):
    panels = Panels(curvature_map=3)
    return measured(opened(runs, SOURCE), tmp_path_factory.mktemp("store"), RECIPE, SOURCE, panels=panels)


@pytest.fixture(scope="module")
def aligned(runs, tmp_path_factory):
    """A folder as ``fedscape alignment`` writes it of the first run alone, and what was measured."""
    found = measure_alignment(runs[0], "all", parts=("gradients",), device="cpu", samples=30)
    folder = tmp_path_factory.mktemp("aligned")
    write_json(folder / "alignment.json", found.to_dict())
    return folder, found.runs[0].rounds[0]


def digests(subjects):
    return [one.origin.checkpoint.digest() for one in subjects]


def test_clients_are_those_of_the_run_each_on_its_own_samples(runs, subjects):
    found = contents(subjects, "")["subjects"][1]["clients"]
    assert found["partition"] == contents(subjects, "")["subjects"][0]["clients"]["partition"]
    dataset = subjects[1].origin.checkpoint.load_dataset()
    parts = subjects[1].origin.checkpoint.partition(dataset).clients
    for client, part in enumerate(parts):
        there = Landscape.from_checkpoint(runs[1], clients=[client], samples=30, device="cpu")
        assert found["loss"][client] == pytest.approx(there.value(), rel=1e-6)
        assert found["accuracy"][client] == pytest.approx(there.evaluate().accuracy)
        assert found["label_counts"][client] == np.bincount(dataset.train.targets[part], minlength=10).tolist()
        shares = np.array(found["label_counts"][client]) / len(part)
        entropy = -sum(q * np.log(q) for q in shares if q)
        assert found["effective_labels"][client] == pytest.approx(np.exp(entropy))
    assert found["samples"] == [min(30, len(part)) for part in parts]


def test_no_block_is_sharper_than_the_whole_and_the_maps_centre_is_its_first_eigenvalue(subjects):
    for one in contents(subjects, "")["subjects"]:
        assert sum(one["layers"]["parameters"]) == one["spectrum"]["parameters"]
        first = one["scores"]["lambda_1"]
        assert max(one["layers"]["lambda_max"]) <= first * (1 + 1e-3)
        assert one["curvature_map"]["lambda_max"][1][1] == pytest.approx(first, rel=0.02)
    assert any("λ_max at the centre of 2 maps" in note.text for note in notes(subjects) if note.weight == "sound")


def test_a_map_that_contradicts_the_first_eigenvalue_voids_what_follows(subjects):
    wrong = replace(subjects[0].curvature_map, lambda_max=3 * subjects[0].curvature_map.lambda_max)
    assert isinstance(wrong, Surface)
    told = [note.text for note in notes([replace(subjects[0], curvature_map=wrong)]) if note.weight == "void"]
    assert told[-1] == "fedavg: λ_max at the centre of its map and λ1 differ by 200.0%: one of them is wrong."


def test_other_networks_and_what_has_not_converged_are_told(subjects):
    one, other = subjects
    larger = replace(other, report=replace(other.report, parameters=7))
    assert any(
        "different networks (parameters): digits_mlp (6,570), digits_mlp (7)" in n.text for n in notes([one, larger])
    )
    assert not any("networks" in note.text for note in notes(subjects))
    doubtful = replace(one.clients, converged=np.array([[True], [False], [False]]))
    told = [note.text for note in notes([replace(one, clients=doubtful), other]) if note.weight == "care"]
    assert any(
        text.startswith("λ_max of clients has NOT CONVERGED in 1 of 2 models, of fedavg in 2 clients") for text in told
    )


def test_a_clients_own_model_is_named_after_it(runs):
    client = min(opened(runs[:1], SOURCE)[0].checkpoint.clients)
    origins = opened([runs[0], f"{runs[0]}@{client}"], SOURCE)
    assert grouped(origins) == ["fedavg", f"fedavg, client {client}"]


def test_panels_that_are_left_out_are_not_measured(runs, tmp_path):
    without = Panels(without=("surfaces", "clients", "layers"))
    (one,) = measured(opened(runs[:1], SOURCE), tmp_path, RECIPE, SOURCE, panels=without)
    assert {file.name.split("-")[0] for file in (tmp_path / "measurements").iterdir()} == {"hessian", "evaluation"}
    found = contents([one], "")["subjects"][0]
    assert [found[name] for name in ("surface", "clients", "layers", "curvature_map", "alignment")] == [None] * 5
    assert found["missing"] == {}


def test_without_a_partition_there_are_no_clients_and_the_page_says_why(runs, tmp_path):
    (origin,) = opened(runs[:1], SOURCE)
    data = {name: value for name, value in origin.checkpoint.data.items() if name != "partition"}
    alone = replace(origin, checkpoint=replace(origin.checkpoint, data=data))
    (one,) = measured([alone], tmp_path, RECIPE, SOURCE, panels=Panels(without=("surfaces", "layers")))
    assert one.clients is None
    assert one.missing == {"clients": "the file names no partition, so nobody knows its clients"}


def test_the_work_is_told_before_it_and_only_what_is_left(runs, subjects, tmp_path):
    origins = opened(runs[:1], SOURCE)
    tasks = {"layers": ("layers", {}), "curvature_map": ("surface", RECIPE.curvature_map(3))}
    measure = Measurements(Store(tmp_path), SOURCE)
    line = expected(measure, [(origins[0], tasks)])
    assert line.startswith("report: to be measured: 1 × layers (--without layers) some ")
    assert "; 1 × λ_max on the surfaces (--curvature-map) some " in line
    for kind, options in tasks.values():
        measure.made(kind, origins[0].file, origins[0].checkpoint, options)
    assert expected(measure, [(origins[0], tasks)]) == ""


def test_measurements_of_before_the_panels_are_found_again():
    """Their names as the version before wrote them."""
    measure, digest = (
        Measurements(Store("x"), Source(device="cpu", samples=40), 3),
        SimpleNamespace(digest=lambda: "0" * 64),
    )
    names = [measure._node(kind, "x", digest, recipe)[0].name for kind, recipe in (
        ("hessian", Recipe().spectrum), ("surface", Recipe().surface),
        ("evaluation", {"split": "test", "clients": None, "samples": None}),
    )]  # fmt: skip
    assert names == ["hessian-22e6c051f22b58de", "surface-516872e8e0427b28", "evaluation-bd2a3aaecc59d78e"]


def test_an_alignment_is_found_by_the_models_digest(subjects, aligned):
    folder, one = aligned
    (first, second), others = read_alignments([folder], digests(subjects))
    assert (second, others) == (None, [])
    assert first.last["means"]["gradient_cosine"]["value"] == one.quantities()[1].mean.value
    (cosines,) = first.maps()
    for i, a in enumerate(cosines["clients"]):
        for j, b in enumerate(cosines["clients"]):
            exact = one.gradients.cosines[one.clients.index(a), one.clients.index(b)]
            assert cosines["values"][i][j] == pytest.approx(exact, rel=1e-4)
    assert cosines["clients"] == [one.clients[k] for k in one.order()[0]]
    found = contents([replace(subjects[0], alignment=first), subjects[1]], "")["subjects"]
    assert found[0]["alignment"]["titles"]["gradient_cosine"] == "cosine of the gradients of two clients"
    assert found[1]["alignment"] is None


def test_alignments_that_were_asked_for_differently_are_told(subjects, aligned):
    (found, _), _ = read_alignments([aligned[0]], digests(subjects))
    both = [replace(one, alignment=found) for one in subjects]
    assert not [note for note in notes(both) if "Local against global" in note.text]
    both[1] = replace(both[1], alignment=replace(found, asked={**found.asked, "top": 3}))
    (note,) = [note for note in notes(both) if "Local against global" in note.text]
    assert note.text == "Local against global was measured with different K: 5 (fedavg); 3 (fedsam)."


def test_quantities_and_tables_that_nobody_knows_yet_are_shown_by_their_names(subjects, aligned, tmp_path):
    contents_ = json.loads((aligned[0] / "alignment.json").read_text())
    last = contents_["runs"][0]["rounds"][0]
    last["means"]["rise_by_used_step"] = last["means"]["gradient_cosine"]
    last["used_perturbations_of"] = last["clients"][:2]
    last["used"] = {"used_rises": [[7.0, 8.0], [9.0, 10.0]]}
    last["more"] = {
        "used_gains": [[1.0, 2.0, None], [0, 1, 2], [0.5, -1, 3]],
        "gain_errors": last["gradients"]["cosines"],
    }
    write_json(tmp_path / "alignment.json", contents_)
    (found, _), _ = read_alignments([tmp_path / "alignment.json"], digests(subjects))
    assert [each["title"] for each in found.maps()] == ["cosine of gradients", "used rises", "used gains"]
    assert sorted(found.maps()[1]["clients"]) == last["clients"][:2]
    shown = contents([replace(subjects[0], alignment=found)], "")["subjects"][0]["alignment"]
    assert shown["titles"]["rise_by_used_step"] == "rise by used step"
    assert sorted(v is None for row in shown["maps"][2]["values"] for v in row) == [False] * 8 + [True]


def test_runs_of_an_alignment_that_are_not_shown_are_told_and_none_is_refused(subjects, aligned, runs, tmp_path):
    mine, other = digests(subjects)
    both = json.loads((aligned[0] / "alignment.json").read_text())
    both["runs"].append(json.loads(json.dumps(both["runs"][0]).replace(mine, "f" * 64)))
    write_json(tmp_path / "alignment.json", both)
    _, others = read_alignments([tmp_path], [mine, other])
    assert others == [f"fedavg, round 2, of {tmp_path / 'alignment.json'} is none of these models"]
    assert any(others[0][1:] in note["text"] for note in contents(subjects, "", others)["notes"])
    with pytest.raises(FedscapeError, match=r"none of the models is in .*: give fedscape alignment the same runs"):
        write_report(runs[1:], tmp_path / "x.html", panels=Panels(alignment=(aligned[0],)), source=SOURCE)
    assert not (tmp_path / "x").exists()  # refused before anything is measured


def test_a_model_under_two_names_is_read_once_and_in_two_alignments_refused(subjects, aligned, tmp_path):
    both = json.loads((aligned[0] / "alignment.json").read_text())
    both["runs"].append({**both["runs"][0], "label": "again"})
    write_json(tmp_path / "alignment.json", both)
    (found, _), others = read_alignments([tmp_path], digests(subjects))
    assert (found.label, others) == ("fedavg", [])
    with pytest.raises(FedscapeError, match="fedavg, round 2, is in several alignments: give one of them"):
        read_alignments([aligned[0], tmp_path], digests(subjects))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda one: one.pop("model_digest"),
            "does not say which model round 2 of fedavg is: it is of an earlier",
        ),
        (lambda one: one["order"].pop(), r"rounds\[0\].order is a list of 2, not one of the clients"),
        (lambda one: one["means"].update(x={"value": "1"}), r"means.x is an object of 1 entries, not one with"),
        (lambda one: one["local_models_of"].append(99), "not some of the clients"),
    ],
)
def test_a_damaged_alignment_is_refused_in_a_sentence(subjects, aligned, tmp_path, change, message):
    contents_ = json.loads((aligned[0] / "alignment.json").read_text())
    change(contents_["runs"][0]["rounds"][0])
    write_json(tmp_path / "alignment.json", contents_)
    with pytest.raises(FedscapeError, match=message):
        read_alignments([tmp_path], digests(subjects))


def test_the_page_names_the_command_that_makes_it_again():
    words = "r/a r/b --out p.html --top 3 --without clients layers --curvature-map 9 --alignment al --samples 50"
    asked = read(["report", *words.split()])
    assert isinstance(asked, Report)
    again = asked._command()
    assert again.startswith("fedscape report r/a r/b")
    assert read(again.split()[1:]) == asked


def test_a_map_of_one_point_is_refused():
    with pytest.raises(FedscapeError, match="--curvature-map 1: give 2 points along each axis or more"):
        Panels(curvature_map=1)
