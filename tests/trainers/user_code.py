"""A model as a user would bring it."""

import math

from torch import nn


def tiny(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))


def normalised(input_shape, classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(input_shape), 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes)
    )


def dropping(input_shape, classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(input_shape), 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, classes)
    )
