"""MobileNetV2 (Sandler et al., CVPR 2018), for Landmarks-User-160k."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from landscape.models.building import MODELS, image_shape
from landscape.models.norms import Norm, batch_norm, group_norm, kaiming_normal

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, number of blocks and stride of the first one, as in the paper's table 2."""


def _convolved(
    inputs: int, outputs: int, norm: Norm, *, kernel: int = 3, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Convolution, normalisation, ReLU6."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, norm(outputs), nn.ReLU6())


class InvertedResidual(nn.Module):
    """1x1 expansion, 3x3 convolution by channel, 1x1 linear projection; a shortcut if the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int, norm: Norm) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers: list[nn.Module] = [] if expansion == 1 else [_convolved(inputs, hidden, norm, kernel=1)]
        layers += [_convolved(hidden, hidden, norm, stride=stride, groups=hidden)]
        layers += [nn.Conv2d(hidden, outputs, 1, bias=False), norm(outputs)]
        self.conv = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """[n, inputs, H, W] -> [n, outputs, H/stride, W/stride]."""
        return x + self.conv(x) if self.shortcut else self.conv(x)


class MobileNetV2(nn.Module):
    """torchvision's MobileNetV2 with any normalisation; parameter names and initialisation are torchvision's.

    Convolutions are initialised with Kaiming normal by fan-out, the dense layer with N(0, 0.01²) and biases of 0.
    """

    def __init__(self, name: str, input_shape: Sequence[int], classes: int, norm: Norm) -> None:
        super().__init__()
        channels, _, _ = image_shape(name, input_shape, 8)
        features: list[nn.Module] = [_convolved(channels, 32, norm, stride=2)]
        inputs = 32
        for expansion, outputs, blocks, first in STAGES:
            for block in range(blocks):
                features.append(InvertedResidual(inputs, outputs, 1 if block else first, expansion, norm))
                inputs = outputs
        self.features = nn.Sequential(*features, _convolved(inputs, 1280, norm, kernel=1))
        dense = nn.Linear(1280, classes)
        self.classifier = nn.Sequential(nn.Dropout(0.2), dense)
        kaiming_normal(self, "fan_out")
        nn.init.normal_(dense.weight, 0, 0.01)
        nn.init.zeros_(dense.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, C, H, W] -> logits [n, classes]."""
        return self.classifier(self.features(x).mean((2, 3)))


@MODELS.register("mobilenet_v2_gn")
def mobilenet_v2_gn(input_shape: Sequence[int], classes: int) -> nn.Module:
    """MobileNetV2 with GroupNorm(2), as Hsu et al. (ECCV 2020) have it; 4,821,740 parameters for Landmarks' 2,028.

    Initialised as torchvision's; the papers start from weights trained on ImageNet, which are not included here.
    """
    return MobileNetV2("mobilenet_v2_gn", input_shape, classes, group_norm(2))


@MODELS.register("mobilenet_v2_bn")
def mobilenet_v2_bn(input_shape: Sequence[int], classes: int) -> nn.Module:
    """torchvision's MobileNetV2; 3,504,872 parameters for 1,000 classes."""
    return MobileNetV2("mobilenet_v2_bn", input_shape, classes, batch_norm)
