"""The recipes of FedSAM: settings against recipes/fedsam.md, rows and columns against the printed numbers, smoke."""

from dataclasses import replace
from pathlib import Path

import pytest

from figures.contents.content import Results, Together
from figures.graph import Store, execute, runs_of
from figures.graph.nodes import with_runs
from figures.printed import printed_numbers
from figures.recipes.fedsam import CURVES, FEDSAM, TABLED
from figures.recipes.recipe import Asked
from figures.recipes.writing import write_recipe
from trainers import FedAvg, FedCM, FedGSAM, FedRobust, FedSAM, MimeLite, MoFedSAM, Scaffold, Settings
from trainers.runs.planned import PlannedRun
from trainers.runs.records import RecordedRun

PAPER = Asked("paper")
SECTION_1 = Settings(  # recipes/fedsam.md, Section 1, and 5 for what is open
    data="cifar10", model="resnet18_gn", partition="dirichlet:0.6", clients=100, per_round=20, sampling="bernoulli",
    rounds=1000, local_epochs=10, batch_size=128, lr=0.1, lr_decay=1.0, weight_decay=0.0, clip=0.0,
    augment="flip-crop", weighting="uniform", evaluated_model="server", eval_every=1, client_accuracy=1,
    client_test="split", save_every=0, seed=0,
)  # fmt: skip
SETTINGS = {
    "EMNIST": replace(
        SECTION_1, data="emnist_10", model="cnn_emnist", batch_size=32, rounds=200, augment="none"
    ),  # E.1, T3
    "CIFAR-10": SECTION_1,
    "CIFAR-100": replace(SECTION_1, data="cifar100"),
}
ALGORITHMS = {  # Section 1: ρ 0.5, β 0.1 (the share of the gradient; MimeLite's own β is that of the momentum), η_g 1
    "FedAvg": FedAvg(server_lr=1.0),
    "SCAFFOLD": Scaffold(server_lr=1.0),
    "FedRobust": FedRobust(lam=0.1, ascent_lr=0.01, structure="channel"),
    "FedCM": FedCM(alpha=0.1, server_lr=1.0),
    "MimeLite": MimeLite(beta=0.9, server_lr=1.0),
    "FedSAM": FedSAM(0.5),
    "FedGSAM": FedGSAM(0.5, alpha=0.2),
    "MoFedSAM": MoFedSAM(0.5, beta=0.1, server_lr=1.0),
}
SPLITS = {"IID": "iid", "Dir0.6": "dirichlet:0.6", "Dir0.3": "dirichlet:0.3"}
BY_SPLIT = {"T2": "CIFAR-10", "T4": "EMNIST", "T5": "CIFAR-100"}


def expected(name, data="CIFAR-10", **changed):
    return PlannedRun(ALGORITHMS[name], replace(SETTINGS[data], **changed))


def entries(item, asked=PAPER):
    content = FEDSAM.recipes[item].content(asked)
    tables = list(content.parts.values()) if isinstance(content, Together) else [content]
    return {place: entry for table in tables for place, entry in table.entries.items()}


def test_every_item_of_the_paper_is_declared_once():
    assert set(FEDSAM.recipes) == {f"F{i}" for i in range(1, 7)} | {f"T{i}" for i in range(1, 6)}
    items = {item for item, _, _ in printed_numbers("fedsam") if not item.startswith("text")}
    assert items <= set(FEDSAM.recipes)


@pytest.mark.parametrize("item", ["T1", "T2", "T3", "T4", "T5"])
def test_rows_and_columns_are_those_of_the_printed_numbers_and_the_best_accuracies(item):
    printed = set(FEDSAM.recipes[item].printed())
    assert printed <= set(entries(item))
    assert all(column.endswith("best validation") for _, column in set(entries(item)) - printed)


def test_t1_trains_the_protocol_of_section_1():
    found = entries("T1")
    assert list(dict.fromkeys(row for row, _ in found)) == list(TABLED)
    for name in TABLED:
        for data in SETTINGS:
            for column in ("train", "validation", "rounds", "best validation"):
                assert found[name, f"{data} {column}"].nodes == (expected(name, data),)


@pytest.mark.parametrize(("item", "data"), BY_SPLIT.items())
def test_the_tables_by_split_differ_in_the_partition_only(item, data):
    found = entries(item)
    for name in TABLED:
        for column, partition in SPLITS.items():
            assert found[name, f"{column} train"].nodes == (expected(name, data, partition=partition),)


def test_t3_counts_what_runs_divide_among_100_and_50_clients():
    found = entries("T3")
    assert [found["EMNIST", f"clients ({x})"].nodes[0].settings.clients for x in "ab"] == [100, 50]
    assert {entry.nodes[0].settings.rounds for entry in found.values()} == {0}
    assert found["EMNIST", "total samples"].nodes[0].settings.data == "emnist_10"


@pytest.mark.parametrize(("item", "names"), [("F1", CURVES), ("F4", TABLED)])
def test_the_curves_are_those_of_the_runs_of_t1(item, names):
    panels = FEDSAM.recipes[item].content(PAPER).panels
    assert panels == {data: {name: (expected(name, data),) for name in names} for data in SETTINGS}
    assert names == tuple(ALGORITHMS) or names == tuple(name for name in ALGORITHMS if name != "FedGSAM")


def test_the_surfaces_are_those_of_the_runs_of_t1():
    nodes = FEDSAM.recipes["F2"].content(PAPER).nodes()
    assert [runs_of(node) for node in nodes] == [[expected(name)] for name in ("FedAvg", "FedSAM", "MoFedSAM")]
    assert all(
        (node.options["points"], node.options["span"], node.options["samples"]) == (51, 1.0, None) for node in nodes
    )


@pytest.mark.parametrize(
    ("item", "data", "names"), [("F3", "CIFAR-10", CURVES), ("F5", "EMNIST", TABLED), ("F6", "CIFAR-100", TABLED)]
)
def test_sweeps_change_one_parameter_of_the_runs_of_t1(item, data, names):
    panels = FEDSAM.recipes[item].content(PAPER).panels
    shares, epochs, radii, betas = (
        {name: {x: e.nodes for x, e in curve.items()} for name, curve in panel.curves.items()}
        for panel in panels.values()
    )
    assert shares == {
        n: {s: (expected(n, data, per_round=round(100 * s)),) for s in (0.2, 0.4, 0.6, 0.8, 1.0)} for n in names
    }
    assert epochs == {n: {k: (expected(n, data, local_epochs=k),) for k in (1, 5, 10, 15, 20)} for n in names}
    perturbed = [name for name in ("FedSAM", "FedGSAM", "MoFedSAM") if name in names]
    settings = SETTINGS[data]
    made = {
        "FedSAM": lambda rho: FedSAM(rho),
        "FedGSAM": lambda rho: FedGSAM(rho, alpha=0.2),
        "MoFedSAM": lambda rho: MoFedSAM(rho, beta=0.1),
    }
    assert radii == {
        n: {tenth / 10: (PlannedRun(made[n](tenth / 10), settings),) for tenth in range(1, 11)} for n in perturbed
    }
    mixed = {
        "FedCM": {b: FedCM(alpha=b) for b in (0.01, 0.1, 0.2, 0.5, 1.0)},
        "MimeLite": {b: MimeLite(beta=1 - b) for b in (0.01, 0.2, 0.5, 1.0)} | {0.1: MimeLite(beta=0.9)},
        "MoFedSAM": {b: MoFedSAM(0.5, beta=b) for b in (0.01, 0.1, 0.2, 0.5, 1.0)},
    }
    assert betas == {n: {b: (PlannedRun(a, settings),) for b, a in curve.items()} for n, curve in mixed.items()}


def test_the_cells_are_means_and_deviations_over_clients_and_first_rounds_of_the_mean(tmp_path: Path):
    def record(number, train, validation):
        return {
            "round": number, "test_accuracy": 0.1,
            "client_train_accuracy": train, "client_train_accuracy_deviation": 0.02,
            "client_test_accuracy": validation, "client_test_accuracy_deviation": 0.05,
        }  # fmt: skip

    settings = {"clients": 100, "rounds": 3}
    metrics = [record(1, 0.7, 0.6), record(2, 0.9, 0.81), record(3, 0.92, 0.79)]
    run = RecordedRun(tmp_path, {"algorithm": {"name": "fedsam"}, "settings": settings}, metrics, {})
    printings = FEDSAM.recipes["T1"].printed()
    content = FEDSAM.recipes["T1"].content(PAPER)
    results = Results(dict.fromkeys(content.nodes(), run))
    products = {product.name: product for product in content.products(results, printings)}
    cells = {name: {row[0]: row[1:] for row in product.table.rows} for name, product in products.items()}
    assert cells["train"]["FedSAM"][:3] == ("92.00 ± 2.00", "95.73 ± 0.49", "-3.73")
    assert cells["validation"]["FedSAM"][:2] == ("79.00 ± 5.00", "84.75 ± 3.04")
    assert cells["rounds"]["FedSAM"] == ("2", "38", "-36", "2", "269", "-267", "1", "245", "-244")
    assert cells["best"]["FedSAM"] == ("81.00", "81.00", "81.00")
    assert "over the clients" in products["train"].caption


def test_choices_reach_the_runs():
    choices = {
        "rounds": "3,4,5", "rho": "0.2,0.5,0.6", "lr": "0.03", "client-test": "reweighted", "augment": "none",
        "partition": "dirichlet-hsu", "server-lr": "0.25", "robust": "0.5,0.02", "gsam": "0.7", "emnist": "emnist_20",
        "resnet": "resnet18_bn",
    }  # fmt: skip
    panels = FEDSAM.recipes["F1"].content(Asked("paper", choices=choices, seeds=(7,))).panels
    runs = {data: {name: run for name, (run,) in curves.items()} for data, curves in panels.items()}
    assert [runs[data]["FedSAM"].algorithm.rho for data in runs] == [0.2, 0.5, 0.6]
    assert [runs[data]["FedSAM"].settings.rounds for data in runs] == [3, 4, 5]
    assert [runs[data]["FedAvg"].settings.data for data in runs] == ["emnist_20", "cifar10", "cifar100"]
    assert [runs[data]["FedAvg"].settings.model for data in runs] == ["cnn_emnist", "resnet18_bn", "resnet18_bn"]
    assert runs["CIFAR-10"]["MoFedSAM"].algorithm == MoFedSAM(0.5, beta=0.1, server_lr=0.25)
    assert runs["CIFAR-10"]["FedGSAM"].algorithm == FedGSAM(0.5, alpha=0.7)
    assert runs["CIFAR-10"]["FedRobust"].algorithm == FedRobust(lam=0.5, ascent_lr=0.02, structure="channel")
    settings = runs["CIFAR-10"]["FedAvg"].settings
    assert (settings.lr, settings.client_test, settings.augment) == (0.03, "reweighted", "none")
    assert (settings.partition, settings.seed) == ("dirichlet-hsu:0.6", 7)


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_smaller_scales_have_every_row_column_panel_and_curve(scale):
    for item in ("T1", "T2", "T3", "T4", "T5"):
        assert list(entries(item, Asked(scale))) == list(entries(item))
    for item in ("F1", "F2", "F4"):
        small, paper = (FEDSAM.recipes[item].content(Asked(at)).panels for at in (scale, "paper"))
        assert list(small) == list(paper)
    for item in ("F3", "F5", "F6"):
        small, paper = (FEDSAM.recipes[item].content(Asked(at)).panels for at in (scale, "paper"))
        assert {name: list(panel.curves) for name, panel in small.items()} == {
            name: list(panel.curves) for name, panel in paper.items()
        }
    nodes = with_runs(n for r in FEDSAM.recipes.values() for n in r.content(Asked(scale)).nodes())
    data = {"smoke": "digits", "small": "cifar10"}[scale]
    assert {run.settings.data for run in nodes if isinstance(run, PlannedRun)} == {data}


@pytest.mark.slow
def test_every_item_is_made_at_smoke_scale_of_few_rounds(tmp_path):
    choices = {
        "points": "5",
        "samples": "60",
        "shares": "0.2,0.4",
        "epochs": "1,2",
        "radii": "0.05,0.1",
        "betas": "0.1,1",
    }
    asked, store = Asked(rounds=3, choices=choices), Store(tmp_path)
    outcome = execute([n for r in FEDSAM.recipes.values() for n in r.content(asked).nodes()], store)
    assert (outcome.failed, outcome.blocked) == ({}, {})
    for recipe in FEDSAM.recipes.values():
        values = {node: store.result(node) for node in recipe.content(asked).nodes()}
        written = write_recipe(recipe, asked, Results(values), tmp_path / "out")
        captions = [file.read_text(encoding="utf-8") for file in written if file.name.endswith(".caption.txt")]
        assert captions
        assert all("SMOKE SCALE" in text and "digits" in text for text in captions)
    samples = (tmp_path / "out" / "smoke" / "fedsam" / "T3.md").read_text(encoding="utf-8")
    assert samples.count("1797") == 3  # 1,442 and 355 digits
