"""Replace layers whose double backward is slow in PyTorch by equivalent fast ones."""

from __future__ import annotations

from torch import nn

from landscape.autograd.convolution import TwiceDifferentiableConv2d
from landscape.autograd.groupnorm import SafeGroupNorm, TwiceDifferentiableGroupNorm


def use_fast_double_backward(module: nn.Module) -> None:
    """Replace, in place, the classes of convolutions and affine GroupNorm layers by those with a fast double backward.

    Subclasses of these layers are left as they are, because they may compute something else.

    Args:
        module: changed in place, so it must be a private copy.

    Example:
        >>> import torch
        >>> from landscape.autograd.double_backward import use_fast_double_backward
        >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3))
        >>> use_fast_double_backward(net)
        >>> type(net[0]).__name__
        'TwiceDifferentiableConv2d'
    """
    for layer in module.modules():
        if type(layer) in (nn.GroupNorm, SafeGroupNorm) and layer.affine:
            layer.__class__ = TwiceDifferentiableGroupNorm
        elif type(layer) is nn.Conv2d:
            layer.__class__ = TwiceDifferentiableConv2d
