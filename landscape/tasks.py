"""What a model tells: the class of each sample, or of each pixel; the loss and the scores that go with it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from landscape.errors import FedscapeError
from landscape.registry import unknown_name
from landscape.samples import Loss, Samples

Task = Literal["classification", "segmentation"]
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


@torch.no_grad()
def require_outputs(model: nn.Module, task: str, classes: int, data: Samples) -> None:
    """Try a model on a sample: its outputs must be those that the task takes.

    Args:
        model: on the samples' device; left as it is.
        task: what it is to tell.
        classes: how many there are.
        data: the samples.

    Raises:
        FedscapeError: they are not.
    """
    training, parameter = model.training, next(model.parameters(), None)
    inputs, targets = data.batch(slice(0, 1), torch.float32 if parameter is None else parameter.dtype)
    if targets.is_floating_point():
        return  # class probabilities
    try:
        shape = tuple(model.eval()(inputs).shape)
    finally:
        model.train(training)
    if len(shape) < 2 or shape[1] < classes or shape[:1] + shape[2:] != tuple(targets.shape):
        what = "[1, classes]" if task == "classification" else f"[1, classes, {', '.join(map(str, targets.shape[1:]))}]"
        raise FedscapeError(
            f"the model gives outputs of shape {list(shape)} for one sample, and {task} into {classes} classes takes "
            f"{what}: give another --model or --data"
        )
