"""Augmentation of a batch of training samples; all random numbers come from a CPU generator."""

from __future__ import annotations

import torch
from torch import Tensor

from landscape.compute.devices import on_device

CROPPED = {"flip-crop": 1.0, "flip-crop-half": 0.5}
"""The share of images that are cropped, by augmentation."""


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
    flipped, corners = (
        on_device(drawn, images.device) for drawn in draw_flip_crop(len(images), generator, padding, cropped)
    )
    return flip_cropped(images, flipped, corners, padding, fill)


def draw_flip_crop(n: int, generator: torch.Generator, padding: int = 4, cropped: float = 1.0) -> tuple[Tensor, Tensor]:
    """The draws of :func:`flip_crop` for n images: which are flipped, [n], and the crops' corners, [2, n]."""
    flipped = torch.rand(n, generator=generator) < 0.5
    corners = torch.randint(0, 2 * padding + 1, (2, n), generator=generator)
    if cropped < 1:
        corners[:, torch.rand(n, generator=generator) >= cropped] = padding  # the middle: the image as it is
    return flipped, corners


def flip_cropped(images: Tensor, flipped: Tensor, corners: Tensor, padding: int = 4, fill: int = 0) -> Tensor:
    """Images [n, C, H, W], flipped and cropped as drawn; all tensors are on their device."""
    n, channels, height, width = images.shape
    device = images.device
    down, across = torch.arange(height, device=device), torch.arange(width, device=device)
    rows = corners[0, :, None] + down
    columns = corners[1, :, None] + torch.where(flipped[:, None], across.flip(0), across)
    padded = torch.nn.functional.pad(images, [padding] * 4, value=fill)
    return padded[
        torch.arange(n, device=device)[:, None, None, None],
        torch.arange(channels, device=device)[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
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
    first = draw_cutout(len(images), (images.shape[2], images.shape[3]), side, generator)
    return cut_out(images, on_device(first, images.device), side)


def draw_cutout(n: int, shape: tuple[int, int], side: int, generator: torch.Generator) -> Tensor:
    """The draws of :func:`cutout` for n images of a shape: the squares' first rows and columns, [2, n]."""
    return torch.stack([torch.randint(0, size, (n, 1), generator=generator)[:, 0] - side // 2 for size in shape])


def cut_out(images: Tensor, first: Tensor, side: int) -> Tensor:
    """Images [n, C, H, W] with their squares set to 0 as drawn; all tensors are on their device."""
    places = [torch.arange(size, device=images.device) for size in images.shape[2:]]
    rows, columns = (
        (place >= start[:, None]) & (place < start[:, None] + side) for place, start in zip(places, first, strict=True)
    )
    return images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0.0)


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
    share, partners = draw_mixup(len(inputs), generator)
    partners = on_device(partners, inputs.device)
    return mixed(inputs, partners, share), partners, share


def draw_mixup(n: int, generator: torch.Generator) -> tuple[float, Tensor]:
    """The draws of :func:`mixup` for n samples: λ and the partners, [n]."""
    return torch.rand((), generator=generator).item(), torch.randperm(n, generator=generator)


def mixed(inputs: Tensor, partners: Tensor, share: float | Tensor) -> Tensor:
    """Inputs [n, ...] mixed with those of their partners as drawn; all tensors are on their device."""
    return share * inputs + (1 - share) * inputs[partners]
