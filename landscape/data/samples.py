"""Data as the loss wants them: inputs and targets normalised on the fly, or batches of any kind."""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from landscape.activations import MAN
from landscape.compute.devices import free_memory
from landscape.compute.distributed import rank_and_world, sum_over_ranks
from landscape.errors import FedscapeError
from landscape.storage.digests import tensor_digest
from landscape.tasks import Loss

Indices = slice | Tensor


@dataclass(frozen=True)
class Samples:
    """n samples: ``inputs`` [n, ...] as stored (uint8 images stay uint8) and ``targets`` [n, ...].

    ``mean`` and ``std`` ([C, 1, 1], in the stored units) normalise a batch when it is taken: a batch of
    floating-point or uint8 inputs is ``(inputs − mean) / std`` in the dtype asked for; other integers
    (token ids) are passed as they are.

    ``place`` is where batches are taken to; where the samples live unless given.

    Raises:
        FedscapeError: no samples, or inputs and targets differ in number.
    """

    inputs: Tensor
    targets: Tensor
    mean: Tensor | None = None
    std: Tensor | None = None
    place: torch.device | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise FedscapeError(f"{len(self.inputs)} inputs but {len(self.targets)} targets: they must pair up")
        if len(self.inputs) == 0:
            raise FedscapeError("there are no samples: at least one is needed")

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def device(self) -> torch.device:
        """Where the samples live."""
        return self.inputs.device

    @property
    def streams(self) -> bool:
        """Whether batches are taken from the host's memory to another device."""
        return self.place is not None and self.place != self.device

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that decides the batches' values: inputs, targets, mean, std."""
        return self.inputs, self.targets, self.mean, self.std

    @property
    def nbytes(self) -> int:
        """The memory they take."""
        return sum(tensor.nbytes for tensor in self.tensors if tensor is not None)

    def to(self, device: torch.device | str) -> Samples:
        """The same samples on a device."""
        return Samples(*(None if t is None else t.to(device) for t in self.tensors))  # type: ignore[arg-type]

    def streamed(self, place: torch.device | str) -> Samples:
        """The same samples in the host's memory, each batch of which is taken to ``place`` when its turn comes.

        For CUDA they are pinned, so that the host does not wait for the copies, unless they take more than half of the
        host's free memory: those that are mapped from a file stay there.
        """
        host, place = self.to("cpu"), torch.device(place)
        if place.type == "cuda" and self.nbytes <= free_memory(torch.device("cpu")) // 2:
            host = replace(host, inputs=host.inputs.pin_memory(), targets=host.targets.pin_memory())
        return replace(host, place=place)

    def placed(self, place: torch.device, stream: bool | None = None) -> Samples:
        """The same samples on a device; streamed to it if asked for, or where they take half of its free memory."""
        if stream is None:
            stream = place.type == "cuda" and self.device.type == "cpu" and self.nbytes > free_memory(place) // 2
        return self.streamed(place) if stream else self.to(place)

    def digest(self) -> str:
        """A fingerprint of all there is."""
        return tensor_digest(*self.tensors)

    def subset(self, indices: Sequence[int] | Tensor) -> Samples:
        """The samples at these positions, in that order."""
        chosen = torch.as_tensor(indices, dtype=torch.long, device=self.device)
        return replace(self, inputs=self.inputs[chosen], targets=self.targets[chosen])

    def batch(self, indices: Indices, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The model's inputs and the targets at these positions, ready for the loss."""
        return self.prepare(self._taken(self.inputs, indices), dtype), self._targets(indices, dtype)

    def stored(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and targets at these positions as they are stored, where batches are taken to: for augmentation."""
        return self._taken(self.inputs, indices), self._taken(self.targets, indices)

    def _taken(self, tensor: Tensor, indices: Indices) -> Tensor:
        if self.place is None:
            return tensor[indices]
        here = indices.to(tensor.device) if isinstance(indices, Tensor) else indices
        return tensor[here].to(self.place, non_blocking=True)

    def prepare(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """Stored inputs -> the model's inputs: normalised, in ``dtype``."""
        if inputs.dtype != torch.uint8 and not inputs.is_floating_point():
            return inputs
        inputs = inputs.to(dtype)
        if inputs.dim() == 4 and inputs.device.type == "cpu":
            # The CPU's convolutions and pools are faster in this layout.
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if self.mean is None or self.std is None:
            return inputs
        return (inputs - self.mean.to(inputs.device, dtype)) / self.std.to(inputs.device, dtype)

    def _targets(self, indices: Indices, dtype: torch.dtype) -> Tensor:
        targets = self._taken(self.targets, indices)
        return targets.to(dtype) if targets.is_floating_point() else targets

    def batches(self, size: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor, float]]:
        """All samples in order, ``size`` at a time: inputs, targets and the batch's share of n."""
        for _, inputs, targets, share in self.portion(size, dtype, 0, 1):
            yield inputs, targets, share

    def portion(
        self, size: int, dtype: torch.dtype, rank: int, world: int
    ) -> Iterator[tuple[int, Tensor, Tensor, float]]:
        """One rank's samples, ``size`` at a time: the first one's position, inputs, targets, share of all n.

        A rank's samples lie together and are as many as another's, or one less; where there are more ranks than
        samples, some have none.
        """
        n = len(self)
        first, last = rank * n // world, (rank + 1) * n // world
        for start in range(first, last, size):
            stop = min(start + size, last)
            inputs, targets = self.batch(slice(start, stop), dtype)
            yield start, inputs, targets, (stop - start) / n


def as_samples(data: Samples | tuple[Tensor, Tensor]) -> Samples:
    """``Samples`` as they are; a pair of tensors (inputs, targets) is wrapped."""
    return data if isinstance(data, Samples) else Samples(*data)


Objective = Callable[[nn.Module, Any], Tensor]
"""(module, batch) -> the scalar mean over the batch."""


class Batches:
    """Batches of any kind, and a scalar objective of module and batch.

    They are gone through once to be weighed, and then in each pass; they must be the same in the same order each time.

    Args:
        batches: tensors, or mappings, tuples and lists of such; anything else in them is passed as it is.
        objective: (module, batch) -> the scalar mean over the batch.
        size: batch -> its weight in the mean over all batches; the length of the first tensor in it unless given.
            A batch of size 0 is left out.

    Raises:
        FedscapeError: the batches can be gone through only once, a size is negative or cannot be told, there are
            no samples.
    """

    def __init__(self, batches: Iterable[Any], objective: Objective, size: Callable[[Any], int] | None = None) -> None:
        if isinstance(batches, Iterator):
            raise FedscapeError("the batches can be gone through only once: give a list, a DataLoader or the like")
        self.batches, self.objective = batches, objective
        self.device = torch.device("cpu")
        weighed = [(_size(batch, size), _print(batch)) for batch in batches]
        self._sizes, self._prints = [s for s, _ in weighed], [p for _, p in weighed]
        if not sum(self._sizes):
            raise FedscapeError("there are no samples: at least one is needed")

    def __len__(self) -> int:
        """The sum of all sizes."""
        return sum(self._sizes)

    def digest(self) -> str:
        """A fingerprint of all tensors in the batches and of the batches' sizes; the objective is not in it."""
        sha = hashlib.sha256(repr(self._sizes).encode())
        for batch in self.batches:
            sha.update(tensor_digest(*tensors(batch)).encode())
        return sha.hexdigest()

    def to(self, device: torch.device | str) -> Batches:
        """The same batches, each on a device when its turn comes."""
        moved = copy.copy(self)
        moved.device = torch.device(device)
        return moved

    def portion(self, size: int, dtype: torch.dtype, rank: int, world: int) -> Iterator[tuple[int, Any, None, float]]:
        """One rank's batches, each ``world``-th: its number, the batch, no targets, its share of the whole.

        Raises:
            FedscapeError: the batches are others than at first.
        """
        number, n = -1, len(self)
        for number, batch in enumerate(self.batches):
            if number < len(self._sizes) and (number % world != rank or self._sizes[number] == 0):
                continue
            if number >= len(self._sizes) or _print(batch) != self._prints[number]:
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


def _changed(number: int) -> FedscapeError:
    return FedscapeError(
        f"batch {number} is not what it was at first: the batches must be the same in the same order each time "
        "(no shuffling, no random augmentation)"
    )


def tensors(thing: Any) -> Iterator[Tensor]:
    """All tensors in a batch, or in a model's outputs: in mappings, tuples and lists."""
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, (Mapping, tuple, list)):
        for value in thing.values() if isinstance(thing, Mapping) else thing:
            yield from tensors(value)


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


def _print(batch: Any) -> list[tuple[torch.Size, int]]:
    """Tells batches apart: the shape and the sum of the bytes of each tensor in it."""
    return [
        (t.shape, int(t.detach().contiguous().reshape(-1).view(torch.uint8).sum(dtype=torch.int64)))
        for t in tensors(batch)
        if t.layout == torch.strided
    ]


class MicroBatches:
    """A data set as the loops over it see it: this rank's portion, ``size`` samples at a time.

    Iterating gives (position of the first sample, inputs, targets, share of the whole data set).  :class:`Batches`
    are as large as they are, and their ``size`` is 1: one at a time.  ``tf32`` says whether products over them may
    round to TF32.

    Attributes:
        sound: what :mod:`landscape.autograd.preconditions` has found right.
    """

    def __init__(
        self,
        data: Samples | Batches,
        size: int,
        dtype: torch.dtype,
        tf32: bool = False,
        penalty: MAN | None = None,
    ) -> None:
        self.data, self.size, self.dtype, self.tf32, self.penalty = data, size, dtype, tf32, penalty
        self.sound: set[Any] = set()

    @property
    def cut(self) -> tuple[int, int, int]:
        """What decides which samples a micro-batch has: (size, rank, number of ranks)."""
        return self.size, *rank_and_world()

    @property
    def divided(self) -> bool:
        """Whether there is more than one, on all ranks together."""
        return self.size < len(self.data) or rank_and_world()[1] > 1

    @property
    def resident(self) -> list[Tensor]:
        """Tensors that live as long as the data set, of which a micro-batch may be a part."""
        return [self.data.inputs, self.data.targets] if isinstance(self.data, Samples) else []

    def __iter__(self) -> Iterator[tuple[int, Any, Any, float]]:
        return self.data.portion(self.size, self.dtype, *rank_and_world())

    def scored(self, module: nn.Module, loss: Loss, inputs: Any, targets: Any) -> tuple[Tensor, Tensor]:
        """A micro-batch's mean loss, with the penalty of its activations where there is one, and the outputs.

        Raises:
            FedscapeError: the objective is no scalar; the penalty finds no activation.
        """
        if self.penalty is None:
            outputs = self.outputs(module, inputs)
            return loss(outputs, targets), outputs
        with self.penalty.watching(module) as penalty:
            outputs = self.outputs(module, inputs)
        return loss(outputs, targets) + penalty(), outputs

    def outputs(self, module: nn.Module, inputs: Any) -> Tensor:
        """What the loss takes beside the targets: the module's outputs, or of :class:`Batches` their objective.

        Raises:
            FedscapeError: the objective is no scalar.
        """
        if isinstance(self.data, Samples):
            return module(inputs)
        value = self.data.objective(module, inputs)
        if not isinstance(value, Tensor) or value.numel() != 1:
            what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise FedscapeError(f"the objective returned {what}: it must return a scalar tensor, the batch's mean")
        return value.reshape(())

    def sum(self, over_portion: Callable[[], Tensor]) -> Tensor:
        """What ``over_portion()`` sums over this rank's portion, summed over all ranks by one all-reduce.

        Where the device's memory runs out it begins again with micro-batches of half the size, which stays and is
        reported by a warning.

        Raises:
            torch.OutOfMemoryError: one sample is too much.
        """
        while True:
            try:
                total = over_portion()
                break
            except torch.OutOfMemoryError:
                _, world = rank_and_world()
                largest = min(self.size, -(-len(self.data) // world))
                if largest <= 1:
                    raise
            # Out of the handler: the error's traceback would keep the graph alive.
            self.size = largest // 2
            warnings.warn(f"the device ran out of memory: the micro-batch size is now {self.size}", stacklevel=2)
        return sum_over_ranks(total)
