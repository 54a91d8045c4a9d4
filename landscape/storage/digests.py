"""Fingerprints of tensors, to tell whether a measurement goes on with what it began with."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def tensor_digest(*tensors: Tensor | None) -> str:
    """A SHA-256 over types, shapes and values: equal for equal tensors, on whatever device."""
    sha = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            sha.update(b"none")
            continue
        sha.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
