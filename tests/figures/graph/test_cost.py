"""Costs: by hand, against finished runs, corrected by them, and without loading data."""

import time
from dataclasses import replace

import pytest

import figures.graph.cost as cost
from figures.graph import FileModel, Measure, Place, RunModel, Store
from figures.graph.cost import Costs, duration, gradients_a_step, shapes_seconds
from figures.graph.kinds import KINDS
from landscape import load_dataset
from tests.figures.graph.small import planned, spectrum
from trainers import ALGORITHMS, SAM, SWA, Centralised, FedAvg, FedSAM, Parts, Settings, train
from trainers.runs import PlannedRun

CIFAR = Settings(
    data="cifar10", model="lenet_fed", clients=100, per_round=10, rounds=20, local_epochs=2, batch_size=50,
    eval_every=5, save_every=5,
)  # fmt: skip


@pytest.fixture
def round_numbers(monkeypatch):
    """Speeds and overheads to reckon with."""
    monkeypatch.setitem(cost.SPEEDS, "lenet_fed", cost.Speed((3, 32, 32), 0.5, 0.001, 0.0001, 0.01))
    for name in ("ROUND", "CLIENT", "MEASUREMENT"):
        monkeypatch.setattr(cost, name, 0.0)


def test_a_run_costs_its_gradients_and_evaluations(round_numbers):
    """20 rounds × 10 clients × 2 epochs of 500 samples in steps of 50; 2 + 20/5 evaluations of 10,000."""
    steps, samples = 20 * 10 * 2 * 10, 20 * 10 * 2 * 500
    tests = 6 * 10_000 * 0.0001
    assert shapes_seconds(PlannedRun(FedAvg(), CIFAR)) == pytest.approx(steps * 0.5 + samples * 0.001 + tests)
    twice = PlannedRun(FedSAM(0.1), CIFAR, Parts(swa=SWA(cycle=2)))
    assert shapes_seconds(twice) == pytest.approx(2 * (steps * 0.5 + samples * 0.001) + 2 * tests)
    few = PlannedRun(FedAvg(), replace(CIFAR, local_steps=3))
    assert shapes_seconds(few) == pytest.approx(20 * 10 * 3 * (0.5 + 50 * 0.001) + tests)
    full = PlannedRun(FedAvg(), replace(CIFAR, batch_size="full"))
    assert shapes_seconds(full) == pytest.approx(20 * 10 * 2 * (0.5 + 500 * 0.001) + tests)
    by_client = PlannedRun(FedAvg(), replace(CIFAR, client_accuracy=10))
    assert shapes_seconds(by_client) == pytest.approx(shapes_seconds(PlannedRun(FedAvg(), CIFAR)) + 2 * 60_000 * 0.0001)
    pooled = PlannedRun(Centralised(), CIFAR)
    assert shapes_seconds(pooled) == pytest.approx(20 * 2 * (1000 * 0.5 + 50_000 * 0.001) + tests)


def test_a_measurement_costs_its_products_and_evaluations(round_numbers):
    run = PlannedRun(FedAvg(), CIFAR)
    last, kept = RunModel(run), RunModel(run, "rounds")
    hessian = Measure("hessian", (last,), {"top": 5, "trace": False, "samples": 2000})
    assert shapes_seconds(hessian) == pytest.approx(cost.lanczos_products(5) * 2000 * 0.01)
    loss = Measure("surface", (last,), {"points": 11, "exact": True, "samples": 1000, "test": True})
    assert shapes_seconds(loss) == pytest.approx(121 * (1000 + 10_000) * 0.0001)
    assert shapes_seconds(Measure("evaluation", (last,), {"split": "test"})) == pytest.approx(1.0)
    assert shapes_seconds(Measure("client-accuracy", (kept,))) == pytest.approx(5 * 60_000 * 0.0001)
    assert shapes_seconds(Measure("client-accuracy", (kept,), {"every": 10})) == pytest.approx(3 * 60_000 * 0.0001)
    eigenvalues = Measure("client-eigenvalues", (kept,), {"local": True, "every": 10})
    assert shapes_seconds(eigenvalues) == pytest.approx(2 * 10 * cost.lanczos_products(1) * (0.5 + 500 * 0.01))
    corrupted = Measure("corruptions", (last,), {"corruptions": ("fog", "frost"), "severities": (5,)})
    assert shapes_seconds(corrupted) == pytest.approx(3 * 10_000 * 0.0001)


def test_every_kind_of_measurement_has_a_cost():
    assert cost._KINDS.keys() == KINDS.keys()


def test_inputs_of_other_sizes_cost_as_their_pixels(round_numbers):
    larger = replace(CIFAR, data="tiny_imagenet", eval_every=0)
    pixels, twice = 4, 2  # 64² to 32²; 100,000 samples to 50,000
    plain = 20 * 10 * 2 * (10 * 0.5 + 500 * 0.001) + 2 * 10_000 * 0.0001
    assert shapes_seconds(PlannedRun(FedAvg(), replace(CIFAR, eval_every=0))) == pytest.approx(plain)
    expected = 20 * 10 * 2 * (twice * 10 * 0.5 + twice * 500 * 0.001 * pixels) + 2 * 10_000 * 0.0001 * pixels
    assert shapes_seconds(PlannedRun(FedAvg(), larger)) == pytest.approx(expected)


@pytest.mark.parametrize("change", [{"data": "my.npz"}, {"model": "mine:net"}])
def test_what_is_not_in_the_tables_is_not_known(change, tmp_path):
    run = PlannedRun(FedAvg(), replace(CIFAR, **change))
    assert shapes_seconds(run) is None
    assert Costs(Store(tmp_path)).seconds([planned(), run]) is None
    assert [Costs(Store(tmp_path)).text(nodes) for nodes in ([planned()], [run, planned()], [run])] == [
        "0:01",
        ">0:01",
        "?",
    ]
    assert shapes_seconds(Measure("evaluation", (FileModel(tmp_path, "a"),))) is None


def test_nothing_is_loaded(monkeypatch):
    monkeypatch.setattr("trainers.runs.objects.load_dataset", None)  # would fail if it were called
    monkeypatch.setattr("landscape.datasets.load_dataset", None)
    run = PlannedRun(FedAvg(), replace(CIFAR, data="cityscapes", model="bisenet_v2"))
    assert shapes_seconds(run) > 3600


def test_digits_are_as_large_as_the_table_says():
    digits, told = load_dataset("digits"), cost.SIZES["digits"]
    assert (len(digits.train), len(digits.test), tuple(digits.input_shape)) == (told.train, told.test, told.shape)


def test_fifteen_hundred_nodes_are_reckoned_at_once(tmp_path):
    runs = [PlannedRun(FedSAM(k / 1000), CIFAR) for k in range(1, 751)]
    nodes = [*runs, *map(spectrum, runs)]
    best = 10.0
    for _ in range(3):
        start = time.perf_counter()
        assert Costs(Store(tmp_path), nodes).seconds(nodes) > 0
        best = min(best, time.perf_counter() - start)
    assert best < 2


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_gradients_a_step_are_those_that_runs_record(name, tmp_path):
    algorithm = ALGORITHMS.get(name)()
    settings = Settings(rounds=2, clients=4, per_round=2, local_steps=2, device="cpu", eval_every=0, save_every=0)
    last = train(algorithm, settings, out=tmp_path / "run").metrics[-1]
    assert gradients_a_step(algorithm, Parts()) == last["gradients"] / last["steps"]


def test_counting_gradients_leaves_the_random_numbers_alone():
    import torch

    torch.manual_seed(3)
    before = torch.get_rng_state()
    gradients_a_step(FedAvg(server_lr=0.123), Parts(ascent=SAM(0.321)))
    assert torch.equal(before, torch.get_rng_state())


def test_finished_nodes_correct_the_speed_of_their_sort_alone(tmp_path):
    store, first, second = Store(tmp_path), planned(), planned(seed=1)
    other = PlannedRun(FedAvg(), CIFAR)
    store.make(first, Place("cpu"))
    corrected = Costs(store, [first, second, other])
    assert corrected.seconds([first]) == pytest.approx(store.seconds(first))
    assert corrected.seconds([second]) == pytest.approx(store.seconds(first))
    assert corrected.seconds([second, second]) == corrected.seconds([second])
    assert corrected.seconds([other]) == shapes_seconds(other)
    assert corrected.seconds([spectrum(first)]) == shapes_seconds(spectrum(first))


@pytest.mark.slow
def test_smoke_nodes_cost_what_is_told_within_a_factor_of_three(tmp_path):
    """By the processor's clock: other work on the machine counts in no table."""
    store = Store(tmp_path)
    smoke = {"rounds": 40, "clients": 20, "per_round": 4, "eval_every": 5, "save_every": 0}
    runs = [planned(algorithm, **smoke) for algorithm in (FedAvg(), FedSAM(0.1))]
    density = Measure("hessian", (RunModel(runs[0]),), {"top": 5, "density": True})
    loss = Measure("surface", (RunModel(runs[0]),), {"points": 21, "exact": True, "workers": 1})
    spectra = Measure("hessian", (RunModel(runs[0]),), {"top": 5})
    for node in (*runs, spectra, loss, density):
        start = time.process_time()
        store.make(node, Place("cpu"))
        taken = time.process_time() - start
        assert 1 / 3 < taken / shapes_seconds(node) < 3, (node.name, taken, shapes_seconds(node))


def test_durations_are_hours_and_minutes():
    assert [duration(s) for s in (0, 0.1, 60, 61, 3599, 3600, 360_000)] == [
        "0:00", "0:01", "0:01", "0:02", "1:00", "1:00", "100:00",
    ]  # fmt: skip
