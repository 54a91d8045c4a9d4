"""Prox-correction and gradient perturbation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from trainers.algorithm import PERTURBED, Algorithm, Gradient, Mean, Round, State, unit


@dataclass(frozen=True)
class FedSpeed(Algorithm):
    """A proximal term whose bias ĝ_i corrects, on a gradient mixed with that of a perturbed point.

    Client: g₁ = g(w), g₂ = g(w + ρ g₁); w ← w − η ((1−α) g₁ + α g₂ − ĝ_i + (w − w^t)/λ); then ĝ_i ← ĝ_i − d_i/λ.
    Server: w ← ‹w_i› − λ Σ p_i ĝ_i over all clients, sampled or not, as in the authors' FL-Simulator.
    With ``server_correction="sampled"`` w ← ‹w_i − λ ĝ_i⁺›, as the paper prints it: where not all clients take part,
    the corrections of those that do stand for all, and w never comes to rest, however many rounds it has.
    Variant official, FL-Simulator's ascent: it has length ρ (w + ρ g₁/‖g₁‖), and only g₂ is used (α = 1).  With the
    correction over all clients that is FedDyn on SAM's gradient.
    Variant uncleared, fedMAN's code: as official, but the ascent goes along g₁ plus what the step before moved along,
    without the w of its proximal term and its decay: that gradient is not cleared.  Its clipping is not seen.
    ĝ_i is made of d_i, so the number of local steps enters nowhere.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedSpeed, Round, State
        >>> client, received, round = State(dual=torch.tensor([0.5])), State(w=torch.tensor([1.0])), Round(1, 0.1, 1.0)
        >>> algorithm, w = FedSpeed(rho=0.5, alpha=0.5, lam=2.0, server_correction="sampled"), torch.tensor([2.0])
        >>> algorithm.direction(w, lambda w: w, client, received, round)  # (2 + 3)/2 − 0.5 + (2 − 1)/2
        tensor([2.5000])
        >>> algorithm.upload(w, client, received, round, steps=1)  # d_i − λ ĝ_i⁺ = 1 − 2 (0.5 − 1/2)
        {'delta': tensor([1.])}
    """

    paper = "Sun et al., ICLR 2023, Algorithm 1"
    perturbs = True
    excludes: ClassVar[Mapping[str, str]] = {
        "ascent": "FedSpeed perturbs its gradient itself",
        "server_optimizer": "its server averages prox-corrected models, not the clients' changes",
    }

    rho: float = 0.1
    """ρ, rate of the ascent step, multiplied by the gradient itself; officially the step's length (0.1 there)"""
    alpha: float = 1.0
    """α, share of the gradient at the perturbed point (1 in the authors' code)"""
    lam: float = 10.0
    """λ, the proximal term is ‖w − w^t‖²/(2λ) (10 in the authors' code)"""
    variant: Literal["paper", "official", "uncleared"] = "paper"
    """official: the authors' code, normalised ascent and α = 1; uncleared: fedMAN's code, whose ascent also goes along
    the direction of the step before"""
    server_correction: Literal["all", "sampled"] = "all"
    """whose ĝ_i the server takes off: all clients' (the authors' code), or the sampled ones' (as the paper prints it),
    which does not converge where not all clients take part"""

    def __post_init__(self) -> None:
        self.require(self.rho >= 0 and self.lam > 0 and 0 <= self.alpha <= 1, "ρ of 0 or more, λ above 0, α in [0, 1]")
        self.require(self.variant in ("paper", "official", "uncleared"), "variant paper, official or uncleared")
        self.require(self.variant == "paper" or self.alpha == 1, "α = 1 in the official variants, which mix nothing")
        self.require(self.server_correction in ("all", "sampled"), "a server correction of all or sampled")

    @property
    def bias(self) -> str:
        """None with all clients' corrections and no ascent."""
        if self.server_correction == "sampled":
            return "corrected by sampled clients only"
        return PERTURBED if self.rho * self.alpha > 0 else ""

    def pull(self, client: State) -> float:
        """1/λ."""
        return 1 / self.lam

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """ĝ_i = 0."""
        return {"dual": torch.zeros_like(w)}

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """The mean of ĝ_i over all clients, if that is taken off."""
        return {"dual": torch.zeros_like(w)} if self.server_correction == "all" else {}

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """The model."""
        return {"w": server.w}

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """The quasi-gradient − ĝ_i + (w − w^t)/λ."""
        g1 = gradient(w)
        if self.variant == "uncleared":
            climb = g1 + client.before if round.step else g1
            linear = gradient(w + self.rho * unit(climb, round.norm_eps)) - client.dual - server.w / self.lam
            client.before = linear
            return linear + w / self.lam
        g2 = gradient(w + self.rho * (g1 if self.variant == "paper" else unit(g1, round.norm_eps)))
        return (1 - self.alpha) * g1 + self.alpha * g2 - client.dual + (w - server.w) / self.lam

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i, less λ ĝ_i⁺ if those of the sampled clients are taken off."""
        delta = w - server.w
        client.dual = client.dual - delta / self.lam
        return {"delta": delta if self.server_correction == "all" else delta - self.lam * client.dual}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """The mean ĝ_i of all clients, and w."""
        server.w = server.w + mean.delta
        if self.server_correction == "all":
            server.dual = server.dual - mean.all_clients.delta / self.lam
            server.w = server.w - self.lam * server.dual
