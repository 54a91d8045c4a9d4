"""Loss and scores over a whole data set, at many points."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from landscape.autograd.flat import FlatModule
from landscape.autograd.folding import fold_batchnorm
from landscape.autograd.preconditions import require_mean
from landscape.compute.devices import free_memory, memory_ran_out, reproducible_arithmetic
from landscape.data.anything import logits
from landscape.data.batches import Batches
from landscape.data.micro_batches import MicroBatches
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.storage.display import Shown
from landscape.tasks import Loss, Task, confusion, mean_iou, pixel_accuracy

_ELEMENTS = {"cpu": 256 * 3 * 32 * 32, "cuda": 1024 * 3 * 32 * 32}
"""The largest numbers of input elements and of samples in a micro-batch, by device."""
_SAMPLES = {"cpu": 1024, "cuda": 4096}
_NEARLY = 1.03
_CENTRE = 256
"""The largest size around which micro-batch sizes are timed: evaluations are hardly faster beyond four times it."""
_TUNED = 128
"""A micro-batch size is timed on at least this number of samples."""


def check_bf16(precision: str) -> None:
    """Refuse bfloat16 products where the precision (:attr:`landscape.Landscape.precision`) is not float32.

    Raises:
        FedscapeError: another precision.
    """
    if precision != "float32":
        raise FedscapeError(f"bfloat16 products are of float32 parameters: leave out bf16, or the dtype {precision}")


@dataclass(frozen=True)
class Evaluation(Shown):
    """Mean loss and fraction of correct predictions over a data set (``None`` if the targets are not classes).

    For segmentation, ``accuracy`` is the fraction of correct labelled pixels, and ``mean_iou`` the mean intersection
    over union of the classes (:func:`landscape.tasks.mean_iou`), both over all samples; for other tasks ``mean_iou`` is
    ``None``.  ``loss_stderr`` and ``accuracy_stderr`` are the standard errors of the means over the samples, where they
    were requested and are defined.
    """

    loss: float
    accuracy: float | None
    loss_stderr: float | None = None
    accuracy_stderr: float | None = None
    mean_iou: float | None = None


class Evaluator:
    """w -> :class:`Evaluation`: loads each point into a module and evaluates it; sums are in float64.

    Args:
        flat: the module.
        loss: (outputs, targets) -> mean over the batch.
        batches: the data; their ``size`` is read again for each point.
        task: the meaning of the outputs.
        many: prepare for many points: BatchNorm is folded into the layer before it where that is exact
            (:mod:`landscape.autograd.folding`), and the normalised inputs of the micro-batches are kept if they take
            less than a quarter of the device's free memory.
        bf16: compute products and convolutions of float32 numbers (:func:`check_bf16`) in bfloat16 (autocast: 8-bit
            mantissas, relative errors of the loss of about 3e-3), parameters and losses in float32.

    Attributes:
        folded: the number of BatchNorm layers that are folded.

    Example:
        >>> import torch
        >>> from landscape import Landscape
        >>> line = torch.nn.Linear(2, 1, bias=False)
        >>> data = torch.eye(2), torch.ones(2, 1)
        >>> bowl = Landscape(line, data, torch.nn.functional.mse_loss, device="cpu")
        >>> evaluator = bowl.evaluator()
        >>> [evaluator(torch.tensor([1.0, height])).loss for height in (1.0, 3.0)]
        [0.0, 2.0]
    """

    def __init__(
        self,
        flat: FlatModule,
        loss: Loss,
        batches: MicroBatches,
        task: Task,
        *,
        many: bool = False,
        bf16: bool = False,
    ) -> None:
        self._flat, self._loss, self._batches, self._task, self._bf16 = flat, loss, batches, task, bf16
        self._folding = None
        if (
            many and batches.penalty is None and isinstance(batches.data, Samples)
        ):  # a penalty needs the layers as they are
            example, _ = batches.data.batch(slice(0, 8), flat.dtype)
            with reproducible_arithmetic():
                self._folding = fold_batchnorm(flat.module, example)
        self.folded = 0 if self._folding is None else len(self._folding.layers)
        self._module = flat.module if self._folding is None else self._folding.module
        # If so, the loss is computed as the mean of the samples' losses, even without standard errors.
        self._at_once = batches.penalty is None and loss is cross_entropy and _all_classes(batches.data)
        self._keeps = many and isinstance(batches.data, Samples)
        self._kept: _Kept | None = None

    def __call__(self, w: Tensor, *, stderr: bool = False) -> Evaluation:
        """Loss and scores at ``w`` ([d]).

        Args:
            w: the point.
            stderr: also compute standard errors over the samples: √(variance of the samples' losses / n).  They do not
                include a penalty, and there is none for arbitrary batches and for the accuracy of a segmentation.

        Raises:
            FedscapeError: the loss is no mean over samples, where there are several micro-batches or standard errors.
        """
        data = self._batches.data
        targets = data.targets if isinstance(data, Samples) and not data.targets.is_floating_point() else None
        by_pixel = targets is not None and self._task == "segmentation"
        each, n = stderr and isinstance(data, Samples) and len(data) > 1, len(data)

        def over_portion() -> Tensor:
            require_mean(self._flat, self._loss, self._batches, each=each)
            sums = torch.zeros(3 + counts, dtype=torch.float64, device=self._flat.device)
            for _, x, y, share in self._inputs():
                if self._at_once:
                    outputs = self._outputs(x)
                else:
                    loss, outputs = self._scored(x, y)
                    sums[0] += share * loss.double()
                if self._at_once or each:
                    losses = self._batches.sample_losses(self._loss, outputs, y).double()
                    sums[1] += losses.sum()
                    sums[2] += losses.square().sum()
                if by_pixel:
                    sums[3:] += confusion(outputs, y).flatten()
                elif targets is not None:
                    sums[3] += (logits(outputs).argmax(dim=1) == y).sum()
            return sums

        self._flat.load(w)
        with self._arithmetic():
            if self._folding is not None:
                self._folding.refresh()
            classes = self._classes() if by_pixel else 1
            counts = classes**2
            sums = self._batches.sum(over_portion)
        loss, first, second = sums[:3].tolist()
        loss = first / n if self._at_once else loss
        error = _stderr(first, second, n) if each else None
        if targets is None:
            return Evaluation(loss, None, error)
        if by_pixel:
            table = sums[3:].view(classes, classes)
            return Evaluation(loss, pixel_accuracy(table), error, mean_iou=mean_iou(table))
        correct, of_samples = sums[3].item(), each and targets.dim() == 1
        accuracy_error = _stderr(correct, correct, n) if of_samples else None
        return Evaluation(loss, correct / targets.numel(), error, accuracy_error)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}  # whoever unpickles it prepares inputs of its own

    def fit(self) -> int:
        """Set the micro-batch size by the shape of the samples, and return it: the same on every machine.

        It is the largest power of two for which a micro-batch has at most 1024 samples (on CUDA 4096) and at most as
        many input elements as 256 images of 3 × 32 × 32 (on CUDA 1024); or all samples if they are fewer.  On a CPU
        (one thread) it was within 8 % of the fastest size for ``digits_mlp``, ``digits_cnn``, ``lenet_fed``,
        ``cnn_emnist``, ``convnet_tiny``, ``mobilenet_v2_gn``, ``resnet18_gn`` and ``resnet20_gn``: between 128 and 1024
        samples the speed hardly changes; with fewer, the time of small networks is mostly that of Python.
        """
        data = self._batches.data
        if isinstance(data, Samples):
            kind = self._flat.device.type
            fits = max(1, min(_SAMPLES[kind], _ELEMENTS[kind] // max(1, data.inputs[:1].numel())))
            self._batches.size = min(1 << (fits.bit_length() - 1), len(data))
        return self._batches.size

    def tune(self) -> int:
        """Set the micro-batch size to the fastest one on some of the samples, and return it.

        The choice depends on the clock, so two measurements may differ by rounding.

        Sizes from a sixteenth to four times the present one, or 256 where that is less, are timed at the module's
        present point, in ascending order, until two in succession are slower than the best or the device's memory runs
        out.  Of sizes that are nearly as fast, the smallest is taken, which needs the least memory.
        """
        data = self._batches.data
        if not isinstance(data, Samples):
            return self._batches.size
        times: dict[int, float] = {}
        centre = min(self._batches.size, _CENTRE)
        for size in sorted({min(max(1, int(centre * 2.0**k)), len(data)) for k in range(-4, 3)}):
            try:
                times[size] = self._seconds_per_sample(data, size)
            except RuntimeError as error:
                if not memory_ran_out(error):
                    raise
                break
            if all(seconds > min(times.values()) for seconds in list(times.values())[-2:]):
                break
        enough = _NEARLY * min(times.values(), default=math.inf)
        self._batches.size = next((size for size, seconds in times.items() if seconds <= enough), self._batches.size)
        return self._batches.size

    def keep(self) -> None:
        """Prepare the inputs to be kept now, instead of at the first point."""
        if self._keeps and (self._kept is None or self._kept.division != self._batches.division):
            self._kept = _Kept.of(self._batches, self._flat.device)
            self._keeps = self._kept is not None

    def _seconds_per_sample(self, data: Samples, size: int) -> float:
        count = -(-max(size, _TUNED) // size)

        def some() -> int:
            parts = itertools.islice(data.portion(size, self._flat.dtype, 0, 1), count)
            samples = sum(len(self._scored(x, y)[1]) for _, x, y, _ in parts)
            if self._flat.device.type == "cuda":
                torch.cuda.synchronize(self._flat.device)
            return samples

        with self._arithmetic():
            if self._folding is not None:
                self._folding.refresh()
            some()  # the first pass at a size includes the choice of kernels
            start = time.perf_counter()
            samples = some()
            return (time.perf_counter() - start) / samples

    @contextmanager
    def _arithmetic(self) -> Iterator[None]:
        device = self._flat.device.type
        lower = torch.autocast(device, torch.bfloat16) if self._bf16 else nullcontext()
        with reproducible_arithmetic(self._batches.tf32), torch.no_grad(), lower:
            yield

    def _scored(self, x: Any, y: Any) -> tuple[Tensor, Tensor]:
        if not self._bf16:
            return self._batches.scored(self._module, self._loss, x, y)

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            with torch.autocast(outputs.device.type, enabled=False):
                return self._loss(outputs.float(), targets)

        value, outputs = self._batches.scored(self._module, loss, x, y)
        return value, outputs.float()

    def _outputs(self, x: Any) -> Tensor:
        outputs = self._batches.outputs(self._module, x)
        return outputs.float() if self._bf16 else outputs

    def _inputs(self) -> Iterator[tuple[int, Any, Any, float]]:
        """The micro-batches, from memory if their inputs are kept."""
        self.keep()
        if self._kept is None:
            yield from self._batches
            return
        yield from self._kept.batches
        if not self._kept.unchanged:
            self._kept, self._keeps = None, False  # the model changes its inputs in place

    def _classes(self) -> int:
        """The number of outputs per pixel, also on ranks without samples."""
        assert isinstance(self._batches.data, Samples)
        x, _ = self._batches.data.batch(slice(0, 1), self._flat.dtype)
        return self._batches.outputs(self._module, x).shape[1]


@dataclass(frozen=True)
class _Kept:
    """The inputs of all micro-batches, normalised once and kept; ``division`` as in :class:`MicroBatches`."""

    division: tuple[int, int, int]
    batches: list[tuple[int, Tensor, Tensor, float]]
    versions: list[int]

    @classmethod
    def of(cls, batches: MicroBatches, device: torch.device) -> _Kept | None:
        """Compute and keep them; ``None`` if they would take too much memory."""
        data = batches.data
        assert isinstance(data, Samples)
        if data.streams or data.inputs.numel() * batches.dtype.itemsize > free_memory(device) // 4:
            return None
        found = list(batches)
        return cls(batches.division, found, [x._version for _, x, _, _ in found])

    @property
    def unchanged(self) -> bool:
        """Whether the inputs have not been written to."""
        return self.versions == [x._version for _, x, _, _ in self.batches]


def _all_classes(data: Samples | Batches) -> bool:
    """Whether the target of every sample is one class, and none is ignored."""
    if not isinstance(data, Samples) or data.targets.dim() != 1 or data.targets.is_floating_point():
        return False
    return int(data.targets.min()) >= 0


def _stderr(first: float, second: float, n: int) -> float:
    """The standard error of the mean of n numbers, from their sum and the sum of their squares."""
    spread = second / n - (first / n) ** 2
    # A comparison with NaN is false: the standard error of a loss that is not finite is NaN.
    return 0.0 if spread < 0 else math.sqrt(spread / (n - 1)) if spread < math.inf else math.nan
