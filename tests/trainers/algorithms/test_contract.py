"""The contract between algorithms, executors and the federation."""

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

import trainers.algorithms
from landscape import FedscapeError, ParameterSpace, Partition
from landscape.autograd.flat import FlatModule
from tests.trainers.federations import SIZES, dropout_net, federation, net, partition, samples
from tests.trainers.usual import USUAL
from trainers import (
    ALGORITHMS,
    ASAM,
    GSAM,
    SAM,
    FedASAM,
    FedAvg,
    FedDC,
    FedLESAM,
    FedSAM,
    Mean,
    Round,
    Scaffold,
    State,
)
from trainers.algorithms import combinations, newer_combinations
from trainers.federation.aggregate import Aggregate
from trainers.federation.client_store import ClientStore
from trainers.federation.execution import SequentialExecutor
from trainers.federation.local import LocalWork, local_step
from trainers.parts import Surroundings

ROUND = Round(2, 0.1, 0.4, steps=3)


def algorithms(fast=tuple(ALGORITHMS)):
    return [
        pytest.param(kind(), id=name, marks=() if name in fast else pytest.mark.slow)
        for name, kind in ALGORITHMS.items()
    ]


@pytest.mark.parametrize("algorithm", algorithms())
def test_stacked_clients_advance_as_they_would_alone(algorithm):
    """The same text serves [d] and [S, d]: nothing in an algorithm relies on one client at a time."""
    space, d, clients = ParameterSpace.of(net()), ParameterSpace.of(net()).dimension, 4
    draw = torch.Generator().manual_seed(0)
    w, slopes = (torch.randn(clients, d, generator=draw, dtype=torch.float64) for _ in range(2))
    start = torch.randn(d, generator=draw, dtype=torch.float64)

    def states():
        received = State.of({"w": start, **algorithm.server_state(start)})
        for name in algorithm.server_state(start):
            setattr(received, name, torch.randn(d, generator=draw, dtype=torch.float64))
        return received

    part = algorithm.ascent

    def gradient_of(slope, client):
        plain = lambda p: slope * p + p**3  # noqa: E731
        around = Surroundings(space, client, received, batch=Divergence(slope))
        return plain if part is None else lambda p: part.gradient(p, plain, around)

    class Divergence:
        def __init__(self, slope):
            self.slope = slope

        def divergence(self, w, reference, temperature):
            return self.slope * (w - reference) / temperature

    class Data:
        def __init__(self, slope):
            self.slope = slope

        def gradient(self, w):
            return self.slope * w

    received = states()
    initial = algorithm.client_state(start) | ({} if part is None else part.client_state(start))
    kept = {
        name: torch.randn(clients, *value.shape, generator=draw, dtype=torch.float64) for name, value in initial.items()
    }
    if algorithm.two_phases:
        asked = [algorithm.ask(State.of({}), received, Data(slope), ROUND) for slope in slopes]
        mean = Mean(**{name: torch.stack([one[name] for one in asked]).mean(dim=0) for name in asked[0]})
        vars(received).update(algorithm.answer(State.of(received.tensors()), mean, ROUND))
    together = State.of(dict(kept))
    algorithm.prepare(together, received, Data(slopes), ROUND)
    stepped = local_step(w, gradient_of(slopes, together), algorithm, together, received, ROUND, 0.01)
    uploaded = algorithm.upload(stepped, together, received, ROUND, 3)
    if part is not None:
        part.remember(together, received)
    for i in range(clients):
        alone = State.of({name: value[i] for name, value in kept.items()})
        algorithm.prepare(alone, received, Data(slopes[i]), ROUND)
        one = local_step(w[i], gradient_of(slopes[i], alone), algorithm, alone, received, ROUND, 0.01)
        torch.testing.assert_close(stepped[i], one, rtol=1e-13, atol=1e-14)
        for name, tensor in algorithm.upload(one, alone, received, ROUND, 3).items():
            torch.testing.assert_close(uploaded[name][i], tensor, rtol=1e-12, atol=1e-13)
        if part is not None:
            part.remember(alone, received)
        for name in kept:
            torch.testing.assert_close(getattr(together, name)[i], getattr(alone, name), rtol=1e-12, atol=1e-13)


TRAFFIC = dict.fromkeys(ALGORITHMS, (1, 1)) | {
    "scaffold": (2, 2),
    "feddc": (2, 2),
    "fedcm": (2, 1),
    "mimelite": (2, 2),
    "mime": (3, 2),
    "ghbm": (2, 1),
    "mofedsam": (2, 1),
    "fedsmoo": (2, 2),
    "fedgamma": (2, 2),
    "centralised": (0, 0),
    "fedgf": (2, 1),
    "fedwmsam": (2, 1),
}
"""Models down and up for each sampled client."""
NUMBERS = dict.fromkeys(ALGORITHMS, (0, 0)) | {
    "fednova": (0, 1),
    "fedexp": (0, 1),
    "fedgf": (1, 1),
    "fedwmsam": (1, 1),
}
"""Single numbers beside them."""


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_traffic_on_record_is_the_bytes_of_the_tensors_exchanged(name):
    ours, kind = federation(ALGORITHMS.get(name)()), ALGORITHMS.get(name)
    down, up, kept = [], [], kind().on_server
    plain_work, plain_ask = ours.executor.work, ours.executor.ask

    def size(message):
        return sum(t.numel() * t.element_size() for name, t in message.items() if name not in kept)

    class Watching:
        def ask(self, *arguments):
            for told in plain_ask(*arguments):
                up.append(sum(t.numel() * t.element_size() for t in told.upload.values()))
                yield told

        def work(self, clients, received, *rest):
            down.append(len(clients) * size(vars(received)))
            for result in plain_work(clients, received, *rest):
                up.append(size(result.upload))
                yield result

    ours.executor = Watching()
    record, model = ours.step(), ours.server.w.numel()
    numbers = [model * models + more for models, more in zip(TRAFFIC[name], NUMBERS[name], strict=True)]
    assert [record.bytes_down, record.bytes_up] == [3 * 8 * count for count in numbers]
    if not kind.pooled:
        assert (record.bytes_down, record.bytes_up) == (sum(down), sum(up))


@pytest.mark.parametrize(
    "kind", [FedLESAM(base="scaffold"), FedLESAM(base="feddyn"), FedDC(server_correction="sampled")]
)
def test_traffic_of_other_forms(kind):
    ours = federation(kind)
    record, models = ours.step(), 1 if kind == FedLESAM(base="feddyn") else 2
    assert (record.bytes_down, record.bytes_up) == (3 * models * ours.server.w.nbytes,) * 2


def test_each_algorithm_is_one_documented_file_or_a_row_of_the_named_combinations():
    folder = Path(inspect.getfile(trainers.algorithms)).parent
    for name, kind in ALGORITHMS.items():
        rows = [module for module in (combinations, newer_combinations) if kind in vars(module).values()]
        file = folder / f"{name}.py" if not hasattr(kind, "sources") else Path(inspect.getfile(rows[0]))
        assert Path(inspect.getfile(kind)) == file
        assert "Traffic" in kind.__doc__
        assert kind.paper


def test_drift_is_the_mean_squared_distance_from_the_new_server_model():
    """(1/n) Σ ‖w_i^t − w^{t+1}‖², Sun et al. 2023, section 5."""
    ours = federation(FedAvg(0.6))
    locals_, plain_work = [], ours.executor.work

    class Recording:
        def work(self, *arguments):
            for result in plain_work(*arguments):
                locals_.append(result.model)
                yield result

    ours.executor = Recording()
    record = ours.step()
    expected = sum(((w - ours.server.w) ** 2).sum().item() for w in locals_) / len(locals_)
    assert record.drift == pytest.approx(expected, rel=1e-12)


def test_drift_survives_a_large_common_offset_in_float32():
    models = [
        torch.full((1000,), 100.0) + 1e-3 * torch.randn(1000, generator=torch.Generator().manual_seed(i))
        for i in range(5)
    ]
    aggregate = Aggregate()
    for model in models:
        aggregate.add({"delta": model}, 0.2, model)
    centre = torch.stack([m.double() for m in models]).mean(0)
    expected = sum(((m.double() - centre) ** 2).sum().item() for m in models) / 5
    assert aggregate.drift(centre.float()) == pytest.approx(expected, rel=0.05)


def test_a_client_with_zero_weight_changes_nothing():
    with_it, without = Aggregate(), Aggregate()
    for weight, value in ((0.3, 1.0), (0.5, 2.0)):
        for aggregate in (with_it, without):
            aggregate.add({"delta": torch.full((4,), value)}, weight, torch.zeros(4))
    with_it.add({"delta": torch.full((4,), 99.0)}, 0, torch.zeros(4))
    assert torch.equal(with_it.mean().delta, without.mean().delta)


def test_a_sampled_client_with_zero_weight_leaves_the_servers_model():
    ours, plain = federation(FedAvg()), federation(FedAvg())
    work = ours.executor.work

    class WithAnother:
        def work(self, *arguments):
            for result in work(*arguments):
                yield result
            yield dataclasses.replace(result, client=-1, upload={"delta": torch.full_like(result.model, 99.0)})

    ours.executor = WithAnother()
    ours.weights = dataclasses.replace(ours.weights, objective=np.append(ours.weights.objective, 0.0))
    for _ in range(3):
        ours.step()
        plain.step()
    assert torch.equal(ours.server.w, plain.server.w)


@pytest.mark.parametrize("algorithm", algorithms(USUAL))
def test_weightings_agree_on_equal_sizes(algorithm):
    equal = Partition(tuple(np.split(np.arange(63), 7)))
    ends = []
    for weighting in ("samples", "uniform"):
        ours = federation(algorithm, split=equal, weighting=weighting)
        for _ in range(3):
            ours.step()
        ends.append(ours.server.w)
    torch.testing.assert_close(*ends, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("algorithm", algorithms(USUAL))
def test_renaming_clients_renames_them_and_nothing_else(algorithm):
    """The partition's order of clients decides ids and draws only: with all of them sampled, w is the same."""
    order = [4, 2, 6, 0, 5, 1, 3]
    renamed = Partition(tuple(partition().clients[i] for i in order))
    plain = federation(algorithm, per_round=len(SIZES))
    shuffled = federation(algorithm, per_round=len(SIZES), split=renamed)
    for _ in range(3):
        records = plain.step(), shuffled.step()
        assert records[1].drift == pytest.approx(records[0].drift, rel=1e-9)
        assert records[1].train_loss == pytest.approx(records[0].train_loss, rel=1e-9)
    torch.testing.assert_close(shuffled.server.w, plain.server.w, rtol=1e-10, atol=1e-12)
    for new, old in enumerate(order):
        mine, theirs = shuffled.store.fetch(new).tensors(), plain.store.fetch(old).tensors()
        for name in theirs:
            torch.testing.assert_close(mine[name], theirs[name], rtol=1e-8, atol=1e-10)


def test_store_keeps_only_what_the_client_began_with():
    store = ClientStore(lambda: {"c": torch.zeros(3)}, torch.device("cpu"))
    state = store.fetch(5)
    state.c, state.scratch = torch.ones(3), torch.ones(3)
    store.put(5, state)
    assert store.fetch(5).tensors().keys() == {"c"}
    assert torch.equal(store.fetch(5).c, torch.ones(3))
    assert torch.equal(store.fetch(6).c, torch.zeros(3))
    assert list(store.export()) == [5]


def test_training_loss_is_that_of_the_unperturbed_points():
    ours, plain = federation(FedSAM(0.5), local_epochs=1), federation(FedAvg(), local_epochs=1)
    assert ours.step().train_loss == plain.step().train_loss


def test_dropout_draws_depend_on_round_and_client_only():
    model = FlatModule(dropout_net(), torch.device("cpu"), torch.float64)
    executor = SequentialExecutor(model, samples(), partition(), FedAvg(), LocalWork(1, None, 0.0, "none", 0))
    received, store = State(w=model.buffer.clone()), ClientStore(dict, torch.device("cpu"))
    alone = [next(iter(executor.work([c], received, store, ROUND))).model for c in (2, 5)]
    together = [result.model for result in executor.work([2, 5], received, store, ROUND)]
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    other = next(iter(executor.work([2], received, store, Round(3, 0.1, 0.4)))).model
    assert not torch.equal(other, alone[0])


@pytest.mark.parametrize(
    "bad", [lambda: FedSAM(-1), lambda: FedASAM(0.5, -0.1), lambda: FedAvg(0), lambda: Scaffold(-1)]
)
def test_hyper_parameters_that_make_no_sense_are_refused(bad):
    with pytest.raises(FedscapeError, match="needs"):
        bad()


def test_a_zero_gradient_is_no_division_by_zero():
    space = ParameterSpace.of(net())
    w = torch.ones(space.dimension, dtype=torch.float64)
    around = Surroundings(space)
    for part in (FedSAM(0.5).ascent, FedASAM().ascent):
        assert torch.equal(part.gradient(w, torch.zeros_like, around), torch.zeros_like(w))


@pytest.mark.parametrize("part", [SAM(0.5), ASAM(0.5, 0.0), GSAM(0.5, 0.3)], ids=lambda p: type(p).__name__)
def test_a_tiny_gradient_is_no_large_perturbation(part):
    """In float32 the squares of a fitted client's gradients are 0 where the gradients are not."""
    space = ParameterSpace.of(net())
    w, slope = torch.ones(space.dimension), torch.randn(space.dimension, generator=torch.Generator().manual_seed(0))
    for exponent in range(45):
        asked = []
        part.gradient(
            w, lambda p, size=10.0**-exponent, asked=asked: (asked.append(p), size * slope)[1], Surroundings(space)
        )
        length = (asked[1] - asked[0]).norm().item()
        assert length < 0.5001
        assert length > 0.4999 or exponent > 12


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_shows_its_arithmetic_in_an_example(name):
    """``tests/test_examples.py`` runs them."""
    assert ">>>" in (ALGORITHMS.get(name).__doc__ or "")
