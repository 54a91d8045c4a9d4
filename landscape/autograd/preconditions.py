"""Preconditions of a landscape: the loss is a function of the parameters, and the mean over samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from landscape.autograd.flat import FlatModule
from landscape.compute.devices import memory_ran_out
from landscape.data.batches import Batches, tensors
from landscape.data.micro_batches import MicroBatches
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.tasks import Loss

SAMPLES = 32
"""The largest number of samples that are checked."""
_TOLERANCE = 1e-3
"""The largest difference between two equal computations, relative to the largest number in them.  It is far above
rounding: outputs of batches of one shape, and losses of the same outputs, are compared."""


def require_function(flat: FlatModule, loss: Loss, batches: MicroBatches, *, each: bool = False) -> None:
    """Check that the outputs are the same each time, and those of a sample the same whatever samples are in its batch.

    The check is done once for the micro-batches, on copies, and without communication: all ranks check the same
    samples.  Other samples in the batch do not matter where all samples are in one micro-batch, nor in
    :class:`Batches`, where each batch counts as a whole: the first one is run twice.

    Args:
        flat: the module, at any point.
        loss: (outputs, targets) -> mean over the batch.
        batches: the data.
        each: whether the outputs of single samples are needed even of one micro-batch.

    Raises:
        FedscapeError: the module draws random numbers, changes its state or its parameters, or mixes samples; the loss
            is not a mean (:func:`require_mean`).
    """
    require_mean(flat, loss, batches, each=each)
    divided = _divided(batches, each)
    if ("function", divided) in batches.checked:
        return
    with _where_memory_suffices():
        private = FlatModule(flat.module, flat.device, flat.dtype)
        outputs = _repeatable_outputs(private, flat, loss, batches, divided)
        if divided:
            _require_samples_apart(private, batches, outputs)
        batches.checked.add(("function", divided))


def require_mean(flat: FlatModule, loss: Loss, batches: MicroBatches, *, each: bool = False) -> None:
    """Check that the loss of a batch is the mean of its parts' losses, weighted by their sizes.

    The arguments are those of :func:`require_function`.

    Raises:
        FedscapeError: the loss is a sum, or has weights or ignored targets.
    """
    if "mean" in batches.checked or not _divided(batches, each):
        return
    with _where_memory_suffices():
        private = FlatModule(flat.module, flat.device, flat.dtype)
        x, y = _taken(batches, True)
        outputs = batches.outputs(private.module, x)
        if isinstance(outputs, Tensor) and _rowwise(private, batches, [outputs], len(y)):
            _require_mean_of(loss, outputs, y)
        batches.checked.add("mean")


@contextmanager
def _where_memory_suffices() -> Iterator[None]:
    """Inside, a device's memory may run out: the computation itself may take fewer samples at once."""
    try:
        yield
    except RuntimeError as error:
        if not memory_ran_out(error):
            raise


def _require_mean_of(loss: Loss, outputs: Tensor, y: Tensor) -> None:
    part = _part(len(y))
    share = part / len(y)
    whole, low, high = loss(outputs, y), loss(outputs[:part], y[:part]), loss(outputs[part:], y[part:])
    if whole.numel() != 1:
        raise FedscapeError(f"the loss has the shape {tuple(whole.shape)}: it must be a scalar, the batch's mean")
    rounding = torch.finfo(whole.dtype).eps
    # Positive and negative losses may cancel: the sum is known up to the rounding of the outputs.
    allowed = max(_TOLERANCE, 4 * rounding) * _largest(torch.stack([whole, low, high]))
    allowed += 16 * rounding * _largest(outputs)
    if not whole.isfinite() or (whole - share * low - (1 - share) * high).abs() <= allowed:
        return
    if (whole - low - high).abs() <= allowed:
        raise FedscapeError("the loss is a sum over the batch: it must be the mean, give it reduction='mean'")
    raise FedscapeError(
        "the loss of a batch is not the mean of its samples' losses, as with class weights or ignored targets: take "
        "the mean of reduction='none' over all samples, or Landscape.of(..., size=...) with what a batch's mean is "
        "over, such as the number of targets that are not ignored"
    )


def _divided(batches: MicroBatches, each: bool) -> bool:
    return isinstance(batches.data, Samples) and len(batches.data) > 1 and (each or batches.divided)


def _taken(batches: MicroBatches, some: bool) -> tuple[Any, Any]:
    """A few samples (all unless ``some``), or the first of arbitrary batches.

    They are taken again for each use, because a model may change its inputs in place.
    """
    data = batches.data
    if isinstance(data, Batches):
        _, batch, _, _ = next(data.portion(1, batches.dtype, 0, 1))
        return batch, None
    if not some:
        return data.batch(slice(None), batches.dtype)
    # Evenly from all classes, the first and the last included: an ignored class is usually one of these.
    order = data.targets.argsort() if data.targets.dim() == 1 else torch.arange(len(data), device=data.device)
    count = min(len(data), SAMPLES, max(batches.size, 4))  # micro-batches are small where memory is
    return data.batch(order[torch.arange(count, device=data.device) * (len(data) - 1) // (count - 1)], batches.dtype)


def _outputs(private: FlatModule, batches: MicroBatches, x: Any) -> list[Tensor]:
    return _numbers(batches.outputs(private.module, x))


def _numbers(outputs: Any) -> list[Tensor]:
    return [tensor.detach() for tensor in tensors(outputs) if tensor.is_floating_point()]


def _repeatable_outputs(
    private: FlatModule, flat: FlatModule, loss: Loss, batches: MicroBatches, some: bool
) -> list[Tensor]:
    first, second = (_seen(private, loss, batches, *_taken(batches, some)) for _ in range(2))
    if not torch.allclose(private.buffer, flat.buffer, rtol=0, atol=0, equal_nan=True):
        raise FedscapeError(
            "the model changes its own parameters in its forward pass, as an embedding with max_norm does: the loss is "
            "no function of them until that is taken out"
        )
    if not _same(first, second):
        raise FedscapeError(
            "the same samples give another loss the second time: the model or the loss draws random numbers or changes "
            "its state, which it must not in evaluation mode (nn.Dropout does not, F.dropout needs "
            "training=self.training)"
        )
    return first[:-1]


def _seen(private: FlatModule, loss: Loss, batches: MicroBatches, x: Any, y: Any) -> list[Tensor]:
    """The outputs, followed by the loss."""
    outputs = batches.outputs(private.module, x)
    return [*_numbers(outputs), batches.mean_loss(loss, outputs, y).detach()]


def _require_samples_apart(private: FlatModule, batches: MicroBatches, outputs: list[Tensor]) -> None:
    x, _ = _taken(batches, True)
    n, half = len(x), len(x) // 2
    # The second half stays at its place in a batch of the same shape, so its outputs are the same to the last bit.
    others = _outputs(private, batches, torch.cat([x[n - half :], x[half:]]))
    rows = _rowwise(private, batches, outputs, n)
    if not _same([outputs[i][half:] for i in rows], [others[i][half:] for i in rows]):
        remedy = ", or a batch size that takes all samples at once" if batches.divided else ""
        raise FedscapeError(
            "the model's output for a sample depends on the other samples of its batch, so the loss is no mean over "
            f"samples: give BatchNorm running statistics (track_running_stats=True){remedy}"
        )


def _rowwise(private: FlatModule, batches: MicroBatches, outputs: list[Tensor], n: int) -> list[int]:
    """Which outputs have one row per sample: their length is that of the batch, here n, and so for a shorter batch."""
    x, _ = _taken(batches, True)
    part = _part(n)
    fewer = _outputs(private, batches, x[:part])
    return [i for i in range(len(outputs)) if outputs[i].shape[:1] == (n,) and fewer[i].shape[:1] == (part,)]


def _part(n: int) -> int:
    """The size of a part of n samples other than the half; at least two if possible."""
    return max(n // 3, min(2, n - 1))


def _same(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(
        a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=_TOLERANCE * _largest(a), equal_nan=True)
        for a, b in zip(some, others, strict=True)
    )


def _largest(numbers: Tensor) -> float:
    """The largest finite magnitude; 0 if there is none."""
    return float(numbers.detach().nan_to_num(0.0, 0.0, 0.0).abs().max()) if numbers.numel() else 0.0
