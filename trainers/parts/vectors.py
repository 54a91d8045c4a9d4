"""Arithmetic on flat vectors that several parts share."""

from __future__ import annotations

from torch import Tensor

_SMALLEST = 1e-12  # the norm of smaller ones is not to be had in float32, where their squares are 0


def unit(v: Tensor) -> Tensor:
    """v/‖v‖ over the last axis, [..., d]; shorter where ‖v‖ is below 1e-12, and zero where v is.

    Example:
        >>> import torch
        >>> from trainers import unit
        >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    return v / v.norm(dim=-1, keepdim=True).clamp_min(_SMALLEST)
