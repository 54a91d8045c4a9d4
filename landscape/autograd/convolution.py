"""Convolutions with a backward that is cheap to differentiate.

In PyTorch, the weight's part of a convolution's double backward is another convolution, with batch and channels
exchanged, for which there is no fast kernel; here each part uses a kernel of training.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_Layout = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]
"""Stride, padding, dilation, groups."""


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None, layout: _Layout) -> Tensor:
    stride, padding, dilation, groups = layout
    return torch.ops.aten.convolution(x, weight, bias, stride, padding, dilation, False, [0], groups)


def _pull(g: Tensor, x: Tensor, weight: Tensor, layout: _Layout, wanted: tuple[bool, bool, bool]) -> list[Tensor]:
    """The gradients of ⟨g, x ∗ W + b⟩ by x, W and b; an empty tensor or ``None`` for one that is not wanted."""
    stride, padding, dilation, groups = layout
    return torch.ops.aten.convolution_backward(
        g, x, weight, [weight.shape[0]], stride, padding, dilation, False, [0], groups, wanted
    )


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layout: _Layout) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layout = layout
        return _convolve(x, weight, bias, layout)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return *_Backward.apply(g, *ctx.saved_tensors, ctx.layout, tuple(ctx.needs_input_grad[:3])), None


class _Backward(torch.autograd.Function):
    """(g, x, W) -> (∂x, ∂W, ∂b) of y = x ∗ W + b."""

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, weight: Tensor, layout: _Layout, wanted: tuple[bool, bool, bool]
    ) -> tuple[Tensor | None, ...]:
        ctx.save_for_backward(g, x, weight)
        ctx.layout = layout
        ctx.set_materialize_grads(False)
        found = _pull(g, x, weight, layout, wanted)
        return tuple(gradient if want else None for gradient, want in zip(found, wanted, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor | None, u: Tensor | None, s: Tensor | None) -> Any:
        """The gradient of ⟨v, ∂x⟩ + ⟨u, ∂W⟩ + ⟨s, ∂b⟩ = ⟨g, v ∗ W + x ∗ u + s⟩ by g, x and W."""
        g, x, weight = ctx.saved_tensors
        layout, (need_g, need_x, need_weight) = ctx.layout, ctx.needs_input_grad[:3]
        by_g = by_x = by_weight = None
        if need_g and u is not None:
            by_g = _convolve(x, u, s, layout)
        elif need_g and s is not None:
            by_g = s.view(1, -1, *[1] * (g.dim() - 2)).expand_as(g)
        if need_g and v is not None:
            by_v = _convolve(v, weight, None, layout)
            by_g = by_v if by_g is None else by_v.add_(by_g)
        if need_x and u is not None:
            by_x = _pull(g, x, u, layout, (True, False, False))[0]
        if need_weight and v is not None:
            by_weight = _pull(g, v, weight, layout, (False, True, False))[1]
        return by_g, by_x, by_weight, None, None


class TwiceDifferentiableConv2d(nn.Conv2d):
    """``nn.Conv2d`` with the same parameters and values, and a cheaper double backward."""

    def forward(self, x: Tensor) -> Tensor:
        """[n, C, H, W] -> [n, C', H', W']."""
        if x.dim() != 4 or isinstance(self.padding, str) or self.padding_mode != "zeros":
            return super().forward(x)
        return _Forward.apply(x, self.weight, self.bias, (self.stride, self.padding, self.dilation, self.groups))
