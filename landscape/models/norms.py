"""Normalisation layers that networks are built with, and how convolutions start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import nn

Norm = Callable[[int], nn.Module]
"""channels -> the layer that normalises them."""


def batch_norm(channels: int) -> nn.Module:
    """BatchNorm with running statistics: averaged like the model in a federation, or each client's own (SiloBN)."""
    return nn.BatchNorm2d(channels)


def group_norm(groups: int) -> Norm:
    """GroupNorm with so many groups in place of BatchNorm (Hsieh et al., ICML 2020)."""
    return lambda channels: nn.GroupNorm(groups, channels)


def kaiming_normal(module: nn.Module, fan: Literal["fan_in", "fan_out"]) -> None:
    """Start every convolution from N(0, 2/fan) (He et al., ICCV 2015), its bias from 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode=fan, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
