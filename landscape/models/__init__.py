"""The papers' networks by name, one file per family.  Initialisation is PyTorch's unless a network says otherwise."""

from landscape.models.building import MODELS, Builder, build_model

# The order of these imports is the order of the registry, in which commands list the names.
from landscape.models.digits import digits_cnn, digits_mlp  # isort: skip
from landscape.models.small import cnn_emnist, convnet_tiny, lenet_fed  # isort: skip
from landscape.models.resnets import (  # isort: skip
    resnet18_bn,
    resnet18_bn_cifar,
    resnet18_gn,
    resnet18_gn_cifar,
    resnet20_bn,
    resnet20_gn,
)
from landscape.models.mobilenet import mobilenet_v2_bn, mobilenet_v2_gn  # isort: skip
from landscape.models.bisenet import bisenet_v2, bisenet_v2_gn  # isort: skip

__all__ = [
    "MODELS",
    "Builder",
    "bisenet_v2",
    "bisenet_v2_gn",
    "build_model",
    "cnn_emnist",
    "convnet_tiny",
    "digits_cnn",
    "digits_mlp",
    "lenet_fed",
    "mobilenet_v2_bn",
    "mobilenet_v2_gn",
    "resnet18_bn",
    "resnet18_bn_cifar",
    "resnet18_gn",
    "resnet18_gn_cifar",
    "resnet20_bn",
    "resnet20_gn",
]
