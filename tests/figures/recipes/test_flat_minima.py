"""The recipes of Caldarola et al., ECCV 2022, against the tables of the project's notes on that paper (its recipe)."""

import pytest

from figures.commands.make import Make, Selection, Work
from figures.contents.content import Together
from figures.contents.table import TableOf
from figures.graph import Measure
from figures.graph.nodes import with_runs
from figures.printed import printed_numbers
from figures.recipes import Asked
from figures.recipes.flat_minima import FLAT_MINIMA
from figures.recipes.recipe import SCALES, Order
from landscape import FedscapeError, load_dataset
from trainers.algorithms import algorithm_name
from trainers.federation import sampled_clients
from trainers.runs.planned import PlannedRun
from trainers.runs.records import RecordedRun

ITEMS = [f"F{i}" for i in range(1, 7)] + [f"T{i}" for i in range(1, 9)]
PAPER = Asked("paper", choices={"form": "paper"})  # that of the code is in test_form.py


def content(item, asked=PAPER):
    return FLAT_MINIMA.recipes[item].content(asked)


def tables(item, asked=PAPER):
    found = content(item, asked)
    parts = found.parts.values() if isinstance(found, Together) else [found]
    return [part for part in parts if isinstance(part, TableOf)]


def entry(item, row, column, asked=PAPER):
    return next(table.entries[row, column] for table in tables(item, asked) if (row, column) in table.entries)


def runs(item, asked=PAPER):
    return [node for node in with_runs(content(item, asked).nodes()) if isinstance(node, PlannedRun)]


def run(item, row, column, asked=PAPER):
    (found, *_) = with_runs(entry(item, row, column, asked).nodes)
    return found


def test_every_figure_and_table_of_the_paper_is_declared_in_its_order():
    assert list(FLAT_MINIMA.recipes) == ITEMS


@pytest.mark.parametrize("item", ITEMS)
def test_every_printed_number_has_its_cell(item):
    printed = FLAT_MINIMA.recipes[item].printed()
    if item == "F1":  # the ends of colour bars, not cells of a table
        assert len(printed) == 8
        return
    cells = {place for table in tables(item) for place in table.entries}
    assert printed.keys() <= cells


def test_the_numbers_of_the_text_stand_in_figure_4_and_table_6():
    found = {place for item in ("F4", "T6") for place in FLAT_MINIMA.recipes[item].printed()}
    told = [(row, column) for item, row, column in printed_numbers("flat-minima") if item.startswith("text")]
    assert len(told) == 4
    assert set(told) <= found


CIFAR = {
    # section 1 of the notes: rounds, clients, E, batch, rate, decay, model, augmentation; section 3: T2's α
    "clients": 100, "local_epochs": 1, "batch_size": 64, "lr": 0.01, "lr_decay": 1.0, "weight_decay": 4e-4, "clip": 0.0,
    "model": "lenet_fed", "augment": "flip-crop", "sampling": "exact", "weighting": "samples",
    "aggregation": "ratio", "last_batch": "keep", "evaluated_model": "server", "seed": 0,
}  # fmt: skip


@pytest.mark.parametrize("clients", [5, 10, 20])
@pytest.mark.parametrize(
    ("cifar", "data", "alphas", "rounds"),
    [("CIFAR10", "cifar10", ("0", "0.05", "100"), 10_000), ("CIFAR100", "cifar100", ("0", "0.5", "1000"), 20_000)],
)
def test_table_2_has_the_papers_protocol(cifar, data, alphas, rounds, clients):
    for alpha in alphas:
        settings = run("T2", "FedASAM", f"{cifar} alpha={alpha} {clients}cl").settings
        wanted = CIFAR | {
            "data": data, "rounds": rounds, "per_round": clients, "partition": f"dirichlet-hsu:{alpha}"
        }  # fmt: skip
        assert {name: getattr(settings, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("row", "name", "hyper", "parts"),
    [  # section 2 of the notes, the column of CIFAR-10
        ("FedAvg E=1", "fedavg", {}, {}),
        ("FedSAM", "fedsam", {"rho": 0.1}, {}),
        ("FedASAM", "fedasam", {"rho": 0.7, "eta": 0.2}, {}),
        (
            "FedSAM+SWA", "fedsam", {"rho": 0.1},
            {"swa": {"name": "swa", "start": 0.75, "cycle": 10, "lr": 1e-4, "variant": "paper"}},
        ),
    ],
)  # fmt: skip
def test_table_2_has_the_papers_hyper_parameters_on_cifar_10(row, name, hyper, parts):
    found = run("T2", row, "CIFAR10 alpha=0 5cl")
    assert algorithm_name(found.algorithm) == name
    assert found.parts.recorded() == parts
    assert hyper.items() <= found.algorithm.hyper_parameters().items()


def test_fedavg_with_two_epochs_differs_in_them_only():
    one, two = (run("T2", f"FedAvg E={e}", "CIFAR10 alpha=0.05 10cl") for e in (1, 2))
    assert (one.settings.local_epochs, two.settings.local_epochs) == (1, 2)
    assert two.content["settings"] | {"local_epochs": 1} == one.content["settings"]


def test_mixup_and_cutout_of_table_4_are_those_of_section_2():
    mixed, cut = (run("T4", f"FedSAM+SWA {name}", "CIFAR100 alpha=0 5cl").parts for name in ("mixup", "cutout"))
    assert (mixed.mixup, mixed.cutout, cut.mixup, cut.cutout) == (True, 0, False, 16)


def test_table_3_has_reddis_clients_and_half_and_all_of_10000_rounds():
    found = run("T3", "FedSAM cutout", "E=2 20cl w/ SWA")  # section 4 of the notes, T3
    settings = found.settings
    assert (settings.data, settings.partition, settings.clients) == ("cifar100_pam", "natural", 500)
    assert (settings.rounds, settings.local_epochs, settings.per_round) == (10_000, 2, 20)
    assert settings.model == "resnet18_gn"
    assert found.parts.swa.start == 0.75
    half, whole = (entry("T3", "FedSAM", f"E=1 10cl @{n}k") for n in (5, 10))
    assert half.nodes == whole.nodes
    assert half.nodes[0].parts.swa is None


def test_table_3_reads_the_accuracy_of_5000_rounds_from_the_run_of_10000(recorded):
    half, whole = (entry("T3", "FedSAM", f"E=1 10cl @{n}k").value for n in (5, 10))
    found = recorded([{"round": n, "test_accuracy": n / 10_000} for n in range(10, 10_001, 10)])
    # the mean over the ten evaluations of rounds 4901 to 5000, and of 9901 to 10,000
    assert (half(found), whole(found)) == (pytest.approx(49.55), pytest.approx(99.55))


@pytest.fixture
def recorded(tmp_path):
    def make(metrics, status="finished"):
        settings = {"rounds": metrics[-1]["round"], "data": "digits", "data_dir": ""}
        return RecordedRun(tmp_path, {"algorithm": {"name": "x"}, "settings": settings}, metrics, {"status": status})

    return make


def test_gains_of_table_5_recompute_from_the_printed_accuracies(recorded):
    accuracies = {"SAM": (55.22, 31.04), "ASAM": (55.66, 36.04), "reference": (52.20, 30.25)}
    printed = FLAT_MINIMA.recipes["T5"].printed()
    for place, (where, last) in enumerate((("centralised", "test_accuracy"), ("federated", "test_accuracy"))):
        mine, reference = (
            recorded([{"round": 20_000, last: accuracies[row][place] / 100}]) for row in ("ASAM", "reference")
        )
        for kind in ("absolute", "relative"):
            joint = entry("T5", "ASAM", f"{where} {kind} gain")
            assert len(joint.nodes) == 2
            wanted = printed["ASAM", f"{where} {kind} gain"].value
            assert joint.value([mine, reference]) == pytest.approx(wanted, abs=0.006)
    assert (
        entry("T5", "ASAM", "federated absolute gain").value([recorded([{"round": 1}], "diverged")] * 2) == "diverged"
    )


def test_centralised_runs_hold_all_data_and_cells_of_tables_2_and_4_are_those_of_table_5():
    central = run("T5", "ASAM+SWA", "centralised accuracy")
    assert algorithm_name(central.algorithm) == "centralised"
    assert {"ascent", "swa"} == set(central.parts.chosen())
    column = "federated alpha=0 5cl accuracy"
    assert run("T5", "ASAM+SWA", column) == run("T2", "FedASAM+SWA", "CIFAR100 alpha=0 5cl")
    assert run("T5", "Mixup", column) == run("T4", "FedAvg mixup", "CIFAR100 alpha=0 5cl")


def test_table_6_combines_every_algorithm_with_asam_and_swa():
    column = "CIFAR10 w/ SWA alpha=0.05 20cl"
    names = {"FedAvgM": "fedavgm", "FedProx": "fedprox", "SCAFFOLD": "scaffold", "AdaBest": "adabest"}
    for row, name in names.items():
        plain, steep = run("T6", row, column), run("T6", f"{row}+ASAM", column)
        assert algorithm_name(plain.algorithm) == name
        assert set(plain.parts.chosen()) == {"swa"}
        assert steep.parts.recorded()["ascent"] == {"name": "asam", "rho": 0.7, "eta": 0.2}
    sam = run("T6", "FedDyn+SAM", column)  # section 5, contradiction 6
    assert sam.parts.recorded()["ascent"] == {"name": "sam", "rho": 0.1}
    assert run("T6", "FedDyn+ASAM", "CIFAR100 w/o SWA alpha=0 5cl").settings.clip == 1.0
    assert run("T6", "FedAvg", "CIFAR10 w/o SWA alpha=0 5cl") == run("T2", "FedAvg E=1", "CIFAR10 alpha=0 5cl")


def test_a_cell_with_swa_is_judged_by_the_mean_model(recorded):
    found = recorded([{"round": 1, "test_accuracy": 0.1, "swa_test_accuracy": 0.6}])
    plain, averaged = (entry("T2", row, "CIFAR10 alpha=0 5cl") for row in ("FedAvg E=1", "FedAvg+SWA"))
    assert plain.remark(found) == "at chance: 10.00 % of 10 classes"
    assert averaged.remark(found) is None
    assert (plain.value(found), averaged.value(found)) == (10.0, 60.0)


def test_swa_100_of_table_7_averages_after_the_rounds_of_the_others():
    early, late = (run("T7", "FedSAM", f"w/ SWA {share}") for share in (75, 100))
    assert (early.settings.rounds, early.parts.swa.start) == (5000, 0.75)
    assert late.settings.rounds == 6250
    assert late.parts.swa.start * 6250 == pytest.approx(5000)
    assert not late.parts.swa.captures(5000, 6250)
    assert late.parts.swa.captures(5010, 6250)
    assert (early.settings.data, early.settings.model) == ("landmarks", "mobilenet_v2_gn")


def test_table_8_trains_once_for_seen_and_unseen_domains_and_silobn_keeps_statistics():
    seen, unseen = (entry("T8", "SiloBN+ASAM [heterogeneous]", f"IDDA rainy {which}") for which in ("seen", "unseen"))
    (node,) = seen.nodes
    assert isinstance(node, Measure)
    assert node.models[0].run == unseen.nodes[0]
    assert node.options["data"] == "idda_rainy_seen"
    assert unseen.nodes[0].settings.data == "idda_rainy"
    settings = unseen.nodes[0].settings
    assert (settings.rounds, settings.batchnorm, settings.partition) == (1500, "silo", "natural")
    assert run("T8", "FedAvg [uniform]", "Cityscapes").settings.partition == "iid"
    assert run("T8", "FedAvg [heterogeneous]", "Cityscapes").settings.batchnorm == "average"


def test_surfaces_spectra_and_the_table_of_eigenvalues_share_their_runs_at_the_small_scale():
    small = Asked("small")
    assert set(runs("F1", small)) <= set(runs("F5", small)) == set(runs("T1", small))
    for each in runs("F5", small):
        settings = each.settings
        assert (settings.data, settings.model, settings.rounds, settings.per_round) == ("cifar10", "lenet_fed", 100, 5)
        assert settings.partition in ("dirichlet-hsu:0", "dirichlet-hsu:100")
    assert {node.key for node in content("F5", small).nodes()} == {node.key for node in content("T1", small).nodes()}


def test_figure_1_shows_fedavg_and_fedasam_at_both_ends_of_alpha():
    surfaces = content("F1")
    assert list(surfaces.panels) == ["FedAvg, α = 0", "FedASAM, α = 0", "FedAvg, α = 1000", "FedASAM, α = 1000"]
    assert list(surfaces.cap.values()) == [10, 10, 10, 20]  # section 3: read off the colour bars
    assert all(node.options["normalisation"] == "filter" for node in surfaces.nodes())


@pytest.mark.parametrize("scale", SCALES)
def test_figure_2_goes_through_models_with_one_initialisation_and_through_local_models(scale):
    planes = list(content("F2", Asked(scale)).panels.values())
    models = planes[0][0].models
    assert len({model.run.settings.partition for model in models}) == 3
    assert len({model.run.settings.seed for model in models}) == 1
    assert [(quantity, split) for _, quantity, split in planes] == [("loss", "train"), *[("error", "test")] * 3]
    for node, *_ in planes[2:]:
        assert len({model.client for model in node.models}) == 3
        for model in node.models:
            assert model.client in sampled_clients(model.run.settings, model.which)
            assert model.run.settings.save_clients
            assert model.which % model.run.settings.save_every == 0
    if scale != "smoke":  # of one round
        assert {model.which for model in planes[2][0].models} == {models[0].run.settings.rounds}


def test_figure_3_gives_alpha_0_ten_times_the_rounds():
    (curves,) = content("F3").parts["c"].panels.values()
    rounds = {label: runs[0].settings.rounds for label, runs in curves.items()}
    assert rounds == {"α = 0": 200_000, "α = 0.5": 20_000, "α = 1000": 20_000}


def test_figure_4_measures_each_clients_own_model_on_runs_that_keep_them():
    for node in content("F4").nodes():
        kept = node.models[0].run.settings
        assert kept.save_clients
        assert kept.rounds % kept.save_every == 0
        assert node.kind == "hessian" or node.options["local"]


def test_figure_6_is_of_20_clients_with_alpha_0_at_severity_5():
    for node in content("F6").nodes():
        assert node.options == {"severities": (5,)}
        assert (node.models[0].run.settings.per_round, node.models[0].run.settings.partition) == (20, "dirichlet-hsu:0")


@pytest.mark.parametrize("item", ITEMS)
def test_smoke_and_small_have_the_rows_of_the_paper(item):
    def rows(scale):
        return {row for table in tables(item, Asked(scale)) for row, _ in table.entries}

    assert rows("smoke") == rows("paper")
    assert rows("small") <= rows("paper")  # FedDyn+ASAM is of CIFAR-100 alone


def test_choices_that_share_runs_are_left_open_in_all_items_that_use_them():
    for item in ("F5", "T1", "T2", "T6"):
        given = Asked("paper", choices={"rho100": "0.02"})
        found = [each for each in runs(item, given) if algorithm_name(each.algorithm) == "fedsam"]
        radii = {each.algorithm.hyper_parameters()["rho"] for each in found if each.settings.data == "cifar100"}
        assert radii == {0.02}
    assert Order(FLAT_MINIMA.recipes["T2"], PAPER).choice("rho100") == 0.05


@pytest.mark.slow
@pytest.mark.parametrize("item", ITEMS)
def test_smoke_is_made(item, tmp_path):
    assert Make((f"flat-minima/{item}",), Selection(out=tmp_path), Work(quiet=True)).run() == 0
    assert list((tmp_path / "smoke" / "flat-minima").glob(f"{item}*.caption.txt"))


def test_generated_scenes_of_one_place_are_trained_on_the_same_images_and_tested_in_other_domains():
    for name in ("country", "rainy"):
        unseen, seen = (load_dataset(f"figures.generated:{name}{which}") for which in ("", "_seen"))
        assert unseen.train.inputs.equal(seen.train.inputs)
        lights = [each.test.inputs.double().mean() - seen.train.inputs.double().mean() for each in (unseen, seen)]
        assert abs(lights[0]) > 30 > 10 > abs(lights[1])


def test_a_round_without_three_clients_is_refused_with_what_to_give():
    with pytest.raises(FedscapeError, match=r"^1 rounds train 1 clients, of which clients=0,1,2 .*more --rounds"):
        content("F2", Asked("smoke", rounds=1))
