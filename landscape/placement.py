"""Placement: the device and the arithmetic of a landscape, and its data in micro-batches there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from landscape.activations import MAN
from landscape.compute.devices import TF32, resolve_device, resolve_dtype
from landscape.data.batches import Batches
from landscape.data.micro_batches import MicroBatches, cost_in, micro_batch_size
from landscape.data.samples import Samples, as_samples
from landscape.errors import FedscapeError
from landscape.tasks import Task


@dataclass(frozen=True)
class Placement:
    """Where and how a landscape is computed: this changes speed, memory and rounding, not the function.

    Attributes:
        device: of the model and of the micro-batches.
        dtype: of the parameters and the inputs.
        tf32: whether products may round to TF32.
        batch_size: samples per micro-batch; by shapes unless given.
        stream: whether the samples stay in the host's memory; by their size unless given.
    """

    device: torch.device
    dtype: torch.dtype
    tf32: bool
    batch_size: int | None
    stream: bool | None

    @classmethod
    def resolved(
        cls,
        model: nn.Module,
        device: str | torch.device,
        dtype: str | torch.dtype | None,
        batch_size: int | None,
        stream: bool | None,
    ) -> Placement:
        """The placement that the arguments of :class:`landscape.Landscape` describe.

        Raises:
            FedscapeError: an unknown device or dtype, ``tf32`` on the CPU, a batch size below 1.
        """
        check_batch_size(batch_size)
        place = resolve_device(device)
        own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        tf32 = dtype == TF32
        if tf32 and place.type != "cuda":
            raise FedscapeError(f"tf32 is arithmetic of CUDA devices and this one is {place}: give float32 or float64")
        return cls(place, torch.float32 if tf32 else resolve_dtype(dtype or own), tf32, batch_size, stream)

    def micro_batches(
        self, data: Samples | tuple[Tensor, Tensor] | Batches, task: Task, penalty: MAN | None, module: nn.Module
    ) -> MicroBatches:
        """Move the data to the device and divide them into micro-batches: on the CPU by what a sample costs."""
        if isinstance(data, Batches):
            return MicroBatches(data.to(self.device), 1, self.dtype, self.tf32, penalty)
        here = as_samples(data).placed(self.device, self.stream)
        cost = cost_in(module, here, self.dtype)
        size = self.batch_size or micro_batch_size(self.device, task, here.targets, cost)
        return MicroBatches(here, size, self.dtype, self.tf32, penalty, cost)


def check_batch_size(size: int | None) -> None:
    """Refuse a micro-batch of no samples.

    Raises:
        FedscapeError: ``size`` is below 1.
    """
    if size is not None and size < 1:
        raise FedscapeError(f"the micro-batch size is {size}: it must be at least 1")
