"""Control variates against client drift."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from trainers.algorithm import Algorithm, Gradient, LocalData, Mean, Round, State


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """SCAFFOLD, option II: control variates c_i (client) and c (server) correct the local direction.

    Client: w ← w − η (g − c_i + c); then c_i⁺ = c_i − c − d_i/(Kη) with the current η and K steps.
    Server: w ← w + η_g ‹d›; c ← c + Σ_S p_i (c_i⁺ − c_i), so that c = Σ p_i c_i over all clients.
    With ``sizes="relative"``, as in FedDyn's repository, the local step has c/s_i with the client's relative size
    s_i = N n_i/n, and the change of c_i that is sent is multiplied by s_i.
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
    sizes: Literal["equal", "relative"] = "equal"
    """relative: c is divided by the client's number of samples over the mean client's, and the change of c_i sent is
    multiplied by it, as in FedDyn's repository"""

    def __post_init__(self) -> None:
        self.require(self.server_lr > 0, "a server rate η_g above 0")
        self.require(self.sizes in ("equal", "relative"), "sizes equal or relative")

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """c_i = 0, and s_i as one number where it is used."""
        size = {"size": torch.ones_like(w[..., :1])} if self.sizes == "relative" else {}
        return {"c": torch.zeros_like(w), **size}

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """c = 0."""
        return {"c": torch.zeros_like(w)}

    def prepare(self, client: State, server: State, data: LocalData, round: Round) -> None:
        """s_i."""
        if self.sizes == "relative":
            client.size = torch.full_like(client.size, data.size)

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """g − c_i + c (line 10)."""
        return gradient(w) - client.c + (server.c / client.size if self.sizes == "relative" else server.c)

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i and the change of c_i (lines 12 to 14)."""
        delta = w - server.w
        change = -server.c - delta / round.path(steps)
        client.c = client.c + change
        return {"delta": delta, "c": change * client.size if self.sizes == "relative" else change}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """w and c (lines 16 and 17)."""
        server.w = server.w + self.server_lr * mean.delta
        server.c = server.c + mean.all_clients.c
