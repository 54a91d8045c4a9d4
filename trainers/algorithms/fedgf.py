"""SAM whose perturbed point moves from the client's own towards one of the server's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from trainers.algorithm import PERTURBED, Algorithm, Gradient, Mean, Round, State, unit


@dataclass(frozen=True)
class FedGF(Algorithm):
    """FedGF: between local SAM and the gradient at the server's perturbed model, by how far clients drift apart.

    Client: w ← w − η g((1 − c)(w + ρ g/‖g‖) + c w̃).
    Server, in this order: c ← the share of the last W rounds in which ‹‖w_i − w^t‖› > T_D; w⁺ ← ‹w_i›;
    w̃ ← w⁺ + ρ_g (w^t − w⁺)/‖w^t − w⁺‖: uphill is back to where the server was.
    In the first round, and while c = 0, this is FedSAM; at c = 1 every local gradient is that at w̃.
    The rule is the authors' code's, whose ‹‖w_i − w^t‖› has equal weights, where this has the run's.  T_D has no
    default there: that of here is ours, for the digits.
    Traffic per sampled client: two models (w, w̃) and a number (c) down, one model and a number (‖d_i‖) up.

    Example:
        >>> import torch
        >>> from trainers import FedGF, Round, State
        >>> received = State(w=torch.tensor([1.0]), perturbed=torch.tensor([3.0]), c=torch.tensor([0.25]))
        >>> algorithm, round = FedGF(rho=0.5), Round(2, 0.1, 1.0)
        >>> algorithm.direction(received.w, lambda w: w, State(), received, round)  # 0.75 (1 + 0.5) + 0.25 · 3
        tensor([1.8750])
    """

    paper = "Lee and Yoon, ICML 2024, as its code has it"
    perturbs = True
    excludes: ClassVar[Mapping[str, str]] = {
        "ascent": "FedGF perturbs its own way, between the client's SAM and the server's perturbed model"
    }

    rho: float = 0.05
    """ρ, radius of the clients' ascent step (the authors' script: 0.02, 0.05, 0.1)"""
    rho_g: float = 0.05
    """ρ_g, radius of the server's perturbation (the authors' code: as ρ)"""
    t_d: float = 0.5
    """T_D, mean length of the clients' changes above which a round counts as one of drift (ours, for the digits: the
    authors' code has no default); a huge one makes it FedSAM"""
    window: int = 30
    """W, rounds over which c is the share of such rounds (30 is the authors')"""

    def __post_init__(self) -> None:
        self.require(min(self.rho, self.rho_g) >= 0, "radii ρ and ρ_g of 0 or more")
        self.require(self.t_d >= 0, "T_D of 0 or more")
        self.require(self.window >= 1, "a window W of 1 round or more")

    @property
    def bias(self) -> str:
        """Of local drift, and of perturbations."""
        return self.drift if self.rho == self.rho_g == 0 else f"{self.drift}, {PERTURBED}"

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """w̃ = w^0, c = 0, and what the last W rounds were: 1 of drift, 0 not, −1 none yet."""
        none = torch.full((self.window,), -1.0, dtype=w.dtype, device=w.device)
        return {"perturbed": w, "c": torch.zeros_like(w[:1]), "window": none}

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """w, w̃ and c."""
        return {"w": server.w, "perturbed": server.perturbed, "c": server.c}

    def server_perturbation(self, server: State) -> Tensor:
        """w̃ − w."""
        return server.perturbed - server.w

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """The gradient at the mixture; two gradients of the same mini-batch."""
        own = w + self.rho * unit(gradient(w), round.norm_eps)
        return gradient((1 - server.c) * own + server.c * server.perturbed)

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i and its length."""
        delta = w - server.w
        return {"delta": delta, "distance": delta.norm(dim=-1, keepdim=True)}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """c, w and w̃."""
        drifted = (mean.distance > self.t_d).to(server.window.dtype)
        server.window = torch.cat([server.window[1:], drifted])
        server.c = server.window[server.window >= 0].mean(dim=0, keepdim=True)
        before, server.w = server.w, server.w + mean.delta
        server.perturbed = server.w + self.rho_g * unit(before - server.w, round.norm_eps)
