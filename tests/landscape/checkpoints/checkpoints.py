"""A small federated run's checkpoint, made by hand."""

from typing import Any

import torch

from landscape import Checkpoint, Partition, build_model, load_dataset, make_partition

SPEC, CLIENTS, SEED = "dirichlet:0.3", 10, 4
KWARGS = {"input_shape": [1, 8, 8], "classes": 10}


def partition(seed: int = SEED) -> Partition:
    return make_partition(SPEC, load_dataset("digits").train.targets.numpy(), CLIENTS, seed)


def checkpoint(**changes: Any) -> Checkpoint:
    """Round 7 of a run with ``digits_mlp`` on ``digits`` and ten clients, with some fields changed."""
    model = build_model("digits_mlp", seed=SEED, **KWARGS)
    recipe = {"spec": SPEC, "clients": CLIENTS, "digest": partition().digest()}
    contents = {
        "model": {"name": "digits_mlp", "kwargs": KWARGS},
        "data": {"name": "digits", "kwargs": {}, "partition": recipe, "seed": SEED},
        "algorithm": {"name": "fedavg", "lr": 0.1},
        "round": 7,
        "seed": SEED,
        "parameters": {name: p.detach() for name, p in model.named_parameters()},
        "buffers": dict(model.named_buffers()),
        "metrics": {"train_loss": 0.5},
        "clients": {3: torch.arange(4.0)},
    }
    return Checkpoint(**{**contents, **changes})
