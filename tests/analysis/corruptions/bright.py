"""A classifier whose answers are known by hand: class 1 where an image's mean is above a threshold, else class 0."""

import torch
from torch import nn

from landscape.data.formats.cifar import statistics


class Bright(nn.Module):
    def __init__(self, input_shape, classes, mean, std):
        super().__init__()
        self.mean, self.std = (torch.tensor(v).reshape(3, 1, 1) for v in (mean, std))
        self.threshold = nn.Parameter(torch.tensor([100.0]))
        self.classes = classes

    def forward(self, x):
        level = (x * self.std.to(x.dtype) + self.mean.to(x.dtype)).mean(dim=(1, 2, 3))
        bright = 2 * (level - self.threshold)
        rest = torch.full((len(x), self.classes - 2), -50.0, dtype=x.dtype)
        return torch.cat([torch.zeros_like(bright)[:, None], bright[:, None], rest], dim=1)


def build(input_shape, classes):
    return Bright(input_shape, classes, *statistics("cifar10"))


def plain(input_shape, classes):
    """Of inputs that nothing is taken from: pixels from 0 to 1 stay what they are."""
    return Bright(input_shape, classes, [0.0] * 3, [1.0] * 3)
