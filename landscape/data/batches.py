"""Batches of any kind with an objective of their own, for losses that are not a function of outputs and targets."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from landscape.errors import FedscapeError
from landscape.storage.digests import tensor_digest

Objective = Callable[[nn.Module, Any], Tensor]
"""(module, batch) -> the scalar mean over the batch."""


class Batches:
    """Batches of any kind, and a scalar objective of module and batch.

    The batches are iterated once at construction to get their sizes, and again in each pass: they must be the same in
    the same order each time.

    Args:
        batches: tensors, or mappings, tuples and lists of tensors; other values in them are passed unchanged.
        objective: (module, batch) -> the scalar mean over the batch.
        size: batch -> its weight in the mean over all batches; the length of the first tensor in it unless given.
            A batch of size 0 is left out.

    Raises:
        FedscapeError: the batches can be iterated only once, a size is negative or unknown, there are no samples.

    Example:
        >>> import torch
        >>> from landscape.data.batches import Batches
        >>> texts = [{"tokens": torch.tensor([[1, 2], [3, 4]])}, {"tokens": torch.tensor([[5, 6]])}]
        >>> len(Batches(texts, lambda net, batch: net(batch["tokens"]).mean()))
        3
    """

    def __init__(self, batches: Iterable[Any], objective: Objective, size: Callable[[Any], int] | None = None) -> None:
        if isinstance(batches, Iterator):
            raise FedscapeError("the batches can be gone through only once: give a list, a DataLoader or the like")
        self.batches, self.objective = batches, objective
        self.device = torch.device("cpu")
        weighed = [(_size(batch, size), _fingerprint(batch)) for batch in batches]
        self._sizes, self._fingerprints = [s for s, _ in weighed], [f for _, f in weighed]
        if not sum(self._sizes):
            raise FedscapeError("there are no samples: at least one is needed")

    def __len__(self) -> int:
        """The sum of all sizes."""
        return sum(self._sizes)

    def digest(self) -> str:
        """A SHA-256 digest of all tensors in the batches and of the batches' sizes, without the objective."""
        sha = hashlib.sha256(repr(self._sizes).encode())
        for batch in self.batches:
            sha.update(tensor_digest(*tensors(batch)).encode())
        return sha.hexdigest()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The weight of each batch."""
        return tuple(self._sizes)

    def subset(self, indices: Iterable[int]) -> Batches:
        """The batches at these positions, in that order.

        Raises:
            FedscapeError: all of them are of size 0.
        """
        wanted, every = [int(i) for i in indices], list(self.batches)
        part = copy.copy(self)
        part.batches = [every[i] for i in wanted]
        part._sizes = [self._sizes[i] for i in wanted]
        part._fingerprints = [self._fingerprints[i] for i in wanted]
        if not sum(part._sizes):
            raise FedscapeError("there are no samples: at least one is needed")
        return part

    def to(self, device: torch.device | str) -> Batches:
        """The same batches, each copied to a device when it is taken."""
        moved = copy.copy(self)
        moved.device = torch.device(device)
        return moved

    def portion(self, size: int, dtype: torch.dtype, rank: int, world: int) -> Iterator[tuple[int, Any, None, float]]:
        """The batches of one rank, each ``world``-th: its number, the batch, no targets, its share of the whole.

        Raises:
            FedscapeError: the batches have changed since construction.
        """
        number, n = -1, len(self)
        for number, batch in enumerate(self.batches):
            if number < len(self._sizes) and (number % world != rank or self._sizes[number] == 0):
                continue
            if number >= len(self._sizes) or _fingerprint(batch) != self._fingerprints[number]:
                raise _changed(number)
            yield number, self._moved(batch, dtype), None, self._sizes[number] / n
        if number + 1 != len(self._sizes):
            raise _changed(number + 1)

    def _moved(self, thing: Any, dtype: torch.dtype) -> Any:
        if isinstance(thing, Tensor):
            return thing.to(self.device, dtype) if thing.is_floating_point() else thing.to(self.device)
        if isinstance(thing, Mapping):
            return {key: self._moved(value, dtype) for key, value in thing.items()}
        if isinstance(thing, tuple) and hasattr(thing, "_fields"):
            return type(thing)(*(self._moved(value, dtype) for value in thing))
        if isinstance(thing, (tuple, list)):
            return type(thing)(self._moved(value, dtype) for value in thing)
        return thing


def objective_value(outputs: Tensor, targets: Any) -> Tensor:
    """The loss for :class:`Batches`, whose outputs are already the value of the objective: that value."""
    return outputs


def tensors(thing: Any) -> Iterator[Tensor]:
    """All tensors in a batch or in a model's outputs: in mappings, tuples and lists."""
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, (Mapping, tuple, list)):
        for value in thing.values() if isinstance(thing, Mapping) else thing:
            yield from tensors(value)


def _changed(number: int) -> FedscapeError:
    return FedscapeError(
        f"batch {number} is not what it was at first: the batches must be the same in the same order each time "
        "(no shuffling, no random augmentation)"
    )


def _size(batch: Any, size: Callable[[Any], int] | None) -> int:
    if size is None:
        first = next(tensors(batch), None)
        if first is None or first.dim() == 0:
            raise FedscapeError(
                "the size of a batch cannot be told, as no tensor with a first axis leads it: give size"
            )
        return len(first)
    found = int(size(batch))
    if found < 0:
        raise FedscapeError(f"the size of a batch is {found}: it must be 0 or more")
    return found


def _fingerprint(batch: Any) -> list[tuple[torch.Size, int]]:
    """The shape and the sum of the bytes of each tensor in a batch, to notice a batch that has changed."""
    return [
        (t.shape, int(t.detach().contiguous().reshape(-1).view(torch.uint8).sum(dtype=torch.int64)))
        for t in tensors(batch)
        if t.layout == torch.strided
    ]
