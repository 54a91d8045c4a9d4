"""The papers' small convolutional networks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from landscape.models.building import MODELS, image_shape


class LeNetFed(nn.Module):
    """The CIFAR network of FedDyn, MAN and Caldarola et al.: two 5x5 convolutions, three dense layers.

    conv 5x5 -> 64, ReLU, pool 2; conv 5x5 64 -> 64, ReLU, pool 2; -> 384 -> 192 -> classes.
    797,962 parameters for 3x32x32 inputs and 10 classes, 815,332 for 100.
    """

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__()
        channels, height, width = image_shape("lenet_fed", input_shape, 16)

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


@MODELS.register("convnet_tiny")
def convnet_tiny(input_shape: Sequence[int], classes: int) -> nn.Module:
    """MAN's ConvNet for Tiny-ImageNet; 2,447,688 parameters there (3x64x64, 200 classes).

    Three times conv 3x3 -> 64, GroupNorm(4), ReLU, pool 2; then -> 512 -> 384 -> classes.
    """
    channels, height, width = image_shape("convnet_tiny", input_shape, 8)
    stages: list[nn.Module] = []
    for inputs in (channels, 64, 64):
        stages += [nn.Conv2d(inputs, 64, 3, padding=1), nn.GroupNorm(4, 64), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *stages,
        nn.Flatten(),
        nn.Linear(64 * (height // 8) * (width // 8), 512),
        nn.ReLU(),
        nn.Linear(512, 384),
        nn.ReLU(),
        nn.Linear(384, classes),
    )


@MODELS.register("cnn_emnist")
def cnn_emnist(input_shape: Sequence[int], classes: int) -> nn.Module:
    """FedSAM's EMNIST network, which is Reddi et al.'s (ICLR 2021); 1,206,590 parameters for 1x28x28 and 62 classes.

    conv 3x3 -> 32, ReLU; conv 3x3 32 -> 64, ReLU, pool 2, dropout 1/4; -> 128, ReLU, dropout 1/2, -> classes.  The
    initialisation is theirs, Keras' default: Glorot uniform weights and biases of 0.
    """
    channels, height, width = image_shape("cnn_emnist", input_shape, 6)
    network = nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, classes),
    )
    for parameter in network.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.zeros_(parameter)
    return network
