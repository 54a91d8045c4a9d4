"""Augmentation of a batch of training samples; all random numbers come from a CPU generator."""

from __future__ import annotations

import torch
from torch import Tensor


def flip_crop(
    images: Tensor, generator: torch.Generator, padding: int = 4, fill: int = 0, cropped: float = 1.0
) -> Tensor:
    """Flip each image [n, C, H, W] with probability 1/2 and crop it from itself padded with ``fill``.

    The images are the stored ones, before normalisation, on any device; the random numbers come from the CPU generator.

    With ``cropped`` below 1 each is cropped with that probability only.

    Example:
        >>> import torch
        >>> from trainers.parts.augmentation import flip_crop
        >>> images = torch.tensor([[1, 2, 3]]).expand(4, 1, 1, 3)
        >>> flip_crop(images, torch.Generator().manual_seed(0), padding=0)[:, 0, 0]  # three of four are flipped
        tensor([[3, 2, 1],
                [1, 2, 3],
                [3, 2, 1],
                [3, 2, 1]])
    """
    n, channels, height, width = images.shape
    flipped = torch.rand(n, generator=generator) < 0.5
    corner = torch.randint(0, 2 * padding + 1, (2, n), generator=generator)
    if cropped < 1:
        corner[:, torch.rand(n, generator=generator) >= cropped] = padding  # the middle: the image as it is
    rows = corner[0, :, None] + torch.arange(height)
    columns = torch.arange(width).expand(n, width)
    columns = corner[1, :, None] + torch.where(flipped[:, None], columns.flip(1), columns)
    padded = torch.nn.functional.pad(images, [padding] * 4, value=fill)
    device = images.device
    return padded[
        torch.arange(n, device=device)[:, None, None, None],
        torch.arange(channels, device=device)[None, :, None, None],
        rows.to(device)[:, None, :, None],
        columns.to(device)[:, None, None, :],
    ]


def cutout(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Normalised images [n, C, H, W], each with a square set to 0 (the mean) at a random place.

    The square's centre is uniform over the image, so the border may cut it off (DeVries & Taylor, 2017, section 3.1).

    Example:
        >>> import torch
        >>> from trainers.parts.augmentation import cutout
        >>> cutout(torch.ones(1, 1, 4, 4), 2, torch.Generator().manual_seed(1))[0, 0]
        tensor([[1., 1., 0., 0.],
                [1., 1., 0., 0.],
                [1., 1., 1., 1.],
                [1., 1., 1., 1.]])
    """
    n, _, height, width = images.shape
    first = [torch.randint(0, size, (n, 1), generator=generator) - side // 2 for size in (height, width)]
    rows, columns = (
        (torch.arange(size) >= start) & (torch.arange(size) < start + side)
        for size, start in zip((height, width), first, strict=True)
    )
    square = (rows[:, :, None] & columns[:, None, :]).to(images.device)
    return images.masked_fill(square[:, None], 0.0)


def mixup(inputs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, float]:
    """The inputs λ x + (1 − λ) x_π, the permutation π of the partners, and λ ~ Beta(1, 1), one for the batch.

    The loss to use with them is λ ℓ(y) + (1 − λ) ℓ(y_π) (Zhang et al., ICLR 2018).

    Example:
        >>> import torch
        >>> from trainers.parts.augmentation import mixup
        >>> inputs = torch.tensor([[0.0], [1.0], [2.0]])
        >>> mixed, partners, share = mixup(inputs, torch.Generator().manual_seed(1))
        >>> round(share, 4), partners
        (0.7576, tensor([2, 1, 0]))
        >>> mixed.flatten()  # the first is 0.7576 · 0 + 0.2424 · 2
        tensor([0.4847, 1.0000, 1.5153])
    """
    share = torch.rand((), generator=generator).item()
    partners = torch.randperm(len(inputs), generator=generator).to(inputs.device)
    return share * inputs + (1 - share) * inputs[partners], partners, share
