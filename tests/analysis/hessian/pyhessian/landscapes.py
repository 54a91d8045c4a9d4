"""Small landscapes with Hessians that are known."""

import torch
from torch import nn

from landscape import Landscape, load_dataset
from landscape.compute.randomness import global_seed


def small(dtype: str = "float64", batch_size: int = 16) -> Landscape:
    """A convolution and a dense layer on 40 digits, 3 batches of unequal size; 126 parameters."""
    with global_seed(0, "test"):
        model = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(2, 10))
    return Landscape(
        model, load_dataset("digits").train.subset(range(40)), dtype=dtype, batch_size=batch_size, device="cpu"
    )


def dense(landscape: Landscape) -> torch.Tensor:
    return landscape.hvp(None, torch.eye(landscape.dimension, dtype=landscape.dtype)).double()


def quadratic(*eigenvalues: float, dtype: torch.dtype = torch.float64) -> Landscape:
    """½ Σ λ_i (w_i − 1)², whatever the inputs."""
    curvature = torch.tensor(eigenvalues, dtype=dtype)

    class Point(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(len(eigenvalues), dtype=dtype))

        def forward(self, x):
            return self.w.expand(len(x), -1)

    def loss(outputs, targets):
        return 0.5 * (curvature * (outputs - targets) ** 2).sum(dim=1).mean()

    data = torch.zeros(3, 1, dtype=dtype), torch.ones(3, len(eigenvalues), dtype=dtype)
    return Landscape(Point(), data, loss, device="cpu", batch_size=2)
