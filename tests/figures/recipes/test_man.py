"""The recipes of MAN: settings against recipes/man.md, rows and columns against the printed numbers, smoke scale."""

from dataclasses import replace
from itertools import product

import pytest

from figures.contents.content import Results, Together
from figures.contents.operations import OperationCounts
from figures.contents.table import TableOf
from figures.graph import Measure, Store, execute, runs_of
from figures.graph.nodes import with_runs
from figures.recipes.man import MAN_PAPER
from figures.recipes.recipe import Asked
from figures.recipes.writing import write_recipe
from landscape import FedscapeError
from landscape.models import build_model
from trainers import MAN, FedASAM, FedAvg, FedDC, FedDyn, FedSAM, FedSpeed, Parts, Settings
from trainers.runs.planned import PlannedRun

FORM = {"form": "paper"}  # that of the code is in test_form.py
PAPER = Asked("paper", choices=FORM)
NAMES = ("FedAvg", "FedSAM", "FedASAM", "FedDyn", "FedDC", "FedSpeed")
SPLITS = {"delta=0.3": "dirichlet:0.3", "delta=0.6": "dirichlet:0.6", "iid": "iid"}
SECTION_1 = Settings(  # recipes/man.md, Section 1: rate 0.1 · 0.998^round, decay 1e-3, clip 10, Bernoulli(0.1), ...
    data="cifar100", model="lenet_fed", clients=100, per_round=10, sampling="bernoulli", rounds=500, local_epochs=5,
    batch_size=50, last_batch="keep", lr=0.1, lr_decay=0.998, weight_decay=1e-3, clip=10.0, augment="flip-crop",
    evaluated_model="all-clients-mean", eval_every=1, save_every=0,
)  # fmt: skip
SECTION_2 = {  # recipes/man.md, Section 2: ρ, η, α, λ = 1/α
    "FedAvg": FedAvg(),
    "FedSAM": FedSAM(0.05),
    "FedASAM": FedASAM(0.5, eta=0.2),
    "FedDyn": FedDyn(alpha=0.01),
    "FedDC": FedDC(alpha=0.01, server_correction="all"),
    "FedSpeed": FedSpeed(rho=0.01, alpha=1.0, lam=100.0, variant="official"),
}
EXCEPTIONS = {  # Section 2, exceptions of the code: data, split, row
    ("Tiny-ImageNet", "iid", "FedSAM"): FedSAM(0.03),
    ("Tiny-ImageNet", "iid", "FedSAM+MAN"): FedSAM(0.01),
    ("Tiny-ImageNet", "iid", "FedASAM"): FedASAM(0.1, eta=0.2),
    ("Tiny-ImageNet", "iid", "FedASAM+MAN"): FedASAM(0.1, eta=0.2),
    ("CIFAR-100", "iid", "FedASAM+MAN"): FedASAM(0.1, eta=0.2),
}
ZETA = {"CIFAR-100": 0.15, "Tiny-ImageNet": 0.1}  # Section 2, [P]


def expected(name, data, split, seed):
    base = name.removesuffix("+MAN")
    settings = replace(SECTION_1, partition=SPLITS[split], seed=seed)
    if data == "Tiny-ImageNet":
        settings = replace(settings, data="tiny_imagenet", model="convnet_tiny")
    algorithm = EXCEPTIONS.get((data, split, name), SECTION_2[base])
    return PlannedRun(algorithm, settings, Parts(man=MAN(ZETA[data]) if name != base else None))


def entries(item, asked=PAPER):
    content = MAN_PAPER.recipes[item].content(asked)
    tables = list(content.parts.values()) if isinstance(content, Together) else [content]
    return {place: entry for table in tables if isinstance(table, TableOf) for place, entry in table.entries.items()}


def test_every_item_of_the_paper_is_declared():
    assert list(MAN_PAPER.recipes) == ["F1", "F2", "F3", "F4a", "F4b", "T1", "T2", "T3"]


@pytest.mark.parametrize("item", ["T1", "T2"])
def test_rows_and_columns_are_those_of_the_printed_numbers(item):
    assert set(entries(item)) == set(MAN_PAPER.recipes[item].printed())


def test_t1_trains_the_protocol_of_sections_1_and_2_with_three_seeds():
    found = entries("T1")
    for data, name, man, split in product(ZETA, NAMES, ("", "+MAN"), SPLITS):
        target = {"CIFAR-100": "50", "Tiny-ImageNet": "28"}[data]
        runs = tuple(expected(name + man, data, split, seed) for seed in (23217, 43217, 83217))
        for column in ("accuracy", f"rounds to {target} %"):
            assert found[name + man, f"{data} {split} {column}"].nodes == runs, (name, man, data, split)


@pytest.mark.parametrize(("item", "data"), [("F2", "CIFAR-100"), ("F3", "Tiny-ImageNet")])
def test_the_curves_are_runs_of_t1_with_one_seed(item, data):
    panels = MAN_PAPER.recipes[item].content(PAPER).panels
    for panel, split in zip(panels.values(), SPLITS, strict=True):
        names = ["FedAvg", "FedAvg+MAN", "FedDyn", "FedDyn+MAN", "FedDC", "FedDC+MAN"]
        assert panel == {name: (expected(name, data, split, 23217),) for name in names}


def test_the_spectra_are_of_the_last_models_of_runs_of_t1_on_all_training_data():
    trained = {run for entry in entries("T1").values() for run in entry.nodes}
    (curves,) = MAN_PAPER.recipes["F4a"].content(PAPER).panels.values()
    for name, node in curves.items():
        assert runs_of(node) == [expected(name, "CIFAR-100", "delta=0.3", 23217)]
        assert node.options["top"] == 200
        assert not {"samples", "weight_decay", "man"} & set(node.options)
    assert list(curves) == ["FedAvg", "FedAvg+MAN", "FedSAM", "FedSAM+MAN"]
    for item in ("F1", "F4b", "T2"):
        nodes = MAN_PAPER.recipes[item].content(PAPER).nodes()
        assert {run for node in nodes for run in runs_of(node)} <= trained


def test_the_densities_are_those_of_the_runs_of_the_spectra():
    options = [node.options for node in MAN_PAPER.recipes["F4b"].content(PAPER).nodes()]
    assert all(o["density"] and (o["density_probes"], o["density_steps"]) == (16, 100) for o in options)
    runs = [
        {run for node in MAN_PAPER.recipes[x].content(PAPER).nodes() for run in runs_of(node)} for x in ("F4a", "F4b")
    ]
    assert runs[0] == runs[1]


def test_a_user_chooses_what_the_paper_leaves_open():
    asked = Asked("paper", choices={**FORM, "split": "delta=0.6", "samples": "100", "zeta-half": "yes"}, seeds=(5,))
    node = MAN_PAPER.recipes["F4a"].content(asked).nodes()[1]
    run = expected("FedAvg+MAN", "CIFAR-100", "delta=0.6", 5)
    assert runs_of(node) == [replace(run, parts=Parts(man=MAN(0.15, half=True)))]
    assert node.options["samples"] == 100


def test_the_hessian_of_the_objective_has_the_terms_that_were_trained():
    asked = Asked("paper", choices={"hessian": "objective"})
    plain, with_man = (node.options for node in MAN_PAPER.recipes["F4a"].content(asked).nodes()[:2])
    assert (plain["weight_decay"], plain.get("man")) == (1e-3, None)
    assert (with_man["weight_decay"], with_man["man"]) == (1e-3, 0.15)
    with pytest.raises(FedscapeError, match="choose hessian=loss or hessian=objective"):
        MAN_PAPER.recipes["T2"].content(Asked("paper", choices={"hessian": "other"}))


def test_the_networks_of_t3_are_those_of_the_protocol():
    counts = MAN_PAPER.recipes["T3"].content(PAPER).parts["multiplications"]
    assert isinstance(counts, OperationCounts)
    for network, parameters in zip(counts.networks.values(), (815_332, 2_447_688), strict=True):  # Section 1
        model = build_model(network.name, seed=0, input_shape=network.input_shape, classes=network.classes)
        assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_smaller_scales_have_every_row_and_every_panel(scale):
    def shape(item, at):
        found = entries(item, Asked(at))
        return {row for row, _ in found}, len(found)

    assert all(shape(item, scale) == shape(item, "paper") for item in ("T1", "T2"))
    for item in ("F1", "F2", "F3", "F4a", "F4b"):
        small, paper = (MAN_PAPER.recipes[item].content(Asked(at)).panels for at in (scale, "paper"))
        assert list(small) == list(paper)
    data = {"smoke": "digits", "small": "cifar10"}[scale]
    nodes = with_runs(n for r in MAN_PAPER.recipes.values() for n in r.content(Asked(scale)).nodes())
    assert {run.settings.data for run in nodes if isinstance(run, PlannedRun)} == {data}


@pytest.mark.slow
def test_every_item_is_made_at_smoke_scale_of_few_rounds(tmp_path):
    asked, store = Asked(rounds=2, seeds=(0,), choices={"points": "5", "samples": "60"}), Store(tmp_path)
    nodes = [node for recipe in MAN_PAPER.recipes.values() for node in recipe.content(asked).nodes()]
    outcome = execute(nodes, store)
    assert (outcome.failed, outcome.blocked) == ({}, {})
    assert any(isinstance(node, Measure) for node in outcome.done)
    for recipe in MAN_PAPER.recipes.values():
        values = {node: store.result(node) for node in recipe.content(asked).nodes()}
        written = write_recipe(recipe, asked, Results(values), tmp_path / "out")
        captions = [file.read_text(encoding="utf-8") for file in written if file.name.endswith(".caption.txt")]
        assert captions
        assert all("SMOKE SCALE" in text and "digits" in text for text in captions)
