"""The channels-last memory format, with which CPU kernels are faster, for models that accept it."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn


def is_channels_last(x: Tensor) -> bool:
    """Whether images [n, channels, height, width] are in the channels-last memory format, and not contiguous."""
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


class ChannelsLastFallback:
    """A forward pre-hook that makes images contiguous for a model that fails on channels-last images.

    ``x.view(len(x), -1)`` after a convolution is common in users' models, and an error in the channels-last format.
    A copy of the model is tried once, on one image.
    """

    def __init__(self) -> None:
        self._answer: bool | None = None

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not (args and isinstance(args[0], Tensor) and is_channels_last(args[0])):
            return None
        if self._answer is None:
            self._answer = _runs(module, args[0][:1], *args[1:])
        return None if self._answer else (args[0].contiguous(), *args[1:])


def _runs(module: nn.Module, *args: Any) -> bool:
    try:
        with torch.no_grad():
            _plain_copy(module).eval()(*args)
    except RuntimeError as error:
        return "view size is not compatible" not in str(error)
    return True


def _plain_copy(module: nn.Module) -> nn.Module:
    """A copy without hooks, because hooks may hold objects that cannot be copied."""
    hooks = [(part, part._forward_pre_hooks, part._forward_hooks) for part in module.modules()]
    try:
        for part, _before, _after in hooks:
            part._forward_pre_hooks, part._forward_hooks = OrderedDict(), OrderedDict()
        return copy.deepcopy(module)
    finally:
        for part, before, after in hooks:
            part._forward_pre_hooks, part._forward_hooks = before, after
