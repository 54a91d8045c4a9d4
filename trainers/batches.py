"""The order in which a client sees its samples, and what augmentation does to a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

Augmentation = Literal["none", "flip-crop"]


def batch_indices(samples: int, size: int | None, epochs: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Positions 0..samples−1 in shuffled mini-batches, the last of an epoch shorter where it does not divide.

    ``size=None`` is the full batch: one step an epoch, in order.
    """
    for _ in range(epochs):
        if size is None:
            yield torch.arange(samples)
        else:
            yield from torch.randperm(samples, generator=generator).split(size)


def flip_crop(images: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Flip each image [n, C, H, W] with probability 1/2 and crop it from itself padded with zeros.

    Works on stored images, before normalisation, on their device; the draws are the CPU generator's.
    """
    n, channels, height, width = images.shape
    flipped = torch.rand(n, generator=generator) < 0.5
    corner = torch.randint(0, 2 * padding + 1, (2, n), generator=generator)
    rows = corner[0, :, None] + torch.arange(height)
    columns = torch.arange(width).expand(n, width)
    columns = corner[1, :, None] + torch.where(flipped[:, None], columns.flip(1), columns)
    padded = torch.nn.functional.pad(images, [padding] * 4)
    device = images.device
    return padded[
        torch.arange(n, device=device)[:, None, None, None],
        torch.arange(channels, device=device)[None, :, None, None],
        rows.to(device)[:, None, :, None],
        columns.to(device)[:, None, None, :],
    ]
