"""Open a checkpoint for measurement: its model, and the samples that its loss is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from landscape.checkpoints.checkpoint import Checkpoint
from landscape.checkpoints.foreign import opened
from landscape.data.loaders import data_named
from landscape.data.samples import Samples, random_subset
from landscape.datasets import recorded_name
from landscape.errors import FedscapeError
from landscape.storage.schema import printable
from landscape.tasks import Task

_LISTED = 8
"""Clients that a title names one by one."""


@dataclass(frozen=True)
class Opened:
    """What a landscape is made of, read from a checkpoint and its data set."""

    model: nn.Module
    data: Samples
    task: Task
    title: str
    """The checkpoint's, which data where they are not those it was trained on, whose where not those of all clients."""


def open_for_measurement(
    path: str | Path | Checkpoint,
    split: str = "train",
    clients: Sequence[int] | None = None,
    samples: int | None = None,
    *,
    data_dir: str | Path | None = None,
    model: str | None = None,
    data: str | None = None,
    normalise: str | None = None,
    key: str | None = None,
    loader: str | None = None,
) -> Opened:
    """The model of a checkpoint and the chosen samples of its data set.

    The arguments and errors are those of :meth:`landscape.Landscape.from_checkpoint`.
    """
    data = data_named(data, loader)
    checkpoint, dataset = opened(path, model, data, data_dir, normalise, key)
    module = checkpoint.build_model(model)
    if dataset is None:
        dataset = checkpoint.load_dataset(data_dir=data_dir, name=data, normalise=normalise)
    chosen = dataset.split(split)
    if clients is not None:
        if split != "train":
            raise FedscapeError("clients hold training data only: leave out clients, or take split 'train'")
        chosen = chosen.subset(checkpoint.client_indices(dataset, clients))
    if samples is not None:
        chosen = random_subset(chosen, samples)
    title = checkpoint.title
    if data is not None and not checkpoint.foreign and _differs(recorded_name(data), str(checkpoint.data.get("name"))):
        title += f", measured on {printable(data)}"
    if clients is not None:
        title += f", on the data of {_named(clients)}"
    return Opened(module, chosen, checkpoint.task_on(dataset), title)


def _differs(data: str, trained: str) -> bool:
    """Whether a data set is another one than the model was trained on; ``-`` may be written for ``_``."""
    return data.replace("-", "_") != trained.replace("-", "_")


def _named(clients: Sequence[int]) -> str:
    """``client 3``, ``clients 1, 2``, or how many where they are too many to list."""
    ids = [str(client) for client in dict.fromkeys(clients)]
    if len(ids) > _LISTED:
        return f"{len(ids)} of the clients"
    return f"client{'s' * (len(ids) > 1)} {', '.join(ids)}"
