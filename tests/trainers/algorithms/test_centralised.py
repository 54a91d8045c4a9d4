"""Centralised training is ordinary SGD on all data."""

import numpy as np
import pytest
import torch
from torch import nn

from landscape import Partition
from landscape.autograd.flat import FlatModule
from landscape.compute.randomness import torch_generator
from tests.trainers.federations import SIZES, net, samples
from trainers import Settings
from trainers.algorithms.centralised import Centralised
from trainers.federation.batches import batch_indices
from trainers.federation.execution import SequentialExecutor
from trainers.federation.federation import Federation
from trainers.federation.local import LocalWork


def pooled(algorithm, size, lr=0.1):
    """A federation of one client with all data, as the run makes it of ``pooled`` algorithms."""
    settings = Settings(
        clients=1, per_round=1, lr=lr, local_epochs=2, batch_size=size or "full", weight_decay=0.01, seed=4
    )
    model = FlatModule(net(), torch.device("cpu"), torch.float64)
    everything = Partition((np.arange(sum(SIZES)),))
    local = LocalWork(2, size, 0.01, "none", 4)
    return Federation(
        algorithm, SequentialExecutor(model, samples(), everything, algorithm, local), settings, model.buffer.clone()
    )


@pytest.mark.parametrize("size", [None, 10])
def test_centralised_is_ordinary_sgd_on_all_data(size):
    assert Centralised.pooled
    ours, model, data = pooled(Centralised(), size), net(), samples()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    for number in range(1, 4):
        ours.step()
        for rows in batch_indices(len(data), size, 2, torch_generator(4, "batches", number, 0)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data.inputs[rows]), data.targets[rows]).backward()
            optimizer.step()
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    torch.testing.assert_close(ours.server.w, flat, rtol=1e-12, atol=1e-14)
