"""GroupNorm with a backward that is cheap to differentiate.

PyTorch's double backward of GroupNorm takes about forty passes over the activations; this one takes thirteen.
GroupNorm is common in federated models, and a Hessian-vector product is a double backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from landscape.autograd.memory_format import is_channels_last


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
        n, c = x.shape[:2]
        y, mean, rstd = torch.native_group_norm(x, weight, bias, n, c, x[0, 0].numel(), groups, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.groups = groups
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight, mean, rstd = ctx.saved_tensors
        return *_Backward.apply(g, x, weight, mean, rstd, ctx.groups), None, None


class _Backward(torch.autograd.Function):
    """(g, x, γ) -> (∂x, ∂γ, ∂β); mean and rstd are functions of x and differentiated as such."""

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, groups: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        layout = torch.channels_last if is_channels_last(x) else torch.contiguous_format
        g = g.contiguous(memory_format=layout)
        ctx.save_for_backward(g, x, weight, mean, rstd)
        ctx.groups = groups
        n, c = x.shape[:2]
        return torch.ops.aten.native_group_norm_backward(
            g, x, mean, rstd, weight, n, c, x[0, 0].numel(), groups, [True, True, True]
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor, u: Tensor, s: Tensor) -> Any:
        """The gradient of φ = ⟨v, ∂x⟩ + ⟨u, ∂γ⟩ + ⟨s, ∂β⟩ by g, x and γ.

        With x̂ = (x − μ) r, a = γ g and means over a group of m values, ∂x = r (a − ā − x̂ c), c = mean(a x̂).
        Let d = mean(v x̂), q = u g − r (a d + v c), K = ⟨v, a⟩ − m v̄ ā − m c d.  Then

            ∂φ/∂g = γ r (v − v̄ − x̂ d) + u x̂ + s
            ∂φ/∂γ = Σ g r (v − v̄ − x̂ d)
            ∂φ/∂x = r (q − q̄ − x̂ mean(q x̂)) − K r² x̂ / m

        All are linear in v, g and x, with one coefficient per sample and channel.
        """
        g, x, weight, mean, rstd = ctx.saved_tensors
        n, c = x.shape[:2]
        groups = ctx.groups
        m = x[0].numel() // groups

        def total(t: Tensor) -> Tensor:  # over positions -> [n, groups, channels of a group]
            return t.reshape(n, c, -1).sum(-1).view(n, groups, c // groups)

        def per_group(t: Tensor) -> Tensor:  # mean over a group -> [n, groups, 1]
            return t.sum(-1, keepdim=True) / m

        mu, r = mean.view(n, groups, 1), rstd.view(n, groups, 1)
        gamma, up, down = (t.view(1, groups, -1) for t in (weight, u, s))
        v_sum, g_sum, gv = total(v), total(g), total(g * v)
        vx, gx = r * (total(v * x) - mu * v_sum), r * (total(g * x) - mu * g_sum)  # Σ v x̂, Σ g x̂
        v_mean, d = per_group(v_sum), per_group(vx)
        a_mean, cc = per_group(gamma * g_sum), per_group(gamma * gx)
        k = m * (per_group(gamma * gv) - v_mean * a_mean - cc * d)
        q_mean = per_group(up * g_sum - r * (gamma * g_sum * d + v_sum * cc))
        qx_mean = per_group(up * gx - r * (gamma * gx * d + vx * cc))

        by_weight = (r * (gv - v_mean * g_sum - d * gx)).sum(0).flatten()
        by_xhat = up - gamma * r * d
        by_g = _combine([(v, gamma * r), (x, by_xhat * r)], down - gamma * r * v_mean - by_xhat * mu * r)
        e = -r * qx_mean - k * r**2 / m
        by_x = _combine([(g, r * by_xhat), (v, -(r**2) * cc), (x, e * r)], -e * mu * r - r * q_mean)
        return by_g, by_x, by_weight, None, None, None


def _combine(terms: list[tuple[Tensor, Tensor]], constant: Tensor) -> Tensor:
    """Σ tensor · coefficient + constant, with one coefficient per sample and channel."""
    first = terms[0][0]
    n, c = first.shape[:2]

    def spread(t: Tensor) -> Tensor:
        return (
            t.expand(n, t.shape[1], -1).expand(n, t.shape[1], c // t.shape[1]).reshape(n, c, *[1] * (first.dim() - 2))
        )

    out = torch.addcmul(spread(constant), first, spread(terms[0][1]))
    for tensor, coefficient in terms[1:]:
        out.addcmul_(tensor, spread(coefficient))
    return out


class _Tied(torch.autograd.Function):
    """x itself, as if it depended on the parameters too: who asks for slopes by them then has that by x computed."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, *parameters: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.count = len(inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g, *[None] * (ctx.count - 1)


class SafeGroupNorm(nn.GroupNorm):
    """``nn.GroupNorm`` that avoids a crash of PyTorch (2.13).

    On the CPU the backward of ``nn.GroupNorm`` ends the process if nobody asks for the slope by a channels-last input:
    of images, of the outputs of frozen layers, or of images that an adversary moves.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[n, C, ...] -> [n, C, ...]."""
        if not torch.is_grad_enabled():
            return super().forward(x)
        if not x.requires_grad:
            x = x.clone(memory_format=torch.contiguous_format)  # of 1 × 1 pixels, contiguous() would leave the strides
        elif self.affine and x.dim() > 3 and x.device.type == "cpu":
            x = _Tied.apply(x, self.weight, self.bias)
        return super().forward(x)


class TwiceDifferentiableGroupNorm(nn.GroupNorm):
    """``nn.GroupNorm`` with the same parameters and values, and a cheaper double backward."""

    def forward(self, x: Tensor) -> Tensor:
        """[n, C, ...] -> [n, C, ...]."""
        if x.device.type != "cpu" or not is_channels_last(x):  # elsewhere PyTorch's kernel takes contiguous images only
            x = x.contiguous()
        return _Forward.apply(x, self.weight, self.bias, self.num_groups, self.eps)
