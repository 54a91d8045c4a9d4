"""Normalisation layers of networks, and the initialisation of convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import nn

Norm = Callable[[int], nn.Module]
"""(number of channels) -> a normalisation layer."""


def batch_norm(channels: int) -> nn.Module:
    """BatchNorm with running statistics: averaged like the model in a federation, or each client's own (SiloBN)."""
    return nn.BatchNorm2d(channels)


def group_norm(groups: int) -> Norm:
    """GroupNorm with ``groups`` groups instead of BatchNorm (Hsieh et al., ICML 2020)."""
    return lambda channels: nn.GroupNorm(groups, channels)


def kaiming_normal(module: nn.Module, fan: Literal["fan_in", "fan_out"]) -> None:
    """Initialise every convolution from N(0, 2/fan) (He et al., ICCV 2015), its bias with 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode=fan, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
