"""Samples: inputs and targets in memory, normalised when a batch of them is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from landscape.compute.devices import free_memory, on_device
from landscape.compute.randomness import torch_generator
from landscape.errors import FedscapeError
from landscape.storage.digests import tensor_digest
from landscape.storage.display import Shown

Indices = slice | Tensor


@dataclass(frozen=True, repr=False)
class Samples(Shown):
    """n samples: ``inputs`` [n, ...] as stored (uint8 images stay uint8) and ``targets`` [n, ...].

    ``mean`` and ``std`` ([C, 1, 1], in the units of the stored inputs) normalise a batch when it is taken: a batch of
    floating-point or uint8 inputs is ``(inputs − mean) / std`` in the requested dtype.  Other integers (token ids) are
    returned unchanged.

    ``place`` is the device that batches are copied to; unless given, batches stay on the device of the samples.

    Raises:
        FedscapeError: no samples, or inputs and targets differ in number.

    Example:
        >>> import torch
        >>> from landscape import Samples
        >>> images = torch.tensor([[[[0, 255]]], [[[51, 102]]]], dtype=torch.uint8)
        >>> samples = Samples(images, torch.tensor([3, 7]), mean=torch.zeros(1, 1, 1), std=torch.full((1, 1, 1), 255.0))
        >>> inputs, targets = samples.batch(slice(0, 1), torch.float32)
        >>> inputs, targets
        (tensor([[[[0., 1.]]]]), tensor([3]))
        >>> len(samples.subset([1]))
        1
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

    def _facts(self) -> dict[str, str]:
        facts = {"samples": f"{len(self):,}"}
        for name, tensor in (("inputs", self.inputs), ("targets", self.targets)):
            shape = " × ".join(map(str, tensor.shape[1:])) or "one number each"
            facts[name] = f"{shape}, {str(tensor.dtype).removeprefix('torch.')}"
        return facts | {"device": str(self.device)}

    @property
    def device(self) -> torch.device:
        """The device that stores the samples."""
        return self.inputs.device

    @property
    def streams(self) -> bool:
        """Whether batches are copied from the host's memory to another device."""
        return self.place is not None and self.place != self.device

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors that determine the values of batches: inputs, targets, mean, std."""
        return self.inputs, self.targets, self.mean, self.std

    @property
    def nbytes(self) -> int:
        """The size of all tensors in bytes."""
        return sum(tensor.nbytes for tensor in self.tensors if tensor is not None)

    def to(self, device: torch.device | str) -> Samples:
        """Copy the samples to a device."""
        return Samples(*(None if t is None else t.to(device) for t in self.tensors))  # type: ignore[arg-type]

    def streamed(self, place: torch.device | str) -> Samples:
        """The same samples in the host's memory; each batch is copied to ``place`` when it is taken.

        For CUDA the memory is pinned, so that the host does not wait for the copies, unless the samples take more than
        half of the host's free memory: samples that are mapped from a file stay in the file.
        """
        host, place = self.to("cpu"), torch.device(place)
        if place.type == "cuda" and self.nbytes <= free_memory(torch.device("cpu")) // 2:
            host = replace(host, inputs=host.inputs.pin_memory(), targets=host.targets.pin_memory())
        return replace(host, place=place)

    def placed(self, place: torch.device, stream: bool | None = None) -> Samples:
        """The same samples on a device, or streamed to it.

        Args:
            place: the device.
            stream: whether to stream; unless given, where the samples take more than half of the free GPU memory.
        """
        if stream is None:
            stream = place.type == "cuda" and self.device.type == "cpu" and self.nbytes > free_memory(place) // 2
        return self.streamed(place) if stream else self.to(place)

    def digest(self) -> str:
        """A SHA-256 digest of all tensors."""
        return tensor_digest(*self.tensors)

    def subset(self, indices: Sequence[int] | Tensor) -> Samples:
        """The samples at these positions, in that order."""
        chosen = torch.as_tensor(indices, dtype=torch.long, device=self.device)
        return replace(self, inputs=self.inputs[chosen], targets=self.targets[chosen])

    def batch(self, indices: Indices, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The model's inputs and the targets at these positions, ready for the loss."""
        return self.prepare(self._taken(self.inputs, indices), dtype), self._targets(indices, dtype)

    def stored(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and targets at these positions as stored, on the device of the batches: for augmentation."""
        return self._taken(self.inputs, indices), self._taken(self.targets, indices)

    def _taken(self, tensor: Tensor, indices: Indices) -> Tensor:
        if self.place is None:
            return tensor[indices]
        here = indices.to(tensor.device) if isinstance(indices, Tensor) else indices
        return on_device(tensor[here], self.place)

    def prepare(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """Stored inputs -> the model's inputs: normalised, in ``dtype``."""
        if inputs.dtype != torch.uint8 and not inputs.is_floating_point():
            return inputs
        inputs = inputs.to(dtype)
        if inputs.dim() == 4 and inputs.device.type == "cpu":
            # Convolutions and pooling on the CPU are faster in this memory format.
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if self.mean is None or self.std is None:
            return inputs
        mean, std = (on_device(each.to(dtype), inputs.device) for each in (self.mean, self.std))
        return (inputs - mean) / std

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
        """The samples of one rank, ``size`` at a time: position of the first one, inputs, targets, share of all n.

        The samples of a rank are consecutive, and the numbers of samples of any two ranks differ by at most one.
        With more ranks than samples, some ranks have none.
        """
        n = len(self)
        first, last = rank * n // world, (rank + 1) * n // world
        for start in range(first, last, size):
            stop = min(start + size, last)
            inputs, targets = self.batch(slice(start, stop), dtype)
            yield start, inputs, targets, (stop - start) / n

    def even_inputs(self, size: int, dtype: torch.dtype) -> Iterator[Tensor]:
        """The inputs of all samples in batches of nearly equal size, at most ``size``."""
        count = -(-len(self) // size)
        for k in range(count):
            yield self.batch(slice(k * len(self) // count, (k + 1) * len(self) // count), dtype)[0]


def as_samples(data: Samples | tuple[Tensor, Tensor]) -> Samples:
    """Return ``Samples`` unchanged; make them of a pair of tensors (inputs, targets)."""
    return data if isinstance(data, Samples) else Samples(*data)


def random_subset(data: Samples, count: int) -> Samples:
    """Draw ``count`` samples without replacement: always the same samples of the same data.

    Raises:
        FedscapeError: ``count`` is below 1 or above the number of samples.

    Example:
        >>> import torch
        >>> from landscape.data.samples import Samples, random_subset
        >>> ten = Samples(torch.arange(10.0), torch.arange(10))
        >>> torch.equal(random_subset(ten, 3).targets, random_subset(ten, 3).targets)
        True
    """
    if not 1 <= count <= len(data):
        raise FedscapeError(f"{count} samples are asked for: give a number from 1 to {len(data)}")
    return data.subset(random_order(data)[:count].sort().values)


def random_order(data: Samples) -> Tensor:
    """A random order of the samples, [n], always the same: :func:`random_subset` takes the first ones."""
    return torch.randperm(len(data), generator=torch_generator(0, "subset"))
