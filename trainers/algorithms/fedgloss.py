"""SAM on the server, with the previous pseudo-gradient; ADMM between server and clients."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from trainers.algorithm import PERTURBED, Algorithm, Gradient, Mean, Round, State, unit

_RHO0 = 0.001


@dataclass(frozen=True)
class FedGloSS(Algorithm):
    """Global server-side sharpness: clients start uphill of w^t, along the round before's pseudo-gradient Δ.

    Client, from w̃ = w^t + ρ Δ/‖Δ‖: w ← w − η (g(w + ρ_l g/‖g‖) − σ_i + (w − w̃)/β); then σ_i ← σ_i − d_i/β,
    d_i = w_i − w̃.  Server: σ ← σ − Σ_S p_i d_i/β; Δ ← −‹d›; w ← w^t − Δ − βσ, from the unperturbed w^t.
    The first round has no Δ and no perturbation.  σ is Σ p_i σ_i over all clients.
    Optionally, as in the authors' code, both radii grow linearly from ρ_0 over the first T_s rounds.

    Variant official, the authors' code: σ's step is divided by the number of sampled clients once more, and while
    radii grow (T_s of 2 or more), the server's is held at ρ_l + (ρ − ρ_0)/T_s.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedGloSS, Mean, Round, State
        >>> algorithm, round = FedGloSS(rho=5.0, beta=2.0), Round(1, 0.1, participation=0.5)
        >>> change = torch.tensor([-3.0, -4.0])
        >>> server = State(w=torch.zeros(2), sigma=torch.zeros(2), uphill=torch.zeros(2))
        >>> algorithm.server_step(server, Mean(delta=change, all_clients=State(delta=change / 2)), round)
        >>> server.sigma, server.w  # −(‹d›/2)/2, and ‹d› − 2σ
        (tensor([0.7500, 1.0000]), tensor([-4.5000, -6.0000]))
        >>> algorithm.broadcast(server)["w"]  # w + 5 Δ/‖Δ‖, Δ = (3, 4)
        tensor([-1.5000, -2.0000])
    """

    paper = "Caldarola et al., CVPR 2025, Algorithm 1"
    drift = ""
    perturbs = True
    excludes: ClassVar[Mapping[str, str]] = {
        "ascent": "FedGloSS has its own: radius rho_l on the clients, rho on the server",
        "server_optimizer": "its server step is ADMM's, on the plain pseudo-gradient",
    }

    rho: float = 0.05
    """ρ, radius of the server's ascent (the authors' runs: 0.15 CIFAR-10, 0.01 CIFAR-100); 0: SAM on clients only"""
    rho_l: float = 0.05
    """ρ_l, radius of the clients' ascent (the authors' runs: 0.15 CIFAR-10, 0.2 CIFAR-100); 0: SGD on clients"""
    beta: float = 10.0
    """β, ADMM's penalty is 1/β (the authors' runs: 10 CIFAR-10, 100 CIFAR-100)"""
    warmup: int = 0
    """T_s, rounds over which both radii grow (the authors' runs: 2000 of 10000 CIFAR-10); 0: full from the start"""
    rho0: float = _RHO0
    """ρ_0, the first round's radius where they grow; without a warmup there is none to choose"""
    variant: Literal["paper", "official"] = "paper"
    """official: the authors' code, whose σ moves |S| times more slowly and whose server's radius grows otherwise"""

    def __post_init__(self) -> None:
        self.require(min(self.rho, self.rho_l, self.rho0) >= 0, "radii ρ, ρ_l and ρ_0 of 0 or more")
        self.require(self.beta > 0, "β above 0")
        self.require(self.warmup >= 0, "a warmup of 0 rounds or more")
        self.require(self.variant in ("paper", "official"), "variant paper or official")
        self.require(self.variant == "paper" or self.warmup != 1, "a warmup of 0 or 2 rounds or more officially")
        self.require(self.warmup > 0 or self.rho0 == _RHO0, "a warmup of 1 round or more for ρ_0 to have an effect")

    @property
    def bias(self) -> str:
        """None without perturbations."""
        return PERTURBED if self.rho > 0 or self.rho_l > 0 else ""

    def pull(self, client: State) -> float:
        """1/β."""
        return 1 / self.beta

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """σ_i = 0 (line 2)."""
        return {"sigma": torch.zeros_like(w)}

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """σ = 0 (line 2), and the perturbation of the next round, 0."""
        return {"sigma": torch.zeros_like(w), "uphill": torch.zeros_like(w)}

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """w̃ only (line 5); σ stays on the server."""
        return {"w": server.w + server.uphill}

    def server_perturbation(self, server: State) -> Tensor:
        """ρ Δ/‖Δ‖, which is in w̃."""
        return server.uphill

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """Lines 12 to 15; what the client received is w̃."""
        g, radius = gradient(w), self._radius(self.rho_l, round.number)
        if radius > 0:
            g = gradient(w + radius * unit(g, round.norm_eps))
        return g - client.sigma + (w - server.w) / self.beta

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i = w_i − w̃, and σ_i (lines 19 and 20)."""
        delta = w - server.w
        client.sigma = client.sigma - delta / self.beta
        return {"delta": delta}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """σ, Δ and w (lines 22 to 24), then the next round's perturbation (line 4)."""
        step = mean.all_clients.delta / self.beta
        server.sigma = server.sigma - (step / mean.clients if self.variant == "official" else step)
        server.w = server.w + mean.delta - self.beta * server.sigma
        server.uphill = self._server_radius(round.number + 1) * unit(-mean.delta, round.norm_eps)

    def _server_radius(self, number: int) -> float:
        if self.variant == "official" and 1 < number <= self.warmup + 1:
            return self.rho_l + (self.rho - self.rho0) / self.warmup
        return self._radius(self.rho, number)

    def _radius(self, full: float, number: int) -> float:
        grown = min(1.0, (number - 1) / self.warmup) if self.warmup else 1.0
        return self.rho0 + (full - self.rho0) * grown if grown < 1 else full
