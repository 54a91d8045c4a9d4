"""Local steps with the momentum that centralised SGD would have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from trainers.algorithm import Algorithm, Gradient, LocalData, Mean, Round, State


@dataclass(frozen=True)
class MimeLite(Algorithm):
    """MimeLite with SGD momentum: clients use the server's momentum m but do not change it.

    Client: w ← w − η ((1 − β)g + βm) with m frozen; sends also ∇f_i(w^t), its gradient over all of its data.
    Server: w ← w + η_g ‹d›; m ← (1 − β)‹∇f_i(w^t)› + βm.
    ∇f_i is plain: no ascent, no augmentation, no weight decay enters m.  One more pass over the data each round.
    Traffic per sampled client: two models down (w, m), two up (d_i, ∇f_i).

    Example:
        >>> import torch
        >>> from trainers import Mean, MimeLite, Round, State
        >>> algorithm, round = MimeLite(beta=0.5), Round(2, lr=0.1, participation=1.0)
        >>> server = State(w=torch.tensor([4.0]), momentum=torch.tensor([2.0]))
        >>> algorithm.direction(server.w, lambda w: w, State(), server, round)  # 0.5 · 4 + 0.5 · 2
        tensor([3.])
        >>> algorithm.server_step(server, Mean(delta=torch.tensor([-1.0]), gradient=torch.tensor([6.0])), round)
        >>> server.w, server.momentum  # 4 − 1, and 0.5 · 6 + 0.5 · 2
        (tensor([3.]), tensor([4.]))
    """

    paper = "Karimireddy et al., NeurIPS 2021 (arXiv 2008.03606), Algorithm 1 (MimeLite) with SGDm"
    excludes: ClassVar[Mapping[str, str]] = {
        "local_optimizer": "its local step is already that of an optimiser, momentum with the server's m"
    }

    beta: float = 0.9
    """β, the momentum; 0 is FedAvg"""
    server_lr: float = 1.0
    """η_g, the server's rate; 1 is the plain mean (the paper's)"""

    def __post_init__(self) -> None:
        self.require(0 <= self.beta < 1, "β from 0 to below 1")
        self.require(self.server_lr > 0, "a server rate η_g above 0")

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """m = 0."""
        return {"momentum": torch.zeros_like(w)}

    def prepare(self, client: State, server: State, data: LocalData, round: Round) -> None:
        """∇f_i(w^t), sent at the end of the round."""
        client.gradient = data.gradient(server.w)

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """U(g, m) = (1 − β)g + βm."""
        return (1 - self.beta) * gradient(w) + self.beta * server.momentum

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i and ∇f_i(w^t)."""
        return {"delta": w - server.w, "gradient": client.gradient}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """m ← V(‹∇f_i(w^t)›, m), then w."""
        server.momentum = (1 - self.beta) * mean.gradient + self.beta * server.momentum
        server.w = server.w + self.server_lr * mean.delta
