"""Tasks: classification of samples, segmentation of images; their losses and scores."""

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
"""The target of a pixel without a label; such pixels are left out of the loss and the scores."""


def pixel_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over images of the mean cross-entropy over the labelled pixels of an image.

    An image is one sample, so the loss of a data set is a mean over samples, whatever the micro-batches, ranks and
    clients are; with FedAvg's weights, by samples, the federation's objective is the loss of all data.  All images have
    the same weight, however many of their pixels are labelled (an image without labels has loss 0).  This is the only
    difference from a mean over the labelled pixels of a batch, such as PyTorch's with ``ignore_index``.

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
    """The confusion matrix of labelled pixels: true class by row, predicted class by column, int64 [classes, classes].

    Args:
        outputs: logits [n, classes, H, W].
        targets: [n, H, W].

    Example:
        >>> import torch
        >>> from landscape.tasks import IGNORED, confusion, mean_iou, pixel_accuracy
        >>> logits = torch.tensor([[[[0.0, 2.0, 0.0]], [[1.0, 1.0, 1.0]]]])
        >>> table = confusion(logits, torch.tensor([[[1, 1, IGNORED]]]))
        >>> table
        tensor([[0, 0],
                [1, 1]])
        >>> pixel_accuracy(table), mean_iou(table)
        (0.5, 0.5)
    """
    classes, labelled = outputs.shape[1], targets != IGNORED
    pairs = classes * targets[labelled].long() + outputs.argmax(1)[labelled]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def pixel_accuracy(confusion: Tensor) -> float:
    """The fraction of labelled pixels with the right prediction; NaN where no pixel is labelled."""
    return (confusion.diagonal().sum() / confusion.sum()).item()


def mean_iou(confusion: Tensor) -> float:
    """mIoU: intersection over union of true and predicted pixels of a class, mean over the classes that occur."""
    there = confusion.sum(1)
    overlap = confusion.diagonal()
    union = there + confusion.sum(0) - overlap
    return (overlap / union)[there > 0].mean().item()
