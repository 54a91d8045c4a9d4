"""Inputs and targets on a device, normalised on the fly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from landscape.errors import FedscapeError

Indices = slice | Tensor


@dataclass(frozen=True)
class Samples:
    """n samples: ``inputs`` [n, ...] as stored (uint8 images stay uint8) and ``targets`` [n, ...].

    ``mean`` and ``std`` ([C, 1, 1], in the stored units) normalise a batch when it is taken: a batch of
    floating-point or uint8 inputs is ``(inputs − mean) / std`` in the dtype asked for; other integers
    (token ids) are passed as they are.

    Raises:
        FedscapeError: no samples, or inputs and targets differ in number.
    """

    inputs: Tensor
    targets: Tensor
    mean: Tensor | None = None
    std: Tensor | None = None

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

    def to(self, device: torch.device | str) -> Samples:
        """The same samples on a device."""
        move = {k: v.to(device) for k, v in vars(self).items() if v is not None}
        return replace(self, **move)

    def subset(self, indices: Sequence[int] | Tensor) -> Samples:
        """The samples at these positions, in that order."""
        chosen = torch.as_tensor(indices, dtype=torch.long, device=self.device)
        return replace(self, inputs=self.inputs[chosen], targets=self.targets[chosen])

    def batch(self, indices: Indices, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The model's inputs and the targets at these positions, ready for the loss."""
        return self.prepare(self.inputs[indices], dtype), self._targets(indices, dtype)

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
        return (inputs - self.mean.to(dtype)) / self.std.to(dtype)

    def _targets(self, indices: Indices, dtype: torch.dtype) -> Tensor:
        targets = self.targets[indices]
        return targets.to(dtype) if targets.is_floating_point() else targets

    def batches(self, size: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor, float]]:
        """All samples in order, ``size`` at a time: inputs, targets and the batch's share of n."""
        n = len(self)
        for start in range(0, n, size):
            stop = min(start + size, n)
            inputs, targets = self.batch(slice(start, stop), dtype)
            yield inputs, targets, (stop - start) / n


def as_samples(data: Samples | tuple[Tensor, Tensor]) -> Samples:
    """``Samples`` as they are; a pair of tensors (inputs, targets) is wrapped."""
    return data if isinstance(data, Samples) else Samples(*data)
