"""Networks as people train them, in float32, on digits: of the survey of printed eigenvalues against float64's."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape import Landscape
from landscape.datasets import load_dataset
from landscape.models import MODELS

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Recipe:
    """How a net is made and trained: full-batch Adam, then L-BFGS until the loss is below ``enough``."""

    build: Callable[[], nn.Module]
    steps: int = 60
    loss: Loss = functional.cross_entropy
    samples: int = 100
    rate: float = 5e-3
    enough: float = float("inf")
    weights: bool = False
    """Some samples count more than others, so that the loss is an objective over batches."""
    data: Callable[[int], tuple[Tensor, Tensor]] | None = None

    def landscape(self) -> Landscape:
        """Around the trained net, in evaluation mode."""
        with torch.random.fork_rng():
            torch.manual_seed(6)
            net = self.build()
            x, y = (self.data or digits)(self.samples)
            share = torch.rand(len(x)) if self.weights else torch.ones(len(x))
        self._train(net, x, y, share)
        net.eval()
        if self.weights:
            return Landscape.of(net, [(x[:60], y[:60], share[:60]), (x[60:], y[60:], share[60:])], weighted)
        return Landscape(net, (x, y), self.loss, device="cpu")

    def _train(self, net: nn.Module, x: Tensor, y: Tensor, share: Tensor) -> None:
        """In float64, which alone reaches a loss of 1e-9; the net is in float32 before and after."""
        net.double()
        x, y, share = (given.double() if given.is_floating_point() else given for given in (x, y, share))

        def loss() -> Tensor:
            for parameter in net.parameters():
                parameter.grad = None
            found = weighted(net, (x, y, share)) if self.weights else self.loss(net(x), y)
            found.backward()
            return found

        adam = torch.optim.Adam(net.parameters(), lr=self.rate)
        for _ in range(self.steps):
            loss()
            adam.step()
        newton = torch.optim.LBFGS(net.parameters(), 0.1, max_iter=2, tolerance_grad=0, tolerance_change=0)
        while loss() > self.enough:
            newton.step(loss)
        net.float()


def weighted(net: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Cross-entropy in which every sample has a weight of its own."""
    x, y, share = batch
    return (share * functional.cross_entropy(net(x), y, reduction="none")).mean()


def digits(samples: int) -> tuple[Tensor, Tensor]:
    """Images [n, 1, 8, 8] and classes."""
    return load_dataset("digits").train.batch(slice(0, samples), torch.float32)


def sizes(samples: int) -> tuple[Tensor, Tensor]:
    """Images, and the two numbers [n, 2] to be told of each: how bright it is, and which digit."""
    x, y = digits(samples)
    return x, torch.stack([x.mean((1, 2, 3)), y / 10.0], dim=1)


def loud(samples: int) -> tuple[Tensor, Tensor]:
    """Images a hundred times too bright, which nobody has normalised."""
    x, y = digits(samples)
    return 100 * x, y


def few_inputs(samples: int) -> tuple[Tensor, Tensor]:
    """Of 40 inputs only 5 vary: all but 5 eigenvalues of a linear regression are 0."""
    x = torch.zeros(samples, 40)
    x[:, :5] = torch.randn(samples, 5)
    return x, torch.randn(samples, 1)


class Rows(nn.Module):
    """An image's rows as a sequence -> a layer over time -> the mean over time -> classes."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        found = self.layer(x.squeeze(1))
        return self.head((found[0] if isinstance(found, tuple) else found).mean(1))


class Tokens(nn.Module):
    """An image's pixels as 17 grey levels -> an embedding and a transformer's layer over its rows -> classes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(17, 4), nn.Parameter(0.1 * torch.randn(64, 4))
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation="gelu", batch_first=True)
        self.head = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        levels = (x.flatten(1) - x.min()).div(x.max() - x.min()).mul(16).round().long()
        return self.head(self.layer(self.embed(levels) + self.place).mean(1))


class Residual(nn.Module):
    """x + a branch of x."""

    def __init__(self, *branch: nn.Module) -> None:
        super().__init__()
        self.branch = nn.Sequential(*branch)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class Autoencoder(nn.Module):
    """Images -> 8 numbers -> images, with one matrix both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.bias = nn.Parameter(0.1 * torch.randn(8, 64)), nn.Parameter(torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tanh(x.flatten(1) @ self.matrix.T) @ self.matrix + self.bias).view_as(x)


def images(samples: int) -> tuple[Tensor, Tensor]:
    """Images, to be told again."""
    x, _ = digits(samples)
    return x, x


def mlp(activation: Callable[[], nn.Module], width: int = 10, outputs: int = 10) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, width), activation(), nn.Linear(width, width), activation(),
        nn.Linear(width, outputs),
    )  # fmt: skip


def cnn(*middle: Callable[[], nn.Module], pool: bool = True) -> Callable[[], nn.Module]:
    """A convolution to 4 channels, what follows it, and a head."""
    last = (lambda: nn.MaxPool2d(2)) if pool else (lambda: nn.AvgPool2d(2))
    return lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), *(layer() for layer in middle), last(), nn.Flatten(), nn.Linear(64, 10)
    )


def one_hot_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(outputs, functional.one_hot(targets, 10).to(outputs))


def each_class_alone(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs, functional.one_hot(targets, 10).to(outputs))


def depthwise() -> nn.Module:
    return nn.Conv2d(4, 4, 3, padding=1, groups=4)


TRAINED: dict[str, Recipe] = {
    "MLP, tanh": Recipe(mlp(nn.Tanh)),
    "MLP, ReLU": Recipe(mlp(nn.ReLU)),
    "MLP, GELU": Recipe(mlp(nn.GELU)),
    "MLP, untrained": Recipe(mlp(nn.ReLU), steps=0),
    "MLP, images not normalised": Recipe(mlp(nn.ReLU), data=loud),
    "MLP, large steps": Recipe(mlp(nn.ReLU), rate=0.1),
    "CNN": Recipe(cnn(nn.ReLU)),
    "CNN, BatchNorm": Recipe(cnn(lambda: nn.BatchNorm2d(4), nn.ReLU)),
    "CNN, GroupNorm": Recipe(cnn(lambda: nn.GroupNorm(2, 4), nn.ReLU)),
    "CNN, LayerNorm": Recipe(cnn(lambda: nn.LayerNorm((4, 8, 8)), nn.ReLU)),
    "CNN, depthwise": Recipe(cnn(nn.ReLU, depthwise, lambda: nn.Conv2d(4, 4, 1), nn.SiLU, pool=False)),
    "residual": Recipe(cnn(lambda: Residual(nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)))),
    "Conv1d": Recipe(
        lambda: nn.Sequential(
            nn.Flatten(2), nn.Conv1d(1, 4, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 30, 10)
        )
    ),
    "LSTM": Recipe(lambda: Rows(nn.LSTM(8, 6, batch_first=True), 6)),
    "GRU both ways": Recipe(lambda: Rows(nn.GRU(8, 4, batch_first=True, bidirectional=True), 8)),
    "transformer": Recipe(Tokens, samples=40, steps=30),
    "attention": Recipe(lambda: Rows(nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=True), 8)),
    "tied autoencoder": Recipe(Autoencoder, loss=functional.mse_loss, data=images),
    "one-hot squared error": Recipe(mlp(nn.Tanh), loss=one_hot_error),
    "label smoothing": Recipe(mlp(nn.GELU), loss=nn.CrossEntropyLoss(label_smoothing=0.1), steps=300),
    "each class alone": Recipe(mlp(nn.ReLU), loss=each_class_alone),
    "weighted samples": Recipe(mlp(nn.Tanh), weights=True),
    "regression": Recipe(mlp(nn.Tanh, outputs=2), loss=functional.mse_loss, data=sizes),
    "Huber": Recipe(mlp(nn.ReLU, outputs=2), loss=nn.HuberLoss(delta=0.1), data=sizes),
    "softmax regression at 0: every value nine times": Recipe(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).apply(zeroed), steps=0
    ),
    "linear regression, most inputs constant": Recipe(
        lambda: nn.Linear(40, 1), loss=functional.mse_loss, data=few_inputs, steps=0
    ),
    "linear map: every value ten times": Recipe(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), loss=one_hot_error, steps=20
    ),
    "MLP, loss 1e-9": Recipe(mlp(nn.ReLU), steps=200, enough=1e-9),
    "MLP, tanh, loss 1e-6": Recipe(mlp(nn.Tanh), steps=200, enough=1e-6),
    "CNN, loss 1e-9": Recipe(cnn(nn.ReLU), steps=200, enough=1e-9),
    "regression, loss 1e-7": Recipe(mlp(nn.Tanh, outputs=2), 3000, functional.mse_loss, enough=1e-7, data=sizes),
}


def zeroed(layer: nn.Module) -> None:
    for parameter in layer.parameters(recurse=False):
        nn.init.zeros_(parameter)


def noise(channels: int, side: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Images of noise, of ten classes."""
    return lambda samples: (torch.randn(samples, channels, side, side), torch.arange(samples) % 10)


def named(name: str, channels: int, side: int) -> Callable[[], nn.Module]:
    return lambda: MODELS.get(name)((channels, side, side), 10)


LARGE: dict[str, Recipe] = {
    "digits_mlp": Recipe(named("digits_mlp", 1, 8), samples=400),
    "digits_mlp, loss 2e-9": Recipe(named("digits_mlp", 1, 8), 200, samples=400, enough=2e-9),
    "digits_cnn": Recipe(named("digits_cnn", 1, 8), samples=400),
    "lenet_fed": Recipe(named("lenet_fed", 3, 32), 5, samples=50, rate=1e-3, data=noise(3, 32)),
    "resnet20_gn": Recipe(named("resnet20_gn", 3, 16), 5, samples=10, rate=1e-3, data=noise(3, 16)),
    "resnet20_bn": Recipe(named("resnet20_bn", 3, 16), 5, samples=10, rate=1e-3, data=noise(3, 16)),
}
"""Too large for a dense Hessian."""
