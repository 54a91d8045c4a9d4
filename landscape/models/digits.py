"""Networks for the embedded digits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from landscape.models.building import MODELS, image_shape


@MODELS.register("digits_mlp")
def digits_mlp(input_shape: Sequence[int], classes: int) -> nn.Module:
    """inputs -> 64 -> 32 -> classes, ReLU; 6,570 parameters on the 8x8 digits."""
    inputs = math.prod(input_shape)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes)
    )


@MODELS.register("digits_cnn")
def digits_cnn(input_shape: Sequence[int], classes: int) -> nn.Module:
    """Two 3x3 convolutions (16, 32 channels), ReLU, pool 2 after each, one dense layer."""
    channels, height, width = image_shape("digits_cnn", input_shape, 4)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), classes),
    )
