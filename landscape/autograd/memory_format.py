"""The channels-last memory format, with which CPU kernels are faster, for models that accept it."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from landscape.compute.devices import memory_ran_out
from landscape.data.batches import tensors

_AGREE = 1e-3
"""A relative difference far above the rounding of deep networks in float32."""


def is_channels_last(x: Tensor) -> bool:
    """Whether images [n, channels, height, width] are in the channels-last memory format, and not contiguous."""
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


class ChannelsLastFallback:
    """A forward pre-hook that makes images contiguous for a model that needs them so.

    ``x.view(len(x), -1)`` behind a convolution is common in users' models, and an error in the channels-last format;
    a model that reads strides or storage (``x.as_strided``) computes something else there without an error.  So a copy
    of the model is tried once, on two images in both formats: channels-last images are kept where the outputs are those
    of contiguous ones up to rounding.
    """

    def __init__(self) -> None:
        self._answer: bool | None = None

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not (args and isinstance(args[0], Tensor) and is_channels_last(args[0])):
            return None
        if self._answer is None:
            self._answer = _indifferent(module, args[0][:2], *args[1:])
        return None if self._answer else (args[0].contiguous(), *args[1:])


def same_outputs(wanted: Any, found: Any) -> bool:
    """Whether two outputs of a model, tensors or nests of them, are the same up to the rounding of deep networks.

    Outputs that are not finite cannot be compared, so they are not the same.
    """
    first, second = list(tensors(wanted)), list(tensors(found))
    return len(first) == len(second) > 0 and all(map(_same, first, second))


def _same(wanted: Tensor, found: Tensor) -> bool:
    if wanted.shape != found.shape:
        return False
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return torch.equal(wanted, found)
    scale = wanted.abs().max() if wanted.numel() else 0.0
    return bool(((wanted - found).abs() <= _AGREE * scale).all())


def _indifferent(module: nn.Module, images: Tensor, *args: Any) -> bool:
    """Whether a model's outputs are the same for images in both formats."""
    devices = [images.device] if images.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices):
        try:
            contiguous, last = (plain_copy(module).eval()(x, *args) for x in (images.contiguous(), images.clone()))
        except Exception as error:  # the user's code may raise anything; what contiguous images raise, they raise again
            if memory_ran_out(error):
                raise
            return False
    return same_outputs(contiguous, last)


def plain_copy(module: nn.Module) -> nn.Module:
    """A copy without hooks, because hooks may hold objects that cannot be copied."""
    hooks = [(part, part._forward_pre_hooks, part._forward_hooks) for part in module.modules()]
    try:
        for part, _before, _after in hooks:
            part._forward_pre_hooks, part._forward_hooks = OrderedDict(), OrderedDict()
        return copy.deepcopy(module)
    finally:
        for part, before, after in hooks:
            part._forward_pre_hooks, part._forward_hooks = before, after
