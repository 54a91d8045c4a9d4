"""Dynamically regularised sharpness-aware minimisation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from trainers.algorithm import PERTURBED, Algorithm, Gradient, Mean, Round, State, unit


@dataclass(frozen=True)
class FedSMOO(Algorithm):
    """FedDyn's alignment of the models, and the same for the perturbations of SAM.

    Client: ŝ = r unit(g − μ_i − s); μ_i ← μ_i + ŝ − s; w ← w − η (g(w + ŝ) − λ_i + (w − w^t)/β);
    then λ_i ← λ_i − d_i/β.
    Server: s ← r unit(‹μ_i − ŝ›); λ ← λ − Σ_S p_i d_i/β; w ← ‹w_i› − βλ.
    Variant official, the authors' FL-Simulator: s ← r unit(‹μ_i›).
    The paper's ŝ_{i,K} of line 13 is that of the last step, k = K−1.  μ_i moves at every step, so a client of more
    steps weighs more in s, whose length is r all the same.  s is of the sampled clients, λ is Σ p_i λ_i over all.
    Traffic per sampled client: two models down (w, s), two up (d_i, μ_i − ŝ).

    Example:
        >>> import torch
        >>> from trainers import FedSMOO, Round, State
        >>> client = State(dual=torch.tensor([0.5]), mu=torch.tensor([0.0]))
        >>> received, round = State(w=torch.tensor([1.0]), s=torch.tensor([0.0])), Round(1, 0.1, 1.0)
        >>> algorithm, w = FedSMOO(r=0.5, beta=2.0), torch.tensor([2.0])
        >>> algorithm.direction(w, lambda w: w, client, received, round)  # 2.5 − 0.5 + 1/2
        tensor([2.5000])
        >>> client.mu  # ŝ, of length r
        tensor([0.5000])
    """

    paper = "Sun et al., ICML 2023, Algorithm 1"
    drift = ""
    perturbs = True
    excludes: ClassVar[Mapping[str, str]] = {
        "ascent": "FedSMOO perturbs its own way, towards the clients' common perturbation",
        "server_optimizer": "its server step solves for the model, βλ must be that of the plain average",
    }

    r: float = 0.1
    """r, radius of the perturbation (the paper's: 0.1); 0 is FedDyn"""
    beta: float = 10.0
    """β, the regulariser is ‖w − w^t‖²/(2β), FedDyn's with α = 1/β (the paper's: 10 CIFAR-10, 100 CIFAR-100)"""
    variant: Literal["paper", "official"] = "paper"
    """official: the authors' code, whose server drops ŝ from the common perturbation"""

    def __post_init__(self) -> None:
        self.require(self.r >= 0 and self.beta > 0, "r of 0 or more, β above 0")
        self.require(self.variant in ("paper", "official"), "variant paper or official")

    @property
    def bias(self) -> str:
        """None without perturbations."""
        return PERTURBED if self.r > 0 else ""

    def pull(self, client: State) -> float:
        """1/β."""
        return 1 / self.beta

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """λ_i = 0, μ_i = 0."""
        return {"dual": torch.zeros_like(w), "mu": torch.zeros_like(w)}

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """λ = 0, s = 0."""
        return {"dual": torch.zeros_like(w), "s": torch.zeros_like(w)}

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """The model and s (line 5); λ stays on the server."""
        return {"w": server.w, "s": server.s}

    def server_perturbation(self, server: State) -> Tensor:
        """s, the common perturbation that the clients' are turned towards."""
        return server.s

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """Lines 7 to 11; two gradients of the same mini-batch."""
        client.climb = self.r * unit(gradient(w) - client.mu - server.s, round.norm_eps)
        client.mu = client.mu + client.climb - server.s
        return gradient(w + client.climb) - client.dual + (w - server.w) / self.beta

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i and s̃_i (lines 13 to 15)."""
        delta = w - server.w
        client.dual = client.dual - delta / self.beta
        return {"delta": delta, "s": client.mu - client.climb if self.variant == "paper" else client.mu}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """s, λ and w (lines 17 to 19)."""
        server.s = self.r * unit(mean.s, round.norm_eps)
        server.dual = server.dual - mean.all_clients.delta / self.beta
        server.w = server.w + mean.delta - self.beta * server.dual
