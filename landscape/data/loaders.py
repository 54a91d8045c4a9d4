"""Batches of inputs and targets joined into samples: a ``DataLoader``'s, or those of a user's own pipeline by name."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from landscape.compute.randomness import global_seed
from landscape.data.dataset import DATASETS, Dataset
from landscape.data.samples import Samples
from landscape.errors import FedscapeError, running

LOADER = "loader:"
"""What the name of a data set begins with that is ``package.module:callable`` of a pipeline."""


def is_pair(batch: Any) -> bool:
    """Whether a batch is inputs and targets, two tensors with an entry for each sample."""
    both = isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(t, Tensor) for t in batch)
    return both and all(t.dim() > 0 for t in batch) and len(batch[0]) == len(batch[1])


def joined(batches: Iterable[Any]) -> Samples | None:
    """The samples of all batches (inputs, targets) in one; ``None`` where these are of another kind or shape.

    Random numbers that are drawn on the way (shuffling, augmentation) are the same each time, and no one else's.

    Example:
        >>> import torch
        >>> from landscape.data.loaders import joined
        >>> pairs = [(torch.tensor([float(i)]), i % 2) for i in range(5)]
        >>> joined(torch.utils.data.DataLoader(pairs, batch_size=2)).targets
        tensor([0, 1, 0, 1, 0])
    """
    inputs, targets = [], []
    with global_seed(0, "loader"):
        for batch in batches:
            if not is_pair(batch):
                return None
            inputs.append(batch[0].detach())
            targets.append(batch[1].detach())
    if not inputs or any(len({(t.shape[1:], t.dtype) for t in parts}) > 1 for parts in (inputs, targets)):
        return None
    return Samples(torch.cat(inputs), torch.cat(targets))


def data_named(data: str | None, loader: str | None) -> str | None:
    """The name of the data set where a user may give a pipeline in its place.

    Raises:
        FedscapeError: both are given.

    Example:
        >>> from landscape.data.loaders import data_named
        >>> data_named(None, "my.data:pipeline")
        'loader:my.data:pipeline'
    """
    if loader is None:
        return data
    if data is not None:
        raise FedscapeError(f"both the data set {data} and the loader {loader} are given: give --data or --loader")
    return f"{LOADER}{loader}"


def loaded(name: str, data_dir: Path | None, *, imports: bool) -> Dataset:
    """The data set that a pipeline gives: ``loader:package.module:callable``.

    The callable is called with ``split="train"`` and with ``split="test"``, and with ``data_dir`` if it takes it.  It
    returns batches (inputs, targets), such as a ``DataLoader``, or such a pair of tensors; the batches of a split are
    joined and taken as they are.

    Raises:
        FedscapeError: it cannot (or may not) be imported, takes no ``split``, or returns something else.
    """
    wanted = name.removeprefix(LOADER)
    if ":" not in wanted:
        raise FedscapeError(f"the loader '{wanted}' is no package.module:callable")
    if not imports:
        raise FedscapeError(
            f"the file names the loader '{wanted}', which would import and run code: if you trust it, give the same "
            "--loader yourself"
        )
    pipeline: Any = DATASETS.get(wanted)
    parameters = inspect.signature(pipeline).parameters
    every = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if "split" not in parameters and not every:
        raise FedscapeError(
            f"the loader '{wanted}' takes no split: it is called with split='train' and split='test', and returns the "
            "batches (inputs, targets) of each"
        )
    options = {"data_dir": data_dir} if "data_dir" in parameters or every else {}
    with running(f"the loader '{wanted}'"):
        train, test = (_split(wanted, split, pipeline(split=split, **options)) for split in ("train", "test"))
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        raise FedscapeError(
            f"the loader '{wanted}' gives training inputs of shape {tuple(train.inputs.shape[1:])} and test inputs of "
            f"{tuple(test.inputs.shape[1:])}"
        )
    return Dataset(name, train, test, classes=1 + max(int(part.targets.max()) for part in (train, test)))


def _split(name: str, split: str, found: Any) -> Samples:
    if isinstance(found, Iterator):
        found = list(found)
    samples = Samples(*found) if is_pair(found) else joined(found) if isinstance(found, Iterable) else None
    if samples is None or samples.targets.dim() != 1 or samples.targets.is_floating_point():
        raise FedscapeError(
            f"the loader '{name}' gave {type(found).__name__} for split '{split}': it must return batches (inputs, "
            "targets) of equal shapes, with a class for each sample"
        )
    if int(samples.targets.min()) < 0:
        raise FedscapeError(f"the loader '{name}' gives classes below 0 for split '{split}'")
    return Samples(samples.inputs, samples.targets.long())
