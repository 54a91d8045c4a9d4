"""Client momentum of one's own, whose extrapolation is the direction of SAM's perturbation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from trainers.algorithm import PERTURBED, Algorithm, Gradient, Mean, Round, State, unit
from trainers.algorithms.fedcm import mean_direction

_LEAST, _MOST = 0.1, 0.9  # of what α is drawn towards


@dataclass(frozen=True)
class FedWMSAM(Algorithm):
    """FedWMSAM: FedCM with SCAFFOLD's correction in the momentum, on a gradient perturbed along that momentum.

    Client, Δ_i = Δ + α/(1 − α)(c − c_i), step k = 0 … K−1:
    w ← w − η (α g(w + ρ unit(w^t + kΔ_i − w)) + (1 − α)Δ_i), one gradient a step, the first one unperturbed.
    Server: Δ ← −‹d›/(Kη); c_i⁺ = c_i − c − d_i/(Kη), c ← c + Σ_S p_i (c_i⁺ − c_i); w ← w + η_g ‹d›;
    α ← (1 − λ)α + λ clip(‹1 + cos(d_i, Δ)›, 0.1, 0.9), with the Δ of the round before: 0.1 in the first round.

    The paper's Algorithm 1 has Δ without 1/K and of both signs; the authors' code perturbs the other way, takes one
    coordinate of the flat vector for each parameter tensor, multiplies Δ by the rate's decay, and has client 0's K for
    all (``--dual-steps first``).  Here K in Δ is the sampled clients' mean, in c_i the client's own.
    The server keeps the c_i, as the paper's does, and sends Δ_i: c and its changes are no traffic.
    Traffic per sampled client: two models (w, Δ_i) and a number (α) down, one model and a number (the cosine) up.

    Example:
        >>> import torch
        >>> from trainers import FedWMSAM, Round, State
        >>> received = State(
        ...     w=torch.tensor([1.0]), c=torch.tensor([0.5]), momentum=torch.tensor([2.0]), alpha=torch.tensor([0.5])
        ... )
        >>> client, round = State(c=torch.tensor([0.25])), Round(2, lr=0.1, participation=1.0, step=1, steps=2)
        >>> w = torch.tensor([0.0])  # Δ_i = 2 + 1 (0.5 − 0.25), so that uphill is 1 + 2.25 − 0
        >>> FedWMSAM(rho=0.5).direction(w, lambda w: 4 * w, client, received, round)  # 0.5 · 4 · 0.5 + 0.5 · 2.25
        tensor([2.1250])
    """

    paper = "Li et al., NeurIPS 2025 (arXiv 2511.22080), Algorithm 1"
    drift = ""
    perturbs = True
    excludes: ClassVar[Mapping[str, str]] = {
        "dp": "Δ is divided by the mean number of local steps of the clients that came, which no noise hides",
        "ascent": "FedWMSAM perturbs its own way, along its momentum",
        "server_optimizer": "its clients' momentum is made of the plain mean of their changes",
        "local_optimizer": "Δ takes −‹d›/(Kη) for the mean of the clients' directions, as only plain steps make it",
        "local_schedule": "Δ takes −‹d›/(Kη) for the mean of the clients' directions, as a constant rate makes it",
    }
    on_server = frozenset({"c"})

    rho: float = 0.01
    """ρ, radius of the perturbation (0.01 is the paper's; its code has 0.1)"""
    lam: float = 0.01
    """λ, how fast α follows the clients' agreement with the momentum (0.01 is the paper's); 0 keeps α"""
    alpha: float = 0.1
    """α of the first round, share of the client's own gradient (0.1 is the paper's)"""
    server_lr: float = 1.0
    """η_g, the server's rate; 1 is the plain mean"""

    def __post_init__(self) -> None:
        self.require(self.rho >= 0, "a radius ρ of 0 or more")
        self.require(0 <= self.lam <= 1, "λ from 0 to 1")
        self.require(0 < self.alpha < 1, "α above 0 and below 1")
        self.require(self.server_lr > 0, "a server rate η_g above 0")

    @property
    def bias(self) -> str:
        """None without perturbations."""
        return PERTURBED if self.rho > 0 else ""

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """c_i = 0."""
        return {"c": torch.zeros_like(w)}

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """c = 0, Δ = 0, and α as one number."""
        zeros = torch.zeros_like(w)
        return {"c": zeros, "momentum": zeros, "alpha": torch.full_like(w[:1], self.alpha)}

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """α g + (1 − α)Δ_i; the perturbation is 0 at the first step, where w = w^t."""
        alpha = server.alpha
        momentum = server.momentum + alpha / (1 - alpha) * (server.c - client.c)
        uphill = server.w + round.step * momentum - w
        return alpha * gradient(w + self.rho * unit(uphill, round.norm_eps)) + (1 - alpha) * momentum

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i, the change of c_i, and 1 + cos(d_i, Δ), 0 where one of them is."""
        delta = w - server.w
        change = -server.c - delta / round.path(steps)
        client.c = client.c + change
        moving = delta.any(dim=-1, keepdim=True) & server.momentum.any(dim=-1, keepdim=True)
        cosine = (unit(delta) * unit(server.momentum)).sum(dim=-1, keepdim=True)
        return {"delta": delta, "c": change, "agreement": moving * (1 + cosine)}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """Δ, c, w and α."""
        server.momentum = mean_direction(mean, round)
        server.c = server.c + mean.all_clients.c
        server.w = server.w + self.server_lr * mean.delta
        server.alpha = (1 - self.lam) * server.alpha + self.lam * mean.agreement.clamp(_LEAST, _MOST)
