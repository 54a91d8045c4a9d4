"""The rule for executors knows what a step costs on CUDA too."""

import pytest
import torch
from torch import nn

from landscape.autograd.flat import FlatModule
from tests.trainers.federations import samples
from trainers import FedAvg, Settings
from trainers.federation import LocalWork
from trainers.federation.choice import choose


class OnCuda(FlatModule):
    """A model whose tensors have no memory, and which says that it is on CUDA."""

    device = torch.device("cuda")


@pytest.mark.slow  # PyTorch imports much for its device without memory
def test_auto_takes_several_clients_at_once_on_cuda_where_steps_are_small(monkeypatch):
    monkeypatch.setattr("trainers.federation.choice.refusal", lambda *_: None)  # it computes values
    meta, reasons = torch.device("meta"), []
    for width in (8, 800):
        layers = [nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)]
        model = OnCuda(nn.Sequential(*layers), meta, torch.float32)
        work, settings = LocalWork(1, 1000, 0.0, "none", 0), Settings(clients=7, per_round=5, clients_at_once=5)
        reasons.append(choose(model, samples().to(meta), FedAvg(), work, settings).reason)
    assert reasons == ["a step is small", "a step is all arithmetic"]
