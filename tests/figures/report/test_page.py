"""The report page: its numbers are the measurements', its texts stay texts, and it may load and run nothing else."""

import base64
import hashlib
import json
import re
from dataclasses import replace

import pytest

from analysis.source import Source
from figures.alike import Panels, Recipe
from figures.report import Origin, contents, grouped, notes, report_page, verdict
from figures.reporting import measured, opened, write_report
from landscape import FedscapeError
from trainers import FedAvg, FedProx, FedSAM, Settings, train

NASTY = "</script><img src=x onerror=alert(1)>\"'&=1+1"
SMALL = Settings(rounds=2, clients=4, per_round=2, local_steps=1, device="cpu", model="digits_mlp")
SOURCE = Source(device="cpu", samples=40)
RECIPE = Recipe(top=2, points=3, probes=2, steps=5, trace_tolerance=0.5)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        train(FedAvg(), replace(SMALL, seed=seed), out=folder / f"fedavg-{seed}")
    train(FedSAM(rho=0.1), SMALL, out=folder / "fedsam")
    return [folder / "fedavg-0", folder / "fedavg-1", folder / "fedsam"]


@pytest.fixture(scope="module")
def subjects(runs, tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    return measured(opened(runs, SOURCE), store, RECIPE, SOURCE)


def test_numbers_are_those_measured(subjects):
    found = contents(subjects, "fedscape report")
    assert [one["label"] for one in found["subjects"]] == ["fedavg, seed 0", "fedavg, seed 1", "fedsam"]
    assert [one["group"] for one in found["subjects"]] == [0, 0, 1]
    for one, subject in zip(found["subjects"], subjects, strict=True):
        assert one["scores"]["lambda_1"] == subject.report.eigen.values[0]
        assert one["scores"]["test_accuracy"] == subject.test.accuracy
        assert one["spectrum"]["bounds"] == subject.report.eigen.bounds.tolist()
        assert one["surface"]["loss"] == subject.surface.loss.tolist()
        assert one["curves"]["train_loss"] == [record["train_loss"] for record in subject.origin.metrics]
        density = one["density"]
        assert sum(density["weights"]) + density["share"] * len(density["atoms"]) == pytest.approx(1)


def test_verdict_and_notes_are_of_groups(subjects):
    told = verdict(subjects)
    assert len(told) == 2
    assert all("fedsam" in text and "fedavg" in text for text in told)
    assert [text.startswith(word) for text, word in zip(told, ("λ1 of", "Test accuracy of"), strict=True)] == [
        True,
        True,
    ]
    said = {note.weight: note.text for note in notes(subjects)}
    texts = [note.text for note in notes(subjects)]
    assert "The runs differ in gradients a step: 1 (fedavg), 2 (fedsam)." in texts
    assert "There is one seed of fedsam: how much another seed would change is not known." in texts
    assert any(text.startswith("Spectra are of 40 of") for text in texts)
    assert list(said) == ["void", "care", "sound"]
    assert verdict(subjects[:2])[0].startswith("All models are of one group, fedavg")


def test_a_verdict_leaves_names_as_they_are(subjects):
    mine = [replace(one, group=f"{one.group} of Ours") for one in subjects]
    assert all(text.count(" of Ours") == 2 for text in verdict(mine))


def test_a_model_that_is_worse_than_a_guess_voids_what_is_said_of_its_flatness(subjects):
    for loss, voided in ((2.302, False), (2.303, True)):  # ln 10 = 2.30259
        one = replace(subjects[0], label="dead", report=replace(subjects[0].report, loss=loss))
        found = [note for note in notes([one]) if note.text.startswith("dead: its measured loss")]
        assert [note.weight for note in found] == ["void"] * voided
        if voided:
            assert "2.3, is above ln 10 = 2.3, that of a guess" in found[0].text


def test_lambda_max_has_its_subscript_in_notes_and_nothing_else_is_markup(subjects):
    found = contents(subjects, "")
    found["notes"] = [{"weight": "void", "text": f"λ_max, λ_maximum {NASTY}"}]
    assert "λ<sub>max</sub>, λ_maximum &lt;/script&gt;" in report_page(found)


def test_groups_of_one_algorithm_are_told_apart_by_what_differs(tmp_path):
    from figures import open_run

    for name, algorithm, seed in (("a", FedProx(mu=0.1), 0), ("b", FedProx(mu=0.2), 0), ("c", FedProx(mu=0.2), 1)):
        train(algorithm, replace(SMALL, rounds=1, seed=seed), out=tmp_path / name)
    runs = [open_run(tmp_path / name) for name in "abc"]
    origins = [Origin(run.file, run.checkpoint, run.run, run.algorithm, run.settings) for run in runs]
    assert grouped(origins) == ["fedprox, mu 0.1", "fedprox, mu 0.2", "fedprox, mu 0.2"]


def test_hostile_names_stay_text_and_only_our_scripts_may_run(subjects):
    found = contents(subjects, f"fedscape report {NASTY}")
    found["groups"][0]["label"] = found["subjects"][0]["label"] = NASTY
    found["verdict"], found["notes"] = [NASTY], [{"weight": "void", "text": NASTY}]
    page = report_page(found)
    assert "<img" not in page.replace(page[page.index("<script>") :], "")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    allowed = re.search(r"script-src ([^;]*);", page)[1].split()
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts]
    assert allowed == hashes
    assert len(scripts) == 2
    assert "default-src 'none'" in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert data["groups"][0]["label"] == NASTY


def test_a_second_call_measures_nothing_again(runs, tmp_path, monkeypatch):
    asked = {"recipe": Recipe(top=1, points=3, probes=2, steps=4), "panels": Panels(curvature_map=3), "source": SOURCE}
    write_report(runs[:1], tmp_path / "r.html", **asked)
    first = (tmp_path / "r.html").read_bytes()
    monkeypatch.setattr("figures.graph.store.Store._measure", None)
    write_report(runs[:1], tmp_path / "r.html", **asked)
    assert (tmp_path / "r.html").read_bytes() == first


@pytest.mark.parametrize(("paths", "message"), [((), "a report is of at least one model"), ((0, 0), "is given twice")])
def test_what_is_no_report_is_refused(runs, paths, message):
    with pytest.raises(FedscapeError, match=message):
        opened([runs[i] for i in paths], Source())


def test_of_many_comparisons_those_that_tell_nothing_are_folded(subjects):
    found = contents(subjects, "")
    apart, level = "λ1 of a is 2 times smaller than of b", "λ1 of c and of b cannot be told apart"
    found["verdict"] = [level, apart] * 4
    page = report_page(found)
    folded = page[page.index("4 of 8 comparisons cannot tell their groups apart") : page.index("</details>")]
    assert folded.count(level) == 4
    assert apart not in folded
    assert page.index(apart) < page.index("4 of 8 comparisons")


def test_remarks_of_many_models_are_one_note(subjects, monkeypatch):
    monkeypatch.setattr("analysis.HessianReport.remarks", lambda self, places=None: ["density NOT CONVERGED: by far"])
    many = [replace(subjects[0], label=f"m{i}") for i in range(4)]
    assert [note.text for note in notes(many) if "NOT CONVERGED" in note.text] == [
        "density NOT CONVERGED in 4 of 4 models (see Provenance for each)."
    ]
    few = [note.text for note in notes(many[:2]) if "NOT CONVERGED" in note.text]
    assert few == ["m0: density NOT CONVERGED: by far.", "m1: density NOT CONVERGED: by far."]
