"""Steps that are recorded and replayed are those of one client after the other, to rounding: in float64 to 1e-10.

No GPU is needed: a tape of the step's operations stands in for the CUDA graph, and a watch refuses all that a graph
cannot hold, so that what is left for a GPU is PyTorch's own capture and replay.
"""

import gc
import json
import weakref
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from landscape import FedscapeError, Partition
from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.compute.graphs import Again, NotCapturable, OnlyCapturable
from landscape.compute.precision import Precision
from tests.tape import Alive, Tape
from tests.trainers.federation.test_batched import (
    PARTS,
    RAGGED,
    SETTINGS,
    CountsSteps,
    at_once,
    dense_net,
    image_net,
    images,
    require_equal,
)  # fmt: skip
from tests.trainers.federations import dropout_net, federation, samples
from tests.trainers.usual import usual
from trainers import (
    LESAM,
    MAN,
    SAM,
    ClientPrivacy,
    FedAvg,
    FedGloSS,
    FedProx,
    FedSMOO,
    Linear,
    LocalMomentum,
    Mean,
    Normalised,
    Parts,
    Relaxed,
    Scaffold,
    Settings,
    train,
)
from trainers.algorithm import Algorithm, Round, State
from trainers.algorithms import ALGORITHMS
from trainers.federation import Federation, GraphsExecutor
from trainers.federation.choice import choose
from trainers.federation.execution import Begun
from trainers.federation.graphs import refusal
from trainers.federation.local import LocalWork, _drawing
from trainers.federation.static import StaticStep, plan
from trainers.parts import Affine

ROUNDS = 2


def recorded(one_by_one: Federation, record=Tape) -> Federation:
    """The same federation whose steps are recorded; nothing may happen in them that a CUDA graph cannot hold."""
    executor = one_by_one.executor
    model = FlatModule(executor._model.module, torch.device("cpu"), executor._model.dtype)
    clients = Partition(tuple(indices.numpy() for indices in executor._indices))
    graphs = GraphsExecutor(model, executor._data, clients, one_by_one.algorithm, executor._local, record)
    start, statistics, parts = one_by_one._initial, one_by_one.statistics, one_by_one.parts
    return Federation(one_by_one.algorithm, graphs, one_by_one.settings, start, parts, statistics)


def both(algorithm, parts=None, *, rounds=ROUNDS, **changes):
    """One federation after some rounds in either way, and the records of the rounds."""
    first = federation(algorithm, parts, **{**RAGGED, **changes})
    second = recorded(first)
    return first, second, [(first.step(), second.step()) for _ in range(rounds)]


@pytest.mark.parametrize("name", usual(name for name, _ in ALGORITHMS.items()))
def test_every_algorithm_with_unequal_clients(name):
    require_equal(*both(dict(ALGORITHMS.items())[name]()))


@pytest.mark.parametrize("name", PARTS)
def test_every_part(name):
    require_equal(*both(FedAvg(), PARTS[name], weight_decay=1e-2))


@pytest.mark.parametrize("algorithm", [FedProx(mu=0.5), Scaffold()])
def test_starts_schedules_ascents_and_servers_of_a_kind_together(algorithm):
    """Where a_i counts in the algorithm's own terms, w^t in the ascent, the rate's fall in both and at the server."""
    parts = Parts(
        start=Relaxed(0.5, "models"), local_schedule=Linear(0.2), ascent=LESAM(0.1), server_optimizer=Normalised(0.5),
        local_optimizer=LocalMomentum(0.9),
    )  # fmt: skip
    require_equal(*both(algorithm, parts, rounds=3))


class OfPython(Linear):
    """A schedule that gives numbers of Python."""

    def share(self, step, steps):
        return 0.5


def test_a_schedule_of_numbers_is_refused(monkeypatch):
    parts = Parts(local_schedule=OfPython())
    with pytest.raises(NotCapturable, match="local schedule gives a number of Python"):
        recorded(federation(FedAvg(), parts, **RAGGED)).step()
    model, work = FlatModule(dense_net(), torch.device("cpu"), torch.float64), LocalWork(1, 4, 0.0, "none", 0)
    assert "of your own" in refusal(model, samples(), FedAvg(), replace(work, parts=parts))
    monkeypatch.setattr(OfPython, "__module__", "trainers.parts")
    assert "a number of Python" in refusal(model, samples(), FedAvg(), replace(work, parts=parts))


@pytest.mark.parametrize("structure", ["full", "channel"])
def test_adversaries(structure):
    require_equal(*both(FedAvg(), Parts(adversary=Affine(structure=structure, ascent_lr=0.5))))


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_of_local_work(name):
    require_equal(*both(FedSMOO(), weight_decay=1e-2, **SETTINGS[name]))


@pytest.mark.parametrize("parts", [Parts(), Parts(cutout=2, mixup=True), Parts(ascent=SAM(0.1))])
@pytest.mark.parametrize("augment", ["none", "flip-crop"])
def test_images_with_augmentation(parts, augment):
    require_equal(*both(Scaffold(), parts, module=image_net(False), data=images(), augment=augment))


@pytest.mark.parametrize("batchnorm", ["average", "silo"])
def test_running_statistics_of_batchnorm(batchnorm):
    split = Partition(tuple(np.split(np.arange(64), [10, 21, 24, 44, 50])))
    first, second, _ = both(
        FedAvg(), Parts(ascent=SAM(0.1)), module=image_net(True), data=images(), split=split, clients=6,
        batchnorm=batchnorm,
    )  # fmt: skip
    torch.testing.assert_close(second.statistics, first.statistics, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(second.server.w, first.server.w, rtol=1e-10, atol=1e-11)
    for client in range(6):
        for name, tensor in first.store.fetch(client).tensors().items():
            torch.testing.assert_close(getattr(second.store.fetch(client), name), tensor, rtol=1e-10, atol=1e-11)


class ReadsNumbers(Algorithm):
    """An algorithm whose direction follows the round, the share of clients, the rate, the step and their number."""

    paper = "none"

    def direction(self, w, gradient, client, server, round):
        return gradient(w) * (1 + round.number * round.participation * round.lr * (1 + round.step) / round.steps)


def test_a_recorded_step_has_the_numbers_of_its_own_round_client_and_step():
    require_equal(*both(ReadsNumbers(), sampling="bernoulli", rounds=4))
    require_equal(*both(FedGloSS(warmup=4), rounds=4))


def test_the_comparison_would_notice_numbers_of_the_first_round(monkeypatch):
    monkeypatch.setattr("trainers.federation.static._kept", lambda round: set())
    with pytest.raises(AssertionError):
        require_equal(*both(FedGloSS(warmup=4), rounds=4))


def counted(monkeypatch, algorithm, **changes):
    """How often Python computed a step in a run of three rounds, and the steps of each size."""
    calls, taken, advance, take = [], [], StaticStep._advance, StaticStep.take
    monkeypatch.setattr(StaticStep, "_advance", lambda self, n: (calls.append(n), advance(self, n))[1])
    monkeypatch.setattr(StaticStep, "take", lambda self, n: (taken.append(n), take(self, n))[1])
    both(algorithm, **changes)
    return calls, taken


def test_full_batches_are_recorded_once_and_short_ones_computed_each_time(monkeypatch):
    calls, taken = counted(monkeypatch, Scaffold())
    assert [n for n in calls if n != 4] == [n for n in taken if n != 4]
    # Once as it is, once to warm up, once recorded; all others are replays.
    assert calls.count(4) == 3 < taken.count(4)


def test_with_full_batches_the_most_common_size_is_recorded(monkeypatch):
    split = Partition(tuple(np.split(np.arange(64), [7, 14, 24, 31])))
    calls, taken = counted(monkeypatch, FedAvg(), split=split, clients=5, batch_size="full")
    assert calls.count(7) == 3 < taken.count(7)
    assert calls.count(10) == taken.count(10)


def test_recorded_steps_are_freed_with_their_executor_without_pythons_collector():
    """A CUDA graph holds the memory of a whole step, and may not be destroyed by chance while another is recorded."""
    made = []

    def record(work, warm):
        made.append(weakref.ref(found := Again.record(work, warm)))
        return found

    ours = recorded(federation(FedGloSS(warmup=4), **RAGGED), record)  # recorded anew in each round
    ours.step(), ours.step()
    gc.disable()
    try:
        assert [found() is None for found in made] == [True, False]
        del ours
        assert [found() for found in made] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("parts", [Parts(), Parts(man=MAN(0.1), mixup=True, ascent=SAM(0.1))])
def test_no_graph_of_autograd_is_left_where_a_step_is_recorded(parts):
    left = []

    def record(work, warm):
        gc.collect()  # as before a capture
        left.append(bool(alive))
        return Again.record(work, warm)

    ours = recorded(federation(Scaffold(), parts, module=image_net(False), data=images(), **RAGGED), record)
    alive = Alive(ours.executor._model.module)
    ours.step()
    assert left == [False]


class Waits(TorchDispatchMode):
    """Counts the values of tensors that Python asks for."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += torch.Tag.data_dependent_output in func.tags
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("way", [lambda made: made, at_once, recorded])
def test_how_often_a_round_waits_for_a_value_does_not_follow_the_number_of_clients(way):
    counts = []
    for clients in (1, 6):
        made = way(federation(FedSMOO(), **{**RAGGED, "per_round": clients, "save_clients": False}))
        made.step()  # the first round records
        with Waits() as waits:
            made.step()
        counts.append(waits.count)
    assert counts == [2, 2]  # the loss and the drift, at the round's end


class Stays:
    """A record that says where the step's results are after each replay."""

    def __init__(self, static, seen):
        self.static, self.seen = static, seen

    def __call__(self, work, warm):
        tape = Tape(work, warm)
        return SimpleNamespace(replay=lambda: (tape.replay(), self.note()))

    def note(self):
        self.seen.append([tensor.data_ptr() for tensor in self.static().changed])


def test_results_stay_in_the_memory_they_are_in():
    ours, seen = federation(FedSMOO(), **RAGGED), []
    second = recorded(ours, Stays(lambda: second.executor._static, seen))
    second.step(), second.step()
    assert len(seen) > 5
    assert all(places == seen[0] for places in seen)


def test_what_the_federation_keeps_is_not_the_memory_that_steps_overwrite():
    ours = recorded(federation(FedSMOO(), **RAGGED))
    ours.step()
    kept = {client: ours.store.fetch(client).tensors() for client in range(7)}
    before = {client: {name: t.clone() for name, t in state.items()} for client, state in kept.items()}
    for tensor in ours.executor._static.changed:
        tensor.zero_()
    assert all(torch.equal(t, before[client][name]) for client, state in kept.items() for name, t in state.items())


@pytest.mark.parametrize("name", usual(name for name, _ in ALGORITHMS.items()))
def test_no_step_fetches_anything_from_another_device(name, monkeypatch):
    """On the device that has no memory, whose steps any tensor of the CPU would be seen in."""
    algorithm, meta = dict(ALGORITHMS.items())[name](), torch.device("meta")
    schedule = None if algorithm.local_schedule else Linear(0.2)
    parts = Parts(cutout=2, mixup=True, man=MAN(0.1), local_schedule=schedule)
    local = LocalWork(1, 4, 1e-2, "flip-crop", 0, clip=0.1, parts=parts)
    model, data = FlatModule(image_net(True), meta, torch.float64), images().to("meta")
    static = StaticStep(
        model, data, algorithm, local, BatchStatistics(model.module), steps=3, batch=4, recorded=4, record=None
    )
    w, round = model.buffer, Round(1, 0.1, 0.5, steps=3)
    server = State.of({"w": w.clone(), **algorithm.server_state(w)})
    state = Federation(algorithm, SimpleNamespace(sizes=[64]), Settings(clients=1, per_round=1), w).store.fetch(0)
    received = State.of(algorithm.broadcast(server))
    zeros = SimpleNamespace(gradient=torch.zeros_like)
    if algorithm.two_phases:
        told = algorithm.ask(state, received, zeros, round)
        mean = Mean(**told, all_clients=State.of(told), steps=3.0, clients=1)
        received = State.of({**received.tensors(), **algorithm.answer(server, mean, round)})
    algorithm.prepare(state, received, zeros, round)
    if algorithm.adversary is not None:
        algorithm.adversary.begin(state, (1, 4, 4))
    batches = list(torch.arange(12).split(4))
    seen = received if algorithm.relaxed is None else algorithm.relaxed.begun(state, received)
    begun = Begun(algorithm.start(state, seen, round), state, seen, round, iter(batches), torch.Generator())
    static.begin(begun, received, plan(torch.arange(12), begun.batches, local, (1, 4, 4), begun.augmentation))
    monkeypatch.setattr(Precision, "forward", lambda *_: nullcontext())  # there is no autocast of this device
    static._advance(4)  # masks of parameters are made once
    with OnlyCapturable():
        static._advance(4)
    assert static.result()[0].device.type == "meta"


@pytest.mark.parametrize(
    ("algorithm", "module", "told"),
    [
        (FedAvg(), dropout_net(), "random numbers, as dropout does"),
        (FedAvg(), nn.Sequential(nn.BatchNorm1d(6, momentum=None), nn.Linear(6, 3)).double(), "Python waits"),
        (CountsSteps(), dense_net(), "of your own"),
    ],
)
def test_what_cannot_be_recorded_is_refused_with_the_reason(algorithm, module, told):
    model = FlatModule(module, torch.device("cpu"), torch.float64)
    before = model.buffer.clone(), [buffer.clone() for buffer in model.module.buffers()]
    assert told in refusal(model, samples(), algorithm, LocalWork(1, 4, 0.0, "none", 0))
    assert torch.equal(model.buffer, before[0])
    assert all(map(torch.equal, model.module.buffers(), before[1]))


def test_segmentation_and_streamed_samples_are_refused():
    model, work = FlatModule(dense_net(), torch.device("cpu"), torch.float64), LocalWork(1, 4, 0.0, "none", 0)
    assert "the task is segmentation" in refusal(model, samples(), FedAvg(), replace(work, task="segmentation"))
    assert "host memory" in refusal(model, samples().streamed("meta"), FedAvg(), work)


@pytest.mark.parametrize("capturing", [False, True])
def test_no_generator_is_asked_for_its_state_while_a_graph_is_recorded(capturing, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    cuda = torch.device("cuda", 0)
    assert (_drawing(cuda), _drawing(torch.device("cpu"))) == ([] if capturing else [cuda], [])


def test_privacy_is_no_reason_against_recording():
    model = FlatModule(dense_net(), torch.device("cpu"), torch.float64)
    work = LocalWork(1, 4, 0.0, "none", 0, parts=Parts(dp=ClientPrivacy(1.0)))
    assert refusal(model, samples(), FedAvg(), work) is None


@pytest.mark.slow
def test_every_algorithm_may_be_recorded():
    model = FlatModule(dense_net(), torch.device("cpu"), torch.float64)
    for name, algorithm in ALGORITHMS.items():
        assert refusal(model, samples(), algorithm(), LocalWork(1, 4, 0.0, "none", 0)) is None, name


def test_graphs_are_asked_for_on_cuda_only_and_auto_does_not_take_them():
    model, work = FlatModule(dense_net(), torch.device("cpu"), torch.float64), LocalWork(1, 4, 0.0, "none", 0)
    with pytest.raises(FedscapeError, match="CUDA graphs are of CUDA devices, and the run is on cpu"):
        choose(model, samples(), FedAvg(), work, Settings(clients=7, executor="graphs"))
    assert choose(model, samples(), FedAvg(), work, Settings(clients=7)).name != "graphs"


def test_a_run_that_began_with_graphs_goes_on_without_cuda(tmp_path):
    settings = Settings(rounds=2, clients=4, per_round=2, local_steps=1, device="cpu")
    train(FedAvg(), settings, out=tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    config["settings"]["executor"] = "graphs"
    file.write_text(json.dumps(config))
    run = train(FedAvg(), replace(settings, rounds=3), out=tmp_path, resume=True)
    assert run.metrics[-1]["round"] == 3
    assert json.loads(file.read_text())["settings"]["executor"] == "batched"
