"""FedCM's momentum on the gradients of sharpness-aware minimisation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from trainers.algorithm import Algorithm, Gradient, Mean, Round, State
from trainers.algorithms.fedcm import mean_direction
from trainers.parts.ascent import SAM


@dataclass(frozen=True)
class MoFedSAM(Algorithm):
    """Local SAM whose steps are mixed with the mean direction Δ of the round before.

    Client: w ← w − η (β g(w + ρ g/‖g‖) + (1 − β)Δ), Δ = 0 in the first round.
    Server: Δ ← −‹d›/(Kη); w ← w − η_g Kη Δ, so that η_g = 1 is FedAvg's average (the paper's own η_g is Kη of
    that).  Where K differs between clients it is their mean.
    Traffic per sampled client: two models down (w, Δ), one up.

    Example:
        >>> import torch
        >>> from trainers import MoFedSAM, Round, State
        >>> algorithm, round = MoFedSAM(rho=0.5, beta=0.25), Round(2, 0.1, 1.0)
        >>> server = State(w=torch.tensor([4.0]), momentum=torch.tensor([2.0]))
        >>> algorithm.ascent
        SAM(rho=0.5)
        >>> algorithm.direction(server.w, lambda w: w + 0.5, State(), server, round)  # 0.25 · 4.5 + 0.75 · 2
        tensor([2.6250])
    """

    paper = "Qu et al., ICML 2022, Algorithm 2 and eq. 6"
    weighting = "uniform"
    excludes: ClassVar[Mapping[str, str]] = {
        "server_optimizer": "its clients' momentum is made of the plain mean of their changes",
        "local_optimizer": "Δ takes −‹d›/(Kη) for the mean of the clients' directions, as only plain steps make it",
    }

    rho: float = 0.05
    """ρ, radius of the ascent step (0.5 is the paper's for ResNet-18; small nets want less)"""
    beta: float = 0.1
    """β, share of the client's own SAM gradient (0.1 is the paper's); 1 is FedSAM"""
    server_lr: float = 1.0
    """η_g, the server's rate; 1 is the plain mean"""

    def __post_init__(self) -> None:
        self.require(self.rho >= 0, "a radius ρ of 0 or more")
        self.require(0 < self.beta <= 1, "β above 0 and at most 1")
        self.require(self.server_lr > 0, "a server rate η_g above 0")

    @property
    def ascent(self) -> SAM:
        """The SAM part."""
        return SAM(self.rho)

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """Δ = 0 (line 1)."""
        return {"momentum": torch.zeros_like(w)}

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """β g̃ + (1 − β)Δ (eq. 6); ``gradient`` is already SAM's."""
        return self.beta * gradient(w) + (1 - self.beta) * server.momentum

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """Δ (line 12), then w (line 13): −Kη Δ is ‹d›."""
        server.momentum = mean_direction(mean, round)
        server.w = server.w + self.server_lr * mean.delta
