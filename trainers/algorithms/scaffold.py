"""Control variates against client drift."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from trainers.algorithm import Algorithm, Gradient, Mean, Round, State


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """SCAFFOLD, option II: control variates c_i (client) and c (server) correct the local direction.

    Client: w ← w − η (g − c_i + c); then c_i⁺ = c_i − c − d_i/(Kη) with the current η and K steps.
    Server: w ← w + η_g ‹d›; c ← c + Σ_S p_i (c_i⁺ − c_i), so that c = Σ p_i c_i over all clients.
    Traffic per sampled client: two models down (w, c), two up (d_i, c_i⁺ − c_i).

    Example:
        >>> import torch
        >>> from trainers import Round, Scaffold, State
        >>> client, received = State(c=torch.tensor([0.5])), State(w=torch.tensor([1.0]), c=torch.tensor([0.25]))
        >>> algorithm, round = Scaffold(), Round(1, lr=0.25, participation=0.5)
        >>> algorithm.direction(torch.tensor([1.0]), lambda w: 2 * w, client, received, round)  # 2 − 0.5 + 0.25
        tensor([1.7500])
        >>> algorithm.upload(torch.tensor([0.5]), client, received, round, steps=2)  # −0.25 + 0.5/(2 · 0.25)
        {'delta': tensor([-0.5000]), 'c': tensor([0.7500])}
    """

    paper = "Karimireddy et al., ICML 2020, Algorithm 1, option II"
    drift = ""
    excludes: ClassVar[Mapping[str, str]] = {
        "local_optimizer": "c_i takes −d_i/(Kη) for the mean of the client's directions, as only plain steps make it"
    }

    server_lr: float = 1.0
    """η_g, the server's rate; 1 is the plain mean"""

    def __post_init__(self) -> None:
        self.require(self.server_lr > 0, "a server rate η_g above 0")

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """c_i = 0."""
        return {"c": torch.zeros_like(w)}

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """c = 0."""
        return {"c": torch.zeros_like(w)}

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """g − c_i + c (line 10)."""
        return gradient(w) - client.c + server.c

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i and the change of c_i (lines 12 to 14)."""
        delta = w - server.w
        change = -server.c - delta / (steps * round.lr)
        client.c = client.c + change
        return {"delta": delta, "c": change}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """w and c (lines 16 and 17)."""
        server.w = server.w + self.server_lr * mean.delta
        server.c = server.c + mean.all_clients.c
