"""Micro-batches: the parts of a data set that fit into memory, and sums over all of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from landscape.activations import MAN
from landscape.compute.cost import EXAMPLES, SampleCost, sample_cost, threads_for
from landscape.compute.devices import memory_ran_out
from landscape.compute.distributed import rank_and_world, sum_over_ranks
from landscape.compute.memory import keep_freed_memory
from landscape.data.anything import logits
from landscape.data.batches import Batches
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.sample_losses import losses_at_once, sample_losses, with_float64
from landscape.tasks import Loss

_SAMPLES = {"cpu": 256, "cuda": 1024}
"""Samples per micro-batch where their cost is unknown."""
_SMALL_IMAGE = 32 * 32
_SAVED = 128 << 20
"""Bytes that autograd may save in the forward pass of a micro-batch on the CPU."""
_MOST = 8192
"""Of a tiny model's samples: its products take no less time with more."""


def cost_in(module: nn.Module, data: Samples, dtype: torch.dtype) -> SampleCost | None:
    """What a sample of the data costs the module; ``None`` if unknown, as on CUDA, where no rule asks for it."""
    inputs, _ = data.batch(slice(0, EXAMPLES), dtype)
    return sample_cost(module, inputs) if inputs.device.type == "cpu" else None


def micro_batch_size(device: torch.device, task: str, targets: Tensor, cost: SampleCost | None) -> int:
    """The default number of samples per micro-batch, by shapes alone.

    On the CPU it is the largest power of two up to 8192 for which autograd saves at most 128 MiB in a forward pass, or
    1.  The kept graph of its gradient takes up to about twice that, and twice the parameters, and the products with it
    as much again while they are computed.  Smaller sizes cost the fixed part of every call, and gradients of all
    parameters for few samples.  CPU time of a product with a kept graph over the whole data set, one thread, in units
    of that at the fastest of sizes from 16 (``resnet18_gn``: 64) to all samples, n:

    | model, n | chosen | there | at 256 | at 16 |
    | --- | --- | --- | --- | --- |
    | ``digits_mlp``, 1442 | all | 1.00 | 2.13 | 18.3 |
    | ``digits_cnn``, 1442 | all | 1.00 | 1.33 | 4.58 |
    | ``lenet_fed``, 512 | 256 | 1.05 | 1.05 | 1.2 |
    | ``resnet20_gn``, 256 | 64 | 1.01 (of a block) to 1.17 | 1.02 | 1.1 |
    | ``resnet18_gn``, 256 | 256 | 1.00 | 1.00 | – |

    On CUDA it is 1024, and for models that do not take a few samples alone 256 on the CPU; for segmentation, whose
    images are large, as many pixels as so many small images have.

    Args:
        device: of the computation.
        task: ``classification`` or ``segmentation``.
        targets: of all samples, [n, ...].
        cost: of one sample (:func:`cost_in`).
    """
    if cost is None:
        size = _SAMPLES[device.type]
        return size if task == "classification" else max(1, size * _SMALL_IMAGE // targets[0].numel())
    fits = max(1, min(_MOST, int(_SAVED / max(1.0, cost.saved))))
    return 1 << (fits.bit_length() - 1)


class MicroBatches:
    """A data set in micro-batches: the portion of this rank, ``size`` samples at a time.

    An iteration gives (position of the first sample, inputs, targets, share of the whole data set).  Of
    :class:`landscape.data.batches.Batches`, each batch is one micro-batch and ``size`` is 1.

    Args:
        data: the whole data set.
        size: samples per micro-batch.
        dtype: of the inputs.
        tf32: whether products over the micro-batches may round to TF32.
        penalty: added to the loss of each micro-batch.
        cost: of one sample; where it is given, it decides on the number of CPU threads.

    Attributes:
        only_logits: whether the loss is of the logits alone where the module's outputs hold more: a user's own loss
            gets what the module gives.
        checked: the preconditions that :mod:`landscape.autograd.preconditions` has found true of these data.

    Example:
        >>> import torch
        >>> from landscape.data.micro_batches import MicroBatches
        >>> from landscape.data.samples import Samples
        >>> data = Samples(torch.arange(5.0), torch.arange(5))
        >>> [(start, targets.tolist(), share) for start, _, targets, share in MicroBatches(data, 3, torch.float32)]
        [(0, [0, 1, 2], 0.6), (3, [3, 4], 0.4)]
    """

    def __init__(
        self,
        data: Samples | Batches,
        size: int,
        dtype: torch.dtype,
        tf32: bool = False,
        penalty: MAN | None = None,
        cost: SampleCost | None = None,
    ) -> None:
        self.data, self.size, self.dtype, self.tf32, self.penalty = data, size, dtype, tf32, penalty
        self.cost = cost
        self.checked: set[Any] = set()
        self.only_logits = False

    @property
    def division(self) -> tuple[int, int, int]:
        """What determines the samples of each micro-batch: (size, rank, number of ranks)."""
        return self.size, *rank_and_world()

    @property
    def divided(self) -> bool:
        """Whether there is more than one micro-batch, on all ranks together."""
        return self.size < len(self.data) or rank_and_world()[1] > 1

    @property
    def flops(self) -> float:
        """Of the forward pass of a micro-batch (:class:`landscape.compute.cost.SampleCost`); infinity if unknown."""
        return math.inf if self.cost is None else self.cost.flops * min(self.size, len(self.data))

    @property
    def resident(self) -> list[Tensor]:
        """Tensors that stay in memory as long as the data set; a micro-batch may be a view of them."""
        return [self.data.inputs, self.data.targets] if isinstance(self.data, Samples) else []

    def digest(self) -> str:
        """The digest of the data, and the penalty."""
        return f"{self.data.digest()} {self.penalty}"

    def __iter__(self) -> Iterator[tuple[int, Any, Any, float]]:
        return self.data.portion(self.size, self.dtype, *rank_and_world())

    def of_all_ranks(self) -> Iterator[tuple[int, Any, Any, float]]:
        """All micro-batches of the data set, whatever the rank of this process."""
        return self.data.portion(self.size, self.dtype, rank=0, world=1)

    def scored(self, module: nn.Module, loss: Loss, inputs: Any, targets: Any) -> tuple[Tensor, Tensor]:
        """A micro-batch's mean loss, plus the penalty on its activations if there is one, and the outputs.

        Raises:
            FedscapeError: the objective is not a scalar; there are no activations to penalise.
        """
        if self.penalty is None:
            outputs = self.outputs(module, inputs)
            return self.mean_loss(loss, outputs, targets), outputs
        with self.penalty.watching(module) as penalty:
            outputs = self.outputs(module, inputs)
        return self.mean_loss(loss, outputs, targets) + penalty(), outputs

    def mean_loss(self, loss: Loss, outputs: Tensor, targets: Any) -> Tensor:
        """The loss of a micro-batch's outputs; in float64 if the loss is known and arithmetic is float32 (not TF32)."""
        return loss(*self._arguments(loss, outputs, targets))

    def sample_losses(self, loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample, [n]; in float64 as :meth:`mean_loss`."""
        return sample_losses(loss, *self._arguments(loss, outputs, targets))

    def losses_at_once(self, loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """As :func:`landscape.sample_losses.losses_at_once`; in float64 as :meth:`mean_loss`."""
        return losses_at_once(loss, *self._arguments(loss, outputs, targets))

    def _arguments(self, loss: Loss, outputs: Tensor, targets: Any) -> tuple[Tensor, Any]:
        return (outputs, targets) if self.tf32 else with_float64(loss, outputs, targets)

    def outputs(self, module: nn.Module, inputs: Any) -> Tensor:
        """The first argument of the loss: the module's outputs; of ``Batches``, the objective's value.

        Raises:
            FedscapeError: the objective is not a scalar.
        """
        if isinstance(self.data, Samples):
            outputs = module(inputs)
            return logits(outputs) if self.only_logits else outputs
        value = self.data.objective(module, inputs)
        if not isinstance(value, Tensor) or value.numel() != 1:
            what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise FedscapeError(f"the objective returned {what}: it must return a scalar tensor, the batch's mean")
        return value.reshape(())

    def sum(self, over_portion: Callable[[], Tensor]) -> Tensor:
        """The sum over all ranks of ``over_portion()``, itself a sum over this rank's portion: one all-reduce.

        Where the device's memory runs out, the micro-batch size is halved, with a warning, and the sum starts again.
        The smaller size stays.

        Raises:
            torch.OutOfMemoryError: a single sample takes too much memory (or PyTorch's other words for it,
                :func:`landscape.compute.devices.memory_ran_out`).
        """
        keep_freed_memory()
        while True:
            try:
                with threads_for(self.flops):
                    total = over_portion()
                break
            except RuntimeError as error:
                _, world = rank_and_world()
                largest = min(self.size, -(-len(self.data) // world))
                if largest <= 1 or not memory_ran_out(error):
                    raise
            # Outside the handler, because the traceback of the error would keep the graph in memory.
            self.size = largest // 2
            warnings.warn(f"the device ran out of memory: the micro-batch size is now {self.size}", stacklevel=2)
        return sum_over_ranks(total)
