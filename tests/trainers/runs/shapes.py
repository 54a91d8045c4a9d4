"""A tiny segmentation set that a tiny network learns: bright squares and dark ones on noise."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from landscape import Dataset, Samples
from landscape.tasks import IGNORED

SIDE, CLASSES = 12, 3


def drawn(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """uint8 images [n, 1, 12, 12] and maps [n, 12, 12]: 0 nothing, 1 dark, 2 bright, the last column without labels."""
    draw = torch.Generator().manual_seed(seed)
    images = torch.randint(90, 160, (count, 1, SIDE, SIDE), generator=draw, dtype=torch.uint8)
    maps = torch.zeros(count, SIDE, SIDE, dtype=torch.uint8)
    for image, labels in zip(images, maps, strict=True):
        for label, grey in ((1, 10), (2, 245)):
            i, j = torch.randint(0, SIDE - 4, (2,), generator=draw).tolist()
            image[0, i : i + 4, j : j + 4] = grey
            labels[i : i + 4, j : j + 4] = label
    maps[:, :, -1] = IGNORED
    return images, maps


def shapes(data_dir: Path | None) -> Dataset:
    """60 training and 20 test images."""
    mean, std = torch.full((1, 1, 1), 125.0), torch.full((1, 1, 1), 50.0)
    train, test = (Samples(*drawn(*how), mean, std) for how in ((60, 1), (20, 2)))
    return Dataset("shapes", train, test, CLASSES, task="segmentation")


def network(input_shape: Sequence[int], classes: int) -> nn.Module:
    """183 parameters."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 6, 3, padding=1), nn.GroupNorm(2, 6), nn.ReLU(), nn.Conv2d(6, classes, 3, padding=1)
    )


def normed(input_shape: Sequence[int], classes: int) -> nn.Module:
    """The same with BatchNorm."""
    net = network(input_shape, classes)
    assert isinstance(net, nn.Sequential)
    net[1] = nn.BatchNorm2d(6)
    return net
