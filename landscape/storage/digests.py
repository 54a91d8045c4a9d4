"""Digests of tensors, to check that a resumed measurement has the same data as before."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def tensor_digest(*tensors: Tensor | None) -> str:
    """A SHA-256 digest of types, shapes and values: equal for equal tensors, on any device.

    Example:
        >>> import torch
        >>> from landscape.storage.digests import tensor_digest
        >>> tensor_digest(torch.ones(2)) == tensor_digest(torch.ones(2)) != tensor_digest(torch.ones(2, 1))
        True
    """
    sha = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            sha.update(b"none")
            continue
        sha.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
