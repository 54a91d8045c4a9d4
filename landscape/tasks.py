"""What a model tells: the class of each sample, or of each pixel; the loss and the scores that go with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from landscape.errors import FedscapeError
from landscape.registry import unknown_name

Task = Literal["classification", "segmentation"]
Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) -> scalar mean over the batch."""
IGNORED = 255
"""The target of a pixel without a label, which counts in no loss and no score."""


def pixel_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over images of each one's mean cross-entropy over its labelled pixels.

    An image is the sample, so that the loss of a data set is the mean over samples whatever the micro-batches, the
    ranks and the clients are; FedAvg's weights, by samples, then make the federation's objective the loss of all data.
    Images count alike however many of their pixels are labelled (one without any as 0), which is all that differs from
    a mean over the labelled pixels of a batch, such as PyTorch's with ``ignore_index``.

    Args:
        outputs: logits [n, classes, H, W].
        targets: [n, H, W], :data:`IGNORED` where there is no label.

    Raises:
        FedscapeError: other shapes.
    """
    if outputs.dim() != 4 or outputs.shape[:1] + outputs.shape[2:] != targets.shape:
        raise FedscapeError(
            f"a model for segmentation gives logits [n, classes, H, W] for targets [n, H, W], and this one gives "
            f"{list(outputs.shape)} for {list(targets.shape)}: take one such as --model bisenet_v2"
        )
    each = F.cross_entropy(outputs, targets.long(), ignore_index=IGNORED, reduction="none")
    labelled = (targets != IGNORED).flatten(1).sum(1)
    return (each.flatten(1).sum(1) / labelled.clamp_min(1)).mean()


_LOSSES: dict[str, Loss] = {"classification": F.cross_entropy, "segmentation": pixel_cross_entropy}


def loss_of(task: str) -> Loss:
    """The loss of a task: cross-entropy, or :func:`pixel_cross_entropy`.

    Raises:
        FedscapeError: no such task.
    """
    if task not in _LOSSES:
        raise unknown_name("task", task, list(_LOSSES))
    return _LOSSES[task]


def confusion(outputs: Tensor, targets: Tensor) -> Tensor:
    """How many labelled pixels of each class (rows) were taken for each (columns), [classes, classes] of int64.

    Args:
        outputs: logits [n, classes, H, W].
        targets: [n, H, W].
    """
    classes, labelled = outputs.shape[1], targets != IGNORED
    pairs = classes * targets[labelled].long() + outputs.argmax(1)[labelled]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def pixel_accuracy(confusion: Tensor) -> float:
    """The share of the labelled pixels that were taken for what they are; not a number where none is labelled."""
    return (confusion.diagonal().sum() / confusion.sum()).item()


def mean_iou(confusion: Tensor) -> float:
    """mIoU: intersection over union of a class's pixels and those taken for it, mean over the classes that occur."""
    there = confusion.sum(1)
    overlap = confusion.diagonal()
    union = there + confusion.sum(0) - overlap
    return (overlap / union)[there > 0].mean().item()
