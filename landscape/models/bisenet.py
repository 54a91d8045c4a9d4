"""BiSeNet V2 (Yu et al., IJCV 2021), for real-time segmentation of Cityscapes and IDDA.

A wide, shallow branch computes details at 1/8 of the size, a thin, deep branch semantics at 1/32; each gates the other,
and a head computes the classes of 8x8 pixels at once from the result.  This is the version of FedDrive (Fantauzzo et
al., IROS 2022), which Caldarola et al. use, without its auxiliary heads for training: the loss is that of the one
output, in training and in the landscape.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from landscape.models.building import MODELS, image_shape
from landscape.models.norms import Norm, batch_norm, group_norm, kaiming_normal

EXPANSION = 6


def _conv(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)


def _normed(
    norm: Norm, inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    return [_conv(inputs, outputs, kernel=kernel, stride=stride, groups=groups), norm(outputs)]


def _active(norm: Norm, inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """Convolution, normalisation, ReLU."""
    return nn.Sequential(*_normed(norm, inputs, outputs, kernel=kernel, stride=stride), nn.ReLU())


def detail_branch(channels: int, norm: Norm) -> nn.Sequential:
    """Images [n, channels, H, W] -> [n, 128, H/8, W/8]."""
    layers, inputs = [], channels
    for outputs, count in ((64, 2), (64, 3), (128, 3)):
        for i in range(count):
            layers.append(_active(norm, inputs, outputs, stride=1 if i else 2))
            inputs = outputs
    return nn.Sequential(*layers)


class Stem(nn.Module):
    """Reduces images to 1/4 of their size, by convolutions and by pooling."""

    def __init__(self, channels: int, norm: Norm) -> None:
        super().__init__()
        self.conv = _active(norm, channels, 16, stride=2)
        self.left = nn.Sequential(_active(norm, 16, 8, kernel=1), _active(norm, 8, 16, stride=2))
        self.right = nn.MaxPool2d(3, stride=2, padding=1)
        self.fuse = _active(norm, 32, 16)

    def forward(self, x: Tensor) -> Tensor:
        """[n, channels, H, W] -> [n, 16, H/4, W/4]."""
        x = self.conv(x)
        return self.fuse(torch.cat([self.left(x), self.right(x)], 1))


class GatherExpansion(nn.Module):
    """3x3 convolution, expansion by channel, projection; with stride 2 the shortcut has stride 2 as well.

    The last scale of the residual is initialised with 0, so that a block of stride 1 begins as a ReLU.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        hidden = EXPANSION * inputs
        self.gather = _active(norm, inputs, inputs)
        expand = _normed(norm, inputs, hidden, stride=stride, groups=inputs)
        if stride == 2:
            expand += _normed(norm, hidden, hidden, groups=hidden)
        self.expand = nn.Sequential(*expand, nn.ReLU())
        self.project = nn.Sequential(*_normed(norm, hidden, outputs, kernel=1))
        self.shortcut: nn.Module = nn.Identity()
        if stride == 2:
            shrink = _normed(norm, inputs, inputs, stride=2, groups=inputs)
            self.shortcut = nn.Sequential(*shrink, *_normed(norm, inputs, outputs, kernel=1))

    def forward(self, x: Tensor) -> Tensor:
        """[n, inputs, H, W] -> [n, outputs, H/stride, W/stride]."""
        return (self.project(self.expand(self.gather(x))) + self.shortcut(x)).relu()


class ContextEmbedding(nn.Module):
    """Adds features of the whole image at each position."""

    def __init__(self, channels: int, norm: Norm) -> None:
        super().__init__()
        self.norm = norm(channels)
        self.context = _active(norm, channels, channels, kernel=1)
        self.last = _active(norm, channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """[n, channels, H, W] -> the same shape."""
        return self.last(x + self.context(self.norm(x.mean((2, 3), keepdim=True))))


def semantic_branch(channels: int, norm: Norm) -> nn.Sequential:
    """Images [n, channels, H, W] -> [n, 128, H/32, W/32]."""
    blocks, inputs = [], 16
    for outputs, count in ((32, 2), (64, 2), (128, 4)):
        for i in range(count):
            blocks.append(GatherExpansion(inputs, outputs, 1 if i else 2, norm))
            inputs = outputs
    return nn.Sequential(Stem(channels, norm), *blocks, ContextEmbedding(128, norm))


class GuidedAggregation(nn.Module):
    """Details gated by semantics, semantics gated by details, summed at the size of the details."""

    def __init__(self, norm: Norm) -> None:
        super().__init__()
        self.detail = nn.Sequential(*_normed(norm, 128, 128, groups=128), _conv(128, 128, kernel=1))
        shrink = _normed(norm, 128, 128, stride=2)
        self.detail_down = nn.Sequential(*shrink, nn.AvgPool2d(3, stride=2, padding=1))
        self.semantic_up = nn.Sequential(*_normed(norm, 128, 128))
        self.semantic = nn.Sequential(*_normed(norm, 128, 128, groups=128), _conv(128, 128, kernel=1))
        self.last = _active(norm, 128, 128)

    def forward(self, detail: Tensor, semantic: Tensor) -> Tensor:
        """[n, 128, H/8, W/8] and [n, 128, H/32, W/32] -> [n, 128, H/8, W/8]."""

        def enlarged(x: Tensor) -> Tensor:
            return F.interpolate(x, size=detail.shape[2:], mode="bilinear", align_corners=True)

        by_semantic = self.detail(detail) * enlarged(self.semantic_up(semantic)).sigmoid()
        by_detail = self.detail_down(detail) * self.semantic(semantic).sigmoid()
        return self.last(by_semantic + enlarged(by_detail))


class BiSeNetV2(nn.Module):
    """The two branches, their aggregation and a head of 1,024 channels.

    Initialisation as in FedDrive: convolutions with Kaiming normal by fan-out, biases and the last scale of each
    gather-and-expansion block with 0.
    """

    def __init__(self, name: str, input_shape: Sequence[int], classes: int, norm: Norm) -> None:
        super().__init__()
        channels, _, _ = image_shape(name, input_shape, 16)
        self.detail = detail_branch(channels, norm)
        self.semantic = semantic_branch(channels, norm)
        self.aggregation = GuidedAggregation(norm)
        self.head = nn.Sequential(
            _active(norm, 128, 1024), nn.Dropout(0.1), nn.Conv2d(1024, 64 * classes, 1), nn.PixelShuffle(8)
        )
        kaiming_normal(self, "fan_out")
        for name, parameter in self.named_parameters():
            if name.endswith("project.1.weight"):
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, C, H, W] -> logits of each pixel [n, classes, H, W]."""
        logits = self.head(self.aggregation(self.detail(x), self.semantic(x)))
        return logits[..., : x.shape[2], : x.shape[3]]  # sides are rounded up to multiples of 8 inside


@MODELS.register("bisenet_v2")
def bisenet_v2(input_shape: Sequence[int], classes: int) -> nn.Module:
    """BiSeNet V2 with BatchNorm, for segmentation; FedDrive's, without its auxiliary heads."""
    return BiSeNetV2("bisenet_v2", input_shape, classes, batch_norm)


@MODELS.register("bisenet_v2_gn")
def bisenet_v2_gn(input_shape: Sequence[int], classes: int) -> nn.Module:
    """BiSeNet V2 with GroupNorm(2); parameters and initialisation as ``bisenet_v2``."""
    return BiSeNetV2("bisenet_v2_gn", input_shape, classes, group_norm(2))
