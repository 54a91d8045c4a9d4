"""Residual networks (He et al., CVPR 2016) with GroupNorm or BatchNorm."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from landscape.models.building import MODELS, image_shape
from landscape.models.norms import Norm, batch_norm, group_norm, kaiming_normal


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a ``shortcut``, normalised by ``norm(channels)``.

    The shortcut of a block that changes the shape is a 1x1 convolution, or, with ``padded``, the subsampled input with
    channels of zeros appended (the paper's options B and A).
    """

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm, *, padded: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = norm(outputs)
        self.downsample: nn.Module = nn.Identity()
        if padded and inputs != outputs:
            self.downsample = PaddedShortcut(stride, outputs - inputs)
        elif stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """[n, inputs, H, W] -> [n, outputs, H/stride, W/stride]."""
        y = self.bn1(self.conv1(x)).relu()
        return (self.bn2(self.conv2(y)) + self.downsample(x)).relu()


class PaddedShortcut(nn.Module):
    """Every ``stride``-th pixel, with ``channels`` channels of zeros appended."""

    def __init__(self, stride: int, channels: int) -> None:
        super().__init__()
        self.stride, self.channels = stride, channels

    def forward(self, x: Tensor) -> Tensor:
        """[n, C, H, W] -> [n, C + channels, H/stride, W/stride]."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.channels))


def _stage(inputs: int, outputs: int, blocks: int, stride: int, norm: Norm, *, padded: bool = False) -> nn.Sequential:
    first = BasicBlock(inputs, outputs, stride, norm, padded=padded)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, 1, norm) for _ in range(blocks - 1)))


class ResNet18(nn.Module):
    """torchvision's ResNet-18 with any normalisation; parameter names are torchvision's.

    ``small``: a 3x3 stem of stride 1 and no max-pool, the usual form for images of 32x32.
    """

    def __init__(self, name: str, input_shape: Sequence[int], classes: int, norm: Norm, *, small: bool = False) -> None:
        super().__init__()
        channels, _, _ = image_shape(name, input_shape, 8)
        if small:
            self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        else:
            self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = norm(64)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, 2, 1, norm)
        self.layer2 = _stage(64, 128, 2, 2, norm)
        self.layer3 = _stage(128, 256, 2, 2, norm)
        self.layer4 = _stage(256, 512, 2, 2, norm)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)
        kaiming_normal(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, C, H, W] -> logits [n, classes]."""
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


class ResNet20(nn.Module):
    """He et al.'s ResNet-20 for CIFAR: 16, 32, 64 channels, three blocks each, padded shortcuts."""

    def __init__(self, name: str, input_shape: Sequence[int], classes: int, norm: Norm) -> None:
        super().__init__()
        channels, _, _ = image_shape(name, input_shape, 8)
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = norm(16)
        self.layer1 = _stage(16, 16, 3, 1, norm, padded=True)
        self.layer2 = _stage(16, 32, 3, 2, norm, padded=True)
        self.layer3 = _stage(32, 64, 3, 2, norm, padded=True)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, classes)
        kaiming_normal(self, "fan_in")

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, C, H, W] -> logits [n, classes]."""
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(self.avgpool(x).flatten(1))


@MODELS.register("resnet18_gn")
def resnet18_gn(input_shape: Sequence[int], classes: int) -> nn.Module:
    """ResNet-18 with GroupNorm(2) and the 7x7 stem (FedSMOO's); 11,181,642 parameters for 10 classes.

    Convolutions are initialised as torchvision's (Kaiming normal, fan-out).
    """
    return ResNet18("resnet18_gn", input_shape, classes, group_norm(2))


@MODELS.register("resnet18_bn")
def resnet18_bn(input_shape: Sequence[int], classes: int) -> nn.Module:
    """torchvision's ResNet-18: BatchNorm, 7x7 stem; parameters and initialisation as ``resnet18_gn``."""
    return ResNet18("resnet18_bn", input_shape, classes, batch_norm)


@MODELS.register("resnet18_gn_cifar")
def resnet18_gn_cifar(input_shape: Sequence[int], classes: int) -> nn.Module:
    """ResNet-18 with GroupNorm(2), a 3x3 stem and no max-pool; 11,173,962 parameters for 10 classes.

    Convolutions are initialised as torchvision's (Kaiming normal, fan-out).
    """
    return ResNet18("resnet18_gn_cifar", input_shape, classes, group_norm(2), small=True)


@MODELS.register("resnet18_bn_cifar")
def resnet18_bn_cifar(input_shape: Sequence[int], classes: int) -> nn.Module:
    """``resnet18_gn_cifar`` with BatchNorm."""
    return ResNet18("resnet18_bn_cifar", input_shape, classes, batch_norm, small=True)


@MODELS.register("resnet20_gn")
def resnet20_gn(input_shape: Sequence[int], classes: int) -> nn.Module:
    """He et al.'s CIFAR ResNet-20 with GroupNorm(2) in place of BatchNorm; 269,722 parameters for 10 classes.

    Convolutions are initialised as the paper's (Kaiming normal, fan-in).
    """
    return ResNet20("resnet20_gn", input_shape, classes, group_norm(2))


@MODELS.register("resnet20_bn")
def resnet20_bn(input_shape: Sequence[int], classes: int) -> nn.Module:
    """He et al.'s CIFAR ResNet-20; parameters and initialisation as ``resnet20_gn``."""
    return ResNet20("resnet20_bn", input_shape, classes, batch_norm)
