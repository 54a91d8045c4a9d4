"""The papers' networks by name.  Initialisation is PyTorch's, or stated where it differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from landscape.errors import FedscapeError
from landscape.randomness import global_seed
from landscape.registry import Registry

Builder = Callable[..., nn.Module]
MODELS: Registry[Builder] = Registry("model")


def build_model(
    name: str, *, seed: int, input_shape: Sequence[int], classes: int, imports: bool = True, **kwargs: Any
) -> nn.Module:
    """The network called ``name`` with seeded initial parameters, on the CPU in float32.

    Args:
        name: a registered name or ``package.module:callable``; the builder is called with
            ``input_shape=`` (one sample's shape), ``classes=`` and ``kwargs``.
        seed: the same seed gives the same parameters on every device.
        imports: whether a ``package.module:callable`` may be imported.

    Raises:
        FedscapeError: an unknown name, or a network that cannot take such inputs.
    """
    builder = MODELS.get(name, imports=imports)
    with global_seed(seed, "initialisation"):
        try:
            model = builder(input_shape=tuple(input_shape), classes=classes, **kwargs)
        except FedscapeError:
            raise
        except (TypeError, ValueError, RuntimeError) as error:
            raise FedscapeError(f"the model '{name}' cannot be built: {str(error).partition(chr(10))[0]}") from error
    if not isinstance(model, nn.Module):
        raise FedscapeError(f"the model '{name}' returned {type(model).__name__}, not a torch.nn.Module")
    return model


def _image_shape(name: str, shape: Sequence[int], smallest: int) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise FedscapeError(
            f"the model '{name}' takes images (channels, height, width) of at least {smallest}x{smallest}, "
            f"not inputs of shape {tuple(shape)}"
        )
    return shape[0], shape[1], shape[2]


@MODELS.register("digits_mlp")
def digits_mlp(input_shape: Sequence[int], classes: int) -> nn.Module:
    """inputs -> 64 -> 32 -> classes, ReLU; 6,570 parameters on the 8x8 digits."""
    inputs = int(torch.tensor(input_shape).prod())
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes)
    )


@MODELS.register("digits_cnn")
def digits_cnn(input_shape: Sequence[int], classes: int) -> nn.Module:
    """Two 3x3 convolutions (16, 32 channels), ReLU, pool 2 after each, one dense layer."""
    channels, height, width = _image_shape("digits_cnn", input_shape, 4)
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


class LeNetFed(nn.Module):
    """The CIFAR network of FedDyn, MAN and Caldarola et al.: two 5x5 convolutions, three dense layers.

    conv 5x5 -> 64, ReLU, pool 2; conv 5x5 64 -> 64, ReLU, pool 2; -> 384 -> 192 -> classes.
    797,962 parameters for 3x32x32 inputs and 10 classes, 815,332 for 100.
    """

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__()
        channels, height, width = _image_shape("lenet_fed", input_shape, 16)

        def side(n: int) -> int:
            return ((n - 4) // 2 - 4) // 2

        self.conv1 = nn.Conv2d(channels, 64, 5)
        self.conv2 = nn.Conv2d(64, 64, 5)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(64 * side(height) * side(width), 384)
        self.fc2 = nn.Linear(384, 192)
        self.fc3 = nn.Linear(192, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, C, H, W] -> logits [n, classes]."""
        x = self.pool(self.conv1(x).relu())
        x = self.pool(self.conv2(x).relu()).flatten(1)
        return self.fc3(self.fc2(self.fc1(x).relu()).relu())


@MODELS.register("lenet_fed")
def lenet_fed(input_shape: Sequence[int], classes: int) -> nn.Module:
    """LeNet-like CNN of FedDyn, MAN and Caldarola et al.; 797,962 parameters on CIFAR-10."""
    return LeNetFed(input_shape, classes)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut (He et al., CVPR 2016), normalised by ``norm(channels)``."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = norm(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """[n, inputs, H, W] -> [n, outputs, H/stride, W/stride]."""
        y = self.bn1(self.conv1(x)).relu()
        return (self.bn2(self.conv2(y)) + self.downsample(x)).relu()


class ResNet18(nn.Module):
    """torchvision's ResNet-18 with any normalisation; parameter names are torchvision's."""

    def __init__(self, input_shape: Sequence[int], classes: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        channels, _, _ = _image_shape("resnet18_gn", input_shape, 8)
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = norm(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        widths, inputs = (64, 128, 256, 512), 64
        for i, outputs in enumerate(widths):
            blocks = [BasicBlock(inputs, outputs, 1 if i == 0 else 2, norm), BasicBlock(outputs, outputs, 1, norm)]
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
            inputs = outputs
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, C, H, W] -> logits [n, classes]."""
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return self.fc(self.avgpool(x).flatten(1))


@MODELS.register("resnet18_gn")
def resnet18_gn(input_shape: Sequence[int], classes: int) -> nn.Module:
    """ResNet-18 with GroupNorm(2) and the 7x7 stem (FedSMOO's); 11,181,642 parameters for 10 classes.

    Convolutions are initialised as torchvision's (Kaiming normal, fan-out).
    """
    return ResNet18(input_shape, classes, lambda channels: nn.GroupNorm(2, channels))
