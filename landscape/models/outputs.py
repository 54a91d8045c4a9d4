"""Check that a model's outputs have the shape that a task needs."""

from __future__ import annotations

import torch
from torch import nn

from landscape.compute.devices import memory_ran_out
from landscape.data.samples import Samples
from landscape.errors import FedscapeError, said_by


@torch.no_grad()
def require_outputs(model: nn.Module, task: str, classes: int, data: Samples) -> None:
    """Run a model on one sample and check the shape of its outputs.

    Args:
        model: on the samples' device; not changed.
        task: ``classification`` or ``segmentation``.
        classes: the number of classes.
        data: the samples.

    Raises:
        FedscapeError: the model fails on such an input; the task needs outputs of another shape.
    """
    training, parameter = model.training, next(model.parameters(), None)
    inputs, targets = data.batch(slice(0, 1), torch.float32 if parameter is None else parameter.dtype)
    if targets.is_floating_point():
        return  # class probabilities
    try:
        # As every model takes them: a ``view`` behind a convolution is an error in the memory format of the batches.
        shape = tuple(model.eval()(inputs.contiguous()).shape)
    except Exception as error:  # the user's model may raise anything
        if memory_ran_out(error):
            raise
        raise FedscapeError(
            f"the model fails on one sample, inputs of shape {list(inputs.shape)}: {said_by(error)}: give another "
            "--model or --data (a model of yours is called with input_shape and classes where it has such arguments)"
        ) from error
    finally:
        model.train(training)
    if len(shape) < 2 or shape[1] < classes or shape[:1] + shape[2:] != tuple(targets.shape):
        what = "[1, classes]" if task == "classification" else f"[1, classes, {', '.join(map(str, targets.shape[1:]))}]"
        raise FedscapeError(
            f"the model gives outputs of shape {list(shape)} for one sample, and {task} into {classes} classes takes "
            f"{what}: give another --model or --data"
        )
