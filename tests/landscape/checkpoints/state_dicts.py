"""Networks whose state dicts are opened as checkpoints."""

import torch
from torch import nn

from landscape import MODELS, build_model
from tests.landscape.checkpoints.checkpoints import KWARGS

DIGITS = {"model": "digits_mlp", "data": "digits"}


def network(seed: int = 3) -> nn.Module:
    return build_model("digits_mlp", seed=seed, **KWARGS)


def flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters() if p.requires_grad])


def own(monkeypatch, build) -> dict[str, str]:
    """A model of the user's, registered as ``own``."""
    monkeypatch.setitem(MODELS._table, "own", lambda input_shape, classes: build())
    return {"model": "own", "data": "digits"}


def mlp(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *layers)
