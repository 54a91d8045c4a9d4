"""What ranks send one another: named tensors and a few facts, as one row of bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

_ALIGNED = 64
"""Bytes, as torch aligns tensors of its own: MKL promises the same bits of sums only for the same alignment."""


@dataclass(frozen=True)
class Message:
    """A message.

    Attributes:
        kind: what it is about.
        facts: numbers and texts, as JSON holds them.
        tensors: by name.

    Example:
        >>> import torch
        >>> from trainers.ranks.messages import Message, packed, unpacked
        >>> row = packed(Message("work", {"round": 3}, {"w": torch.tensor([1.0, 2.0])}))
        >>> row.dtype, unpacked(row)
        (torch.uint8, Message(kind='work', facts={'round': 3}, tensors={'w': tensor([1., 2.])}))
    """

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


def packed(message: Message) -> Tensor:
    """The message as bytes in host memory, [n]: the length of its head, the head, and each tensor's, all aligned."""
    shapes = {name: [str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in message.tensors.items()}
    head = json.dumps([message.kind, message.facts, shapes]).encode()
    start = _aligned(8 + len(head))
    row = torch.empty(start + sum(_aligned(t.nbytes) for t in message.tensors.values()), dtype=torch.uint8)
    row[:8] = torch.tensor([len(head)]).view(torch.uint8)
    row[8 : 8 + len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
    for tensor in message.tensors.values():
        if tensor.nbytes:
            row[start : start + tensor.nbytes] = as_bytes(tensor)
        start += _aligned(tensor.nbytes)
    return row


def unpacked(row: Tensor) -> Message:
    """The message of :func:`packed`; its tensors are views of the row."""
    length = int(row[:8].view(torch.int64))
    kind, facts, shapes = json.loads(row[8 : 8 + length].numpy().tobytes())
    start, tensors = _aligned(8 + length), {}
    for name, (dtype, shape) in shapes.items():
        kind_of = getattr(torch, dtype)
        size = kind_of.itemsize * torch.Size(shape).numel()
        tensors[name] = row[start : start + size].view(kind_of).view(shape)
        start += _aligned(size)
    return Message(kind, facts, tensors)


def as_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a tensor in order, [n]."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
