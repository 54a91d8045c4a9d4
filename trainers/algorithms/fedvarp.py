"""FedAvg that remembers every client's last change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from trainers.algorithm import Algorithm, Mean, Round, State


@dataclass(frozen=True)
class FedVARP(Algorithm):
    """The server averages the last change of every client, not of the sampled ones only: SAGA over clients.

    Client: w ← w − η g; it sends d_i − y_i, then y_i ← d_i.
    Server: w ← w + η_g (ȳ + ‹d_i − y_i›); ȳ ← ȳ + Σ_S p_i (d_i − y_i), so that ȳ = Σ p_i y_i over all clients.
    y_i = 0 before a client's first time.  The paper's server keeps the y_i; here each client keeps its own, which is
    the same.  Where all take part, and in the first round, this is FedAvg.  The rule is that of a re-implementation
    (FL-boop-blip/Fed-Code) and of the abstract: the authors' code is not public.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedVARP, Mean, Round, State
        >>> server, round = State(w=torch.tensor([1.0]), y=torch.tensor([0.5])), Round(2, 0.1, participation=0.5)
        >>> news = torch.tensor([2.0])
        >>> FedVARP().server_step(server, Mean(delta=news, all_clients=State(delta=news / 2)), round)
        >>> server.w, server.y  # 1 + (0.5 + 2), and 0.5 + 0.5 · 2
        (tensor([3.5000]), tensor([1.5000]))
    """

    paper = "Jhunjhunwala et al., UAI 2022, Algorithm 2"
    excludes: ClassVar[Mapping[str, str]] = {"server_optimizer": "its clients send changes of changes"}

    server_lr: float = 1.0
    """η_g, the server's rate; 1 is FedAvg's mean where all clients take part"""

    def __post_init__(self) -> None:
        self.require(self.server_lr > 0, "a server rate η_g above 0")

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """y_i = 0."""
        return {"y": torch.zeros_like(w)}

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """ȳ = 0."""
        return {"y": torch.zeros_like(w)}

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """The model; ȳ stays on the server."""
        return {"w": server.w}

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i − y_i; y_i becomes d_i."""
        delta = w - server.w
        news, client.y = delta - client.y, delta
        return {"delta": news}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """w, with ȳ as it was, then ȳ."""
        server.w = server.w + self.server_lr * (server.y + mean.delta)
        server.y = server.y + mean.all_clients.delta
