"""Arithmetic on flat vectors that several parts share."""

from __future__ import annotations

from torch import Tensor

_SMALLEST = 1e-12  # in float32 the squares of smaller numbers may be 0, and with them the norm


def unit(v: Tensor, eps: float = 0.0) -> Tensor:
    """v/‖v‖ over the last axis, [..., d]; shorter if ‖v‖ is below 1e-12, and zero if v is zero.

    With ``eps`` v/(‖v‖ + eps), as some authors' code has it.

    Example:
        >>> import torch
        >>> from trainers import unit
        >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
        >>> unit(torch.tensor([3.0, 4.0]), eps=5.0)
        tensor([0.3000, 0.4000])
    """
    norm = v.norm(dim=-1, keepdim=True)
    return v / (norm + eps if eps else norm.clamp_min(_SMALLEST))
