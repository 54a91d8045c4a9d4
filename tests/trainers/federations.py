"""A small federation in float64 for the tests: unequal clients, a net with biases and a normalisation scale."""

import numpy as np
import torch
from torch import nn

from landscape import Partition, Samples
from landscape.flat import FlatModule
from landscape.randomness import torch_generator
from trainers import Algorithm, Settings
from trainers.execution import LocalWork, SequentialExecutor
from trainers.federation import Federation

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


def samples() -> Samples:
    draw = torch_generator(7, "test data")
    n = sum(SIZES)
    return Samples(torch.randn(n, 6, generator=draw, dtype=torch.float64), torch.randint(0, 3, (n,), generator=draw))


def partition() -> Partition:
    return Partition(tuple(np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])))


def federation(algorithm: Algorithm, **changes) -> Federation:
    settings = Settings(**{**SETTINGS, **changes})
    model = FlatModule(net(), torch.device("cpu"), torch.float64)
    size = None if settings.batch_size == "full" else settings.batch_size
    local = LocalWork(settings.local_epochs, size, settings.weight_decay, settings.augment, settings.seed)
    executor = SequentialExecutor(model, samples(), partition(), algorithm, local)
    return Federation(algorithm, executor, settings, model.buffer.clone())
