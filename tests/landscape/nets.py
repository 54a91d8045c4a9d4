"""Small networks in float64 with data of their own, one for each kind of layer that has gone wrong somewhere."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

SAMPLES, CLASSES = 10, 3


class Tied(nn.Module):
    """One matrix used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, CLASSES)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Unused(nn.Module):
    """A parameter in the middle that the outputs do not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.idle, self.head = nn.Linear(5, 4), nn.Linear(2, 2), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.first(x)))


class Attention(nn.Module):
    """Tokens [n, 4, 6] -> self-attention -> their mean -> classes."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


class ScaledDotProduct(nn.Module):
    """The fused attention function itself."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.head = nn.Linear(6, 12), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).chunk(3, dim=-1)
        return self.head(nn.functional.scaled_dot_product_attention(q, k, v).mean(1))


def _conv_pool() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, CLASSES)
    )


def _conv_norm(norm: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), norm(), nn.Tanh(), nn.Flatten(), nn.Linear(16, CLASSES)
    )  # fmt: skip


def _dense(*middle: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(5, 6), *(layer() for layer in middle), nn.Linear(6, CLASSES))


def _frozen() -> nn.Module:
    model = _dense(nn.Tanh, lambda: nn.Linear(6, 6), nn.Tanh)()
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


_IMAGES, _FEATURES, _TOKENS = (1, 6, 6), (5,), (4, 6)

NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolution and pooling": (_conv_pool, _IMAGES),
    "GroupNorm": (_conv_norm(lambda: nn.GroupNorm(2, 4)), _IMAGES),
    "BatchNorm": (_conv_norm(lambda: nn.BatchNorm2d(4)), _IMAGES),
    "LayerNorm": (_dense(lambda: nn.LayerNorm(6), nn.Tanh), _FEATURES),
    "SiLU": (_dense(nn.SiLU), _FEATURES),
    "GELU": (_dense(nn.GELU), _FEATURES),
    "tied parameters": (Tied, _FEATURES),
    "unused parameter": (Unused, _FEATURES),
    "frozen parameters": (_frozen, _FEATURES),
    "MultiheadAttention": (Attention, _TOKENS),
    "scaled_dot_product_attention": (ScaledDotProduct, _TOKENS),
}


@dataclass(frozen=True)
class Case:
    """A network in training mode, its data, and a point away from the network's own parameters."""

    model: nn.Module
    x: Tensor
    y: Tensor
    w: Tensor


def case(name: str) -> Case:
    """The network called ``name``: every parameter and running statistic is random, none is 0 or 1."""
    build, shape = NETS[name]
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = build().double()
        for parameter in model.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2.0)
        x = torch.randn(SAMPLES, *shape, dtype=torch.float64)
        w = torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])
        return Case(model, x, torch.randint(CLASSES, (SAMPLES,)), w + 0.1 * torch.randn_like(w))
