"""Several clients at once are trained as one after the other, to rounding: in float64 to 1e-10 of their size."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from landscape import FedscapeError, Partition, Samples
from landscape.autograd.flat import FlatModule
from tests.trainers.federations import SIZES, dropout_net, federation, partition, samples
from tests.trainers.usual import usual
from trainers import (
    ASAM,
    GSAM,
    LESAM,
    MAN,
    SAM,
    SOL,
    FedAvg,
    FedRobust,
    FedSMOO,
    Linear,
    LocalAdamW,
    LocalMomentum,
    Nesterov,
    Normalised,
    Parts,
    Relaxed,
    Scaffold,
    Settings,
    train,
)
from trainers.algorithm import Algorithm, Round, State
from trainers.algorithms import ALGORITHMS
from trainers.federation import BatchedExecutor, Federation
from trainers.federation.choice import choose
from trainers.federation.local import LocalWork
from trainers.parts import Affine

ROUNDS = 3
RAGGED = {"batch_size": 4, "local_epochs": 2, "per_round": 5, "save_clients": True}
"""Clients of 1 to 20 samples: 2 to 10 local steps, and short batches of every length."""


def at_once(one_by_one: Federation, width: int | None = None) -> Federation:
    """The same federation with its clients trained at once."""
    executor = one_by_one.executor
    model = FlatModule(executor._model.module, torch.device("cpu"), executor._model.dtype)
    clients = Partition(tuple(indices.numpy() for indices in executor._indices))
    batched = BatchedExecutor(model, executor._data, clients, one_by_one.algorithm, executor._local, width)
    start, statistics, parts = one_by_one._initial, one_by_one.statistics, one_by_one.parts
    return Federation(one_by_one.algorithm, batched, one_by_one.settings, start, parts, statistics)


def both(algorithm, parts=None, *, width=None, rounds=ROUNDS, **changes):
    """One federation after some rounds in either way, and the records of the rounds."""
    first = federation(algorithm, parts, **{**RAGGED, **changes})
    second = at_once(first, width)
    records = [(first.step(), second.step()) for _ in range(rounds)]
    return first, second, records


def require_same_work(first, second, scale):
    """What was received, where clients began and how they perturbed, if that was kept."""
    for name, one in vars(first).items():
        other = getattr(second, name)
        assert (one is None) == (other is None)
        pairs = [(one[i], other[i]) for i in one] if isinstance(one, dict) else [(one, other)]
        assert not isinstance(one, dict) or one.keys() == other.keys()
        for mine, theirs in pairs if one is not None else ():
            torch.testing.assert_close(theirs, mine, rtol=1e-8, atol=1e-10 * scale, msg=name)


def require_equal(first, second, records):
    scale = first.server.w.abs().max()
    for name, tensor in first.server.tensors().items():
        torch.testing.assert_close(getattr(second.server, name), tensor, rtol=1e-10, atol=1e-10 * scale)
    for client in range(len(SIZES)):
        for name, tensor in first.store.fetch(client).tensors().items():
            torch.testing.assert_close(
                getattr(second.store.fetch(client), name), tensor, rtol=1e-9, atol=1e-10 * scale, msg=f"{name} {client}"
            )
    torch.testing.assert_close(second.statistics, first.statistics, rtol=1e-11, atol=1e-12)
    assert second.client_work is not None
    require_same_work(first.client_work, second.client_work, scale)
    for old, new in records:
        assert new.train_loss == pytest.approx(old.train_loss, rel=1e-10)
        assert new.drift == pytest.approx(old.drift, rel=1e-8)
        same = ("round", "clients", "steps", "gradients", "bytes_down", "bytes_up", "lr")
        assert [getattr(new, name) for name in same] == [getattr(old, name) for name in same]


@pytest.mark.parametrize("name", usual(name for name, _ in ALGORITHMS.items()))
def test_every_algorithm_with_unequal_clients(name):
    require_equal(*both(dict(ALGORITHMS.items())[name]()))


PARTS = {
    "man": Parts(man=MAN(0.15)),
    "sam": Parts(ascent=SAM(0.1)),
    "asam": Parts(ascent=ASAM(0.5, 0.1)),
    "gsam": Parts(ascent=GSAM(0.1, 0.3)),
    "sol": Parts(ascent=SOL(0.3, strength="adaptive")),
    "man and mixup and sol": Parts(man=MAN(0.1), mixup=True, ascent=SOL(0.3)),
    "mixup": Parts(mixup=True),
    "man and mixup and sam": Parts(man=MAN(0.1), mixup=True, ascent=SAM(0.1)),
    "momentum": Parts(local_optimizer=LocalMomentum(0.9, nesterov=True)),
    "kept momentum": Parts(local_optimizer=LocalMomentum(0.9, state="kept")),
    "adamw": Parts(local_optimizer=LocalAdamW(eps=1e-2)),
    "falling rate": Parts(local_schedule=Linear(0.2)),
    "falling rate and adamw": Parts(local_schedule=Linear(0.2), local_optimizer=LocalAdamW(eps=1e-2)),
    "starts": Parts(start=Relaxed(0.5, "models")),
    "starts and lesam": Parts(start=Relaxed(0.5), ascent=LESAM(0.1)),
    "looking ahead": Parts(server_optimizer=Nesterov(0.6), start=Relaxed(0.5)),
    "adversary": Parts(adversary=Affine(0.3, 0.5)),
    "adversary by number, man, mixup and sam": Parts(
        adversary=Affine(0.3, 0.5, "channel"), man=MAN(0.1), mixup=True, ascent=SAM(0.1)
    ),
    "adversary and sol": Parts(adversary=Affine(0.3, 0.5), ascent=SOL(0.3)),
    "normalised": Parts(server_optimizer=Normalised(0.5), local_optimizer=LocalMomentum(0.9)),
}


@pytest.mark.parametrize("name", PARTS)
def test_every_part(name):
    require_equal(*both(FedAvg(), PARTS[name], weight_decay=1e-2, rounds=2))


SETTINGS = {
    "full batches": {"batch_size": "full"},
    "short batches dropped": {"last_batch": "drop"},
    "steps": {"local_steps": 3},
    "clipped directions": {"clip": 0.05},
    "clipped gradients": {"clip": 0.05, "clip_at": "gradient"},
    "clipped gradients with an ε": {"clip": 0.05, "clip_at": "gradient", "clip_eps": 0.01},
    "clipped without the linear term": {"clip": 0.05, "clip_at": "linear", "clip_eps": 0.01},
    "duals by the mean client": {"dual_steps": "mean", "dual_lr": "first"},
    "one client": {"per_round": 1},
    "bernoulli": {"sampling": "bernoulli"},
    "unbiased": {"aggregation": "unbiased"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_of_local_work(name):
    require_equal(*both(FedSMOO(), rounds=2, **SETTINGS[name]))
    require_equal(*both(Scaffold(), rounds=2, weight_decay=1e-2, **SETTINGS[name]))


def dense_net() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()


@pytest.mark.parametrize("algorithm", [FedAvg(), FedSMOO(), Scaffold()])
def test_chains_of_dense_layers(algorithm):
    require_equal(*both(algorithm, module=dense_net()))


def image_net(norm: bool) -> nn.Module:
    torch.manual_seed(3)
    first = [nn.BatchNorm2d(4)] if norm else [nn.GroupNorm(2, 4)]
    second = [nn.BatchNorm1d(5, momentum=0.3)] if norm else []
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), *first, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 5), *second,
        nn.Tanh(), nn.Linear(5, 3),
    ).double()  # fmt: skip


def images() -> Samples:
    flat = samples()
    torch.manual_seed(5)
    pictures = torch.randint(0, 256, (len(flat), 1, 4, 4), dtype=torch.uint8)
    return Samples(pictures, flat.targets, mean=torch.full((1, 1, 1), 128.0), std=torch.full((1, 1, 1), 60.0))


@pytest.mark.parametrize("parts", [Parts(), Parts(cutout=2, mixup=True), Parts(ascent=SAM(0.1), man=MAN(0.1))])
@pytest.mark.parametrize("augment", ["none", "flip-crop", "flip-crop-half"])
def test_images_with_augmentation(parts, augment):
    require_equal(*both(Scaffold(), parts, module=image_net(False), data=images(), augment=augment, rounds=2))


@pytest.mark.parametrize("batchnorm", ["average", "silo"])
@pytest.mark.parametrize(
    ("parts", "rounds"), [(Parts(), 3), (Parts(ascent=SAM(0.1)), 3), (Parts(ascent=SOL(0.1)), 2)]
)  # SOL's unit vector of a small slope multiplies rounding by 1e3 in the third
def test_running_statistics_of_batchnorm(batchnorm, parts, rounds):
    # Batches of a single sample have no variance: clients of at least two, and short batches of 2, 3 and 4.
    split = Partition(tuple(np.split(np.arange(64), [9 + 1, 21, 24, 44, 50])))
    first, second, records = both(
        FedAvg(), parts, module=image_net(True), data=images(), split=split, clients=6, batch_size=4,
        batchnorm=batchnorm, rounds=rounds,
    )  # fmt: skip
    torch.testing.assert_close(second.statistics, first.statistics, rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(second.server.w, first.server.w, rtol=1e-10, atol=1e-11)
    for client in range(6):
        for name, tensor in first.store.fetch(client).tensors().items():
            torch.testing.assert_close(getattr(second.store.fetch(client), name), tensor, rtol=1e-10, atol=1e-11)
    assert [new.train_loss for _, new in records] == pytest.approx([old.train_loss for old, _ in records], rel=1e-10)


@pytest.mark.parametrize("width", [1, 2, 3, 100])
def test_the_number_of_clients_at_once_changes_nothing(width):
    require_equal(*both(FedSMOO(), width=width))


@pytest.mark.parametrize(("gathered", "prepared"), [(1, 64 << 20), (16 << 20, 0), (3 * 5 * 4 * 6 * 8, 0)])
def test_how_batches_are_gathered_changes_nothing(gathered, prepared, monkeypatch):
    monkeypatch.setattr("trainers.federation.stacking._GATHERED", gathered)
    monkeypatch.setattr("trainers.federation.stacking._PREPARED", prepared)
    require_equal(*both(FedSMOO()))


def test_results_in_rows_are_in_the_order_of_the_clients():
    """Whoever takes more steps than others, and however the clients are told."""
    one_by_one = federation(FedSMOO(), **RAGGED)
    together = at_once(one_by_one)
    received, clients, round = State(**FedSMOO().broadcast(one_by_one.server)), [3, 0, 6, 5, 1], Round(1, 0.3, 0.7)
    (found,) = together.executor.work(clients, received, together.store, round)
    assert found.clients == clients
    for row, alone in enumerate(one_by_one.executor.work(clients, received, one_by_one.store, round)):
        torch.testing.assert_close(found.models[row], alone.model, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(found.losses[row], alone.loss, rtol=1e-11, atol=0)
        for name, sent in alone.upload.items():
            torch.testing.assert_close(found.uploads[name][row], sent, rtol=1e-10, atol=1e-12)
        for name in alone.state.tensors():
            torch.testing.assert_close(
                getattr(found.state(row), name), getattr(alone.state, name), atol=1e-12, rtol=1e-10
            )
        assert (found.seen[row], found.steps[row]) == (alone.seen, alone.steps)
        assert found.gradients[row] == alone.gradients


def test_what_a_client_keeps_is_its_own_memory():
    ours = at_once(federation(Scaffold(), **RAGGED))
    ours.step()
    for kept in ours.store._kept.values():
        assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in kept.values())


class SendsWhatItReceived(Algorithm):
    """Every client sends the same vector."""

    paper = "none"

    def upload(self, w, client, server, round, steps):
        return {"delta": w - server.w, "received": server.w}

    def server_step(self, server, mean, round):
        server.w = server.w + mean.delta + 0.1 * mean.received


def test_a_vector_that_all_send_is_sent_by_each():
    require_equal(*both(SendsWhatItReceived()))


class OneNorm(Algorithm):
    """Not written for rows: one norm over all clients."""

    paper = "none"

    def upload(self, w, client, server, round, steps):
        return {"delta": w - server.w, "length": (w - server.w).norm()[None, None]}


class KeepsWhatComesLate(Algorithm):
    """Not written for clients of different numbers of steps."""

    paper = "none"

    def direction(self, w, gradient, client, server, round):
        if round.step == 3:
            client.late = w
        return gradient(w)


@pytest.mark.parametrize(("algorithm", "told"), [(OneNorm(), "'length'.*no row"), (KeepsWhatComesLate(), "late")])
def test_algorithms_that_are_not_written_for_rows_are_told_so(algorithm, told):
    with pytest.raises(FedscapeError, match=f"{told}.*--executor sequential"):
        at_once(federation(algorithm, **{**RAGGED, "per_round": 7})).step()


class CountsSteps(Algorithm):
    """An algorithm whose direction reads K and k."""

    paper = "none"

    def direction(self, w, gradient, client, server, round):
        return gradient(w) * (1 - round.step / round.steps)


def test_algorithms_see_each_clients_own_number_of_steps():
    require_equal(*both(CountsSteps()))


class TooManySteps(CountsSteps):
    """Sensitive to the number of steps of others."""

    def direction(self, w, gradient, client, server, round):
        return gradient(w) * (1 - round.step / 10)


def test_the_comparison_would_notice_another_number_of_steps():
    first, _, _ = both(CountsSteps(), rounds=1)
    other, _, _ = both(TooManySteps(), rounds=1)
    assert (first.server.w - other.server.w).abs().max() > 1e-4


def test_local_data_are_not_those_of_filled_up_rows():
    """Sample 0, which fills short batches up, has no say in clients that do not hold it."""
    data = samples()
    wild = replace(data, inputs=data.inputs.clone())
    wild.inputs[0] = 1e3
    without = Partition(tuple(indices[indices != 0] for indices in partition().clients))
    calm = at_once(federation(FedSMOO(), data=data, split=without, **RAGGED))
    moved = at_once(federation(FedSMOO(), data=wild, split=without, **RAGGED))
    for _ in range(ROUNDS):
        calm.step(), moved.step()
    torch.testing.assert_close(moved.server.w, calm.server.w, rtol=1e-12, atol=1e-13)


class Sorting(Affine):
    """Moves inputs by what Python knows of their values."""

    def move(self, inputs, client):
        return super().move(inputs, client) if inputs.sum() > 0 else inputs


def test_an_adversary_that_is_not_written_for_rows_is_told_so():
    with pytest.raises(FedscapeError, match=r"adversary cannot .*at once .*--executor sequential"):
        at_once(federation(FedAvg(), Parts(adversary=Sorting()), module=dense_net())).step()


def chosen(module, *, algorithm=None, data=None, **changes):
    settings = Settings(**{"clients": 7, "per_round": 5, **changes})
    work = LocalWork(1, 4, 0.0, "none", 0)
    model = FlatModule(module, torch.device("cpu"), torch.float64)
    return choose(model, data or samples(), algorithm or FedAvg(), work, settings)


def test_small_networks_are_trained_at_once():
    assert chosen(dense_net()).name == "batched"
    assert chosen(dense_net()).width == 5
    assert chosen(dense_net(), clients_at_once=2).width == 2
    assert chosen(dense_net(), executor="sequential").name == "sequential"
    assert chosen(dropout_net()).name == "batched"
    assert chosen(dense_net(), algorithm=FedRobust()).name == "batched"


def test_large_networks_own_algorithms_and_single_clients_are_trained_one_by_one():
    large = nn.Sequential(nn.Linear(6, 800), nn.ReLU(), nn.Linear(800, 800), nn.ReLU(), nn.Linear(800, 3)).double()
    assert chosen(large).name == "sequential"
    assert chosen(large, executor="batched").name == "batched"
    assert chosen(dense_net(), per_round=1).name == "sequential"
    assert "of your own" in chosen(dense_net(), algorithm=CountsSteps()).reason
    noisy = nn.Sequential(nn.Linear(6, 8), nn.RReLU(), nn.Linear(8, 3)).double()
    assert "random numbers" in chosen(noisy).reason
    wide = Samples(torch.zeros(9, 800, dtype=torch.float64), torch.zeros(9, dtype=torch.long))
    linear = nn.Linear(800, 3).double()
    assert chosen(linear, data=wide).name == "batched"
    assert "do not stay in the caches" in chosen(linear, data=wide, algorithm=FedRobust()).reason  # Λ: 800 × 800
    with pytest.raises(FedscapeError, match=r"at once: .*random numbers.*--executor sequential"):
        chosen(noisy, executor="batched")


SMALL = Settings(rounds=4, clients=6, per_round=4, local_epochs=1, device="cpu", dtype="float64")


def test_a_run_records_what_was_chosen_and_keeps_it(tmp_path, capsys):
    train(FedAvg(), SMALL, out=tmp_path / "run", progress=True)
    assert "up to 4 at once: a step is small (--executor batched)" in capsys.readouterr().err
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["settings"]["executor"] == "batched"


def test_a_run_of_a_version_without_executors_goes_on_one_by_one(tmp_path, capsys):
    train(FedAvg(), replace(SMALL, rounds=2, executor="sequential"), out=tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    config = json.loads(file.read_text())
    for name in ("executor", "clients_at_once"):
        del config["settings"][name]
    file.write_text(json.dumps(config))
    train(FedAvg(), SMALL, out=tmp_path / "run", resume=True, progress=True)
    assert "one after the other: as the run began" in capsys.readouterr().err


@pytest.mark.parametrize(("before", "after"), [("sequential", "batched"), ("batched", "sequential")])
def test_a_run_with_dropout_and_an_adversary_goes_on_with_another_executor(tmp_path, before, after):
    settings, parts = replace(SMALL, model="tests.trainers.user_code:dropping"), Parts(adversary=Affine(0.1, 0.5))
    whole = train(FedSMOO(), replace(settings, executor="sequential"), parts, out=tmp_path / "whole")
    train(FedSMOO(), replace(settings, rounds=2, executor=before), parts, out=tmp_path / "parts")
    rest = train(FedSMOO(), replace(settings, executor=after), parts, out=tmp_path / "parts", resume=True)
    first, second = (torch.load(run.checkpoint, weights_only=True)["parameters"] for run in (whole, rest))
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=1e-9, atol=1e-10)
