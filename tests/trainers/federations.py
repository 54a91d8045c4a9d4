"""A small federation in float64 for the tests: unequal clients, a net with biases and a normalisation scale."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from landscape import Partition, Samples
from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.compute.randomness import torch_generator
from trainers import Algorithm, Settings
from trainers.federation.execution import SequentialExecutor
from trainers.federation.federation import Federation
from trainers.federation.local import LocalWork
from trainers.parts.parts import Parts

SIZES = (5, 12, 3, 20, 9, 1, 14)
SETTINGS = {
    "clients": len(SIZES),
    "per_round": 3,
    "lr": 0.3,
    "lr_decay": 0.9,
    "local_epochs": 3,
    "batch_size": "full",
    "seed": 4,
}


def net() -> nn.Module:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3)).double()
    nn.init.normal_(model[1].weight, 1.0, 0.2)  # a scale of exactly 1 would hide how ASAM treats it
    return model


def dropout_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)).double()


def samples() -> Samples:
    draw = torch_generator(7, "test data")
    n = sum(SIZES)
    return Samples(torch.randn(n, 6, generator=draw, dtype=torch.float64), torch.randint(0, 3, (n,), generator=draw))


def partition() -> Partition:
    return Partition(tuple(np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])))


def stopped_half_way(make: Callable[[], Federation], rounds: int) -> tuple[Federation, Federation]:
    """A federation after some rounds, and one that went on in the middle from another's exported state."""
    whole, first, second = (make() for _ in range(3))
    for _ in range(rounds):
        whole.step()
    for _ in range(rounds // 2):
        first.step()
    second.restore(first.export())
    for _ in range(rounds - rounds // 2):
        second.step()
    return whole, second


def federation(
    algorithm: Algorithm,
    parts: Parts | None = None,
    *,
    module: nn.Module | None = None,
    data: Samples | None = None,
    split: Partition | None = None,
    **changes,
) -> Federation:
    """With ``settings`` changed; another model, other data or another partition where they are given."""
    settings, parts = Settings(**{**SETTINGS, **changes}), parts or Parts()
    model = FlatModule(module or net(), torch.device("cpu"), torch.float64)
    local = LocalWork(
        epochs=settings.local_epochs,
        batch_size=None if settings.batch_size == "full" else settings.batch_size,
        weight_decay=settings.weight_decay,
        augment=settings.augment,
        seed=settings.seed,
        steps=settings.local_steps,
        last_batch=settings.last_batch,
        clip=settings.clip,
        clip_at=settings.clip_at,
        clip_eps=settings.clip_eps,
        batchnorm=settings.batchnorm,
        parts=parts,
        save_clients=settings.save_clients,
    )
    executor = SequentialExecutor(model, data or samples(), split or partition(), algorithm, local)
    statistics = BatchStatistics(model.module).read().double()
    return Federation(algorithm, executor, settings, model.buffer.clone(), parts, statistics)
