"""Nothing of a round is made on the wrong device: rounds on a device that is not there (:mod:`tests.pretend`)."""

import pytest
import torch

from landscape import Samples
from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.compute.graphs import Again
from tests import pretend
from tests.trainers.federations import SETTINGS, SIZES, net, partition, samples
from trainers import ASAM, GSAM, MAN, SAM, FedAvg, LocalAdamW, LocalMomentum, Parts, Scaffold, Settings
from trainers.algorithms import ALGORITHMS
from trainers.federation import BatchedExecutor, Federation, GraphsExecutor, SequentialExecutor
from trainers.federation.local import LocalWork
from trainers.parts import Adam, Affine

HOST_ON_PURPOSE = {
    "trainers/federation/batches.py: _epoch": "the order of the samples, by seed: the same on every device",
    "trainers/federation/batches.py: batch_order": "the same of all epochs of a client",
    "trainers/federation/static.py: plan": "a client's batches and their draws, moved at once",
    "trainers/federation/stacking.py: beside": "the batches of several clients side by side, moved at once",
    "trainers/parts/augmentation.py": "flips, crops, squares and partners, by seed: the same on every device",
}
"""What is made on the CPU in a round, and why."""


@pytest.fixture(autouse=True)
def a_device_that_is_not_there(monkeypatch):
    pretend.like_a_gpu(monkeypatch)


def images_net():
    torch.manual_seed(2)
    layers = [torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(72, 3))


def images():
    draw = torch.Generator().manual_seed(3)
    n = sum(SIZES)
    shown = torch.randint(0, 256, (n, 1, 8, 8), generator=draw, dtype=torch.uint8)
    return Samples(
        shown, torch.randint(0, 3, (n,), generator=draw), mean=torch.tensor([[[128.0]]]), std=torch.tensor([[[64.0]]])
    )


def replayed(model, data, clients, algorithm, work):
    """The executor of recorded steps, which are done again in the place of CUDA graphs."""
    return GraphsExecutor(model, data, clients, algorithm, work, Again.record)


KINDS = [SequentialExecutor, BatchedExecutor, replayed]


def made(device, kind, algorithm, parts, module=None, data=None, dtype=torch.float64, **changes):
    """A federation on a device."""
    settings = Settings(**{**SETTINGS, "local_epochs": 1, "batch_size": 4, **changes})
    model = FlatModule(module or net(), device, dtype)
    own = {
        name: getattr(settings, name) for name in ("weight_decay", "augment", "seed", "clip", "clip_at", "batchnorm")
    }
    work = LocalWork(epochs=1, batch_size=4, parts=parts, **own)
    executor = kind(model, (data or samples()).placed(device), partition(), algorithm, work)
    statistics = BatchStatistics(model.module).read().to(device, dtype)
    return Federation(algorithm, executor, settings, model.buffer.clone(), parts, statistics)


def require_placed(kind, algorithm, parts=None, **changes):
    """Two rounds there are those on the CPU, all that is kept is there, and what is made here is made on purpose."""
    here = made(torch.device("cpu"), kind, algorithm, parts or Parts(), **changes)
    expected = [here.step() for _ in range(2)]
    with pretend.device() as by:
        there = made(pretend.HERE, kind, algorithm, parts or Parts(), **changes)
        by.clear()
        records = [there.step() for _ in range(2)]
        kept = {**there.server.tensors(), **there.optimizer_state, "statistics": there.statistics}
        assert {name for name, tensor in kept.items() if tensor.device != pretend.HERE} == set()
        for client in records[0].clients:
            state = there.store.fetch(client).tensors()
            assert {name for name, tensor in state.items() if tensor.device != pretend.HERE} == set()
        assert there.finite()
        same = torch.allclose(there.server.w.cpu(), here.server.w, rtol=1e-9, atol=1e-12)
    assert same
    assert [record.clients for record in records] == [record.clients for record in expected]
    strange = {where for where in by if not any(where.startswith(known) for known in HOST_ON_PURPOSE)}
    assert strange == set()


QUICK = ["fedsmoo", "mimelite"]
"""One with states of its own on both sides and an ascent, and one that takes gradients on all of a client's data."""
SLOW = [name for name, _ in ALGORITHMS.items() if name not in QUICK]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", QUICK + [pytest.param(name, marks=pytest.mark.slow) for name in SLOW])
def test_a_round_of_every_algorithm_stays_on_its_device(name, kind):
    require_placed(kind, dict(ALGORITHMS.items())[name]())


PARTS = {
    "ASAM, MAN, momentum": (Parts(ascent=ASAM(), man=MAN(0.1), local_optimizer=LocalMomentum()), {"clip": 1.0}),
    "GSAM, AdamW, Adam at the server": (
        Parts(ascent=GSAM(), local_optimizer=LocalAdamW(), server_optimizer=Adam()),
        {},
    ),
    "images: SAM, mixup, cutout, BatchNorm": (
        Parts(ascent=SAM(0.05), mixup=True, cutout=3),
        {"module": images_net, "data": images, "dtype": torch.float32, "augment": "flip-crop", "batchnorm": "silo"},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PARTS)
def test_a_round_with_parts_stays_on_its_device(name, kind):
    parts, changes = PARTS[name]
    changes = {key: value() if key in ("module", "data") else value for key, value in changes.items()}
    require_placed(kind, Scaffold(), parts, **changes)


@pytest.mark.parametrize("kind", [SequentialExecutor, BatchedExecutor])
def test_an_adversary_stays_on_its_device(kind):
    require_placed(kind, FedAvg(), Parts(adversary=Affine()))


@pytest.mark.slow
@pytest.mark.parametrize("evaluated", ["sampled-mean", "all-clients-mean"])
def test_means_of_models_stay_on_the_device(evaluated):
    require_placed(SequentialExecutor, FedAvg(), evaluated_model=evaluated, save_clients=True)


class Misplaced(FedAvg):
    """An algorithm with a tensor whose device was forgotten."""

    def upload(self, w, client, server, round, steps):
        return {"delta": w - server.w + torch.zeros(w.shape[-1], dtype=w.dtype)}


class Moved(FedAvg):
    """An algorithm that computes on the CPU and moves the result: right, but slow on a GPU."""

    def upload(self, w, client, server, round, steps):
        return {"delta": w - server.w + torch.zeros(w.shape[-1], dtype=w.dtype).to(w.device)}


def test_a_forgotten_device_is_found():
    with pytest.raises(pretend.WrongDeviceError, match="is on the CPU, beside tensors that are not"):
        require_placed(SequentialExecutor, Misplaced())


def test_a_detour_over_the_cpu_is_found():
    with pytest.raises(AssertionError, match=r"test_placement\.py: upload"):
        require_placed(SequentialExecutor, Moved())
