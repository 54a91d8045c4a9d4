"""Client-level momentum: the last round's mean direction is mixed into every local step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from trainers.algorithm import Algorithm, Gradient, Mean, Round, State


def mean_direction(mean: Mean, round: Round) -> Tensor:
    """Δ⁺ = −‹d›/(Kη), the mean direction of this round's local steps, with this round's η.

    Where clients take different numbers of steps, K is their mean: Δ⁺ is then −Σ p_i d_i/(η Σ p_i K_i), the mean over
    all steps of all sampled clients.  (``--dual-steps`` and ``--dual-lr`` put others in the places of K and η.)
    """
    return -mean.delta / round.path(mean.steps)


@dataclass(frozen=True)
class FedCM(Algorithm):
    """FedCM: each local step goes along the gradient mixed with the mean direction Δ of the round before.

    Client: w ← w − η (αg + (1 − α)Δ), Δ = 0 in the first round.
    Server: Δ ← −‹d›/(Kη); w ← w − η_g Kη Δ, so that η_g = 1 is FedAvg's average (the paper's own η_g is Kη of
    that).  Where K differs between clients it is their mean.
    Traffic per sampled client: two models down (w, Δ), one up.

    Example:
        >>> import torch
        >>> from trainers import FedCM, Mean, Round, State
        >>> algorithm, round = FedCM(alpha=0.25), Round(2, lr=0.5, participation=1.0)
        >>> server = State(w=torch.tensor([4.0]), momentum=torch.tensor([2.0]))
        >>> algorithm.direction(server.w, lambda w: w, State(), server, round)  # 0.25 · 4 + 0.75 · 2
        tensor([2.5000])
        >>> algorithm.server_step(server, Mean(delta=torch.tensor([-3.0]), steps=2.0), round)
        >>> server.w, server.momentum  # 4 − 3, and Δ = 3/(2 · 0.5)
        (tensor([1.]), tensor([3.]))
    """

    paper = "Xu et al., 2021 (arXiv 2106.10874), Algorithm 2 (FedCM)"
    excludes: ClassVar[Mapping[str, str]] = {
        "dp": "Δ is divided by the mean number of local steps of the clients that came, which no noise hides",
        "server_optimizer": "its clients' momentum is made of the plain mean of their changes",
        "local_optimizer": "Δ takes −‹d›/(Kη) for the mean of the clients' directions, as only plain steps make it",
        "local_schedule": "Δ takes −‹d›/(Kη) for the mean of the clients' directions, as a constant rate makes it",
    }

    alpha: float = 0.1
    """α, share of the client's own gradient (0.1 is the paper's); 1 is FedAvg"""
    server_lr: float = 1.0
    """η_g, the server's rate; 1 is the plain mean"""

    def __post_init__(self) -> None:
        self.require(0 < self.alpha <= 1, "α above 0 and at most 1")
        self.require(self.server_lr > 0, "a server rate η_g above 0")

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """Δ = 0."""
        return {"momentum": torch.zeros_like(w)}

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """αg + (1 − α)Δ."""
        return self.alpha * gradient(w) + (1 - self.alpha) * server.momentum

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """Δ, then w: −Kη Δ is ‹d›."""
        server.momentum = mean_direction(mean, round)
        server.w = server.w + self.server_lr * mean.delta
