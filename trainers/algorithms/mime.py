"""Local steps that mimic a step of centralised SGD with momentum, in two phases."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from trainers.algorithm import Algorithm, Gradient, LocalData, Mean, Round, State

_CANCELS = "what it changes in g(w) and g(w^t) cancels to first order, and c, the gradient over all data, is without it"


@dataclass(frozen=True)
class Mime(Algorithm):
    """Mime with SGD momentum: frozen momentum m, and gradients corrected by their mean c at the server's model.

    First phase: clients send ∇f_i(w^t), their gradient over all of their data; the server answers c = ‹∇f_i(w^t)›.
    Client: w ← w − η ((1 − β)(g(w) − g(w^t) + c) + βm), both gradients on the step's mini-batch, m and c frozen.
    Server: w ← w + η_g ‹d›; m ← (1 − β)c + βm.
    ∇f_i is plain: no ascent, no augmentation, no weight decay enters c and m.  One more pass over the data each
    round, and two gradients a step.  What changes the mini-batches' gradients (augmentation, too) acts on their
    difference only, and is refused where that would leave nothing of it.
    FedJAX and the code of GHBM, from which this is read too, have momentum without damping, ĝ + βm for
    (1 − β)ĝ + βm: their rate η is (1 − β) of this one's.
    Traffic per sampled client: three models down (w, m, then c), two up (∇f_i, then d_i), in two trips.

    Example:
        >>> import torch
        >>> from trainers import Mean, Mime, Round, State
        >>> algorithm, round = Mime(beta=0.5), Round(2, lr=0.1, participation=1.0)
        >>> server = State(w=torch.tensor([4.0]), momentum=torch.tensor([2.0]))
        >>> received = State(**algorithm.broadcast(server))
        >>> received.c = algorithm.answer(server, Mean(gradient=torch.tensor([6.0])), round)["c"]
        >>> w = torch.tensor([3.0])
        >>> algorithm.direction(w, lambda w: w, State(), received, round)  # 0.5 (3 − 4 + 6) + 0.5 · 2
        tensor([3.5000])
        >>> server.momentum  # 0.5 · 6 + 0.5 · 2
        tensor([4.])
    """

    paper = "Karimireddy et al., NeurIPS 2021 (arXiv 2008.03606), Algorithm 1 (Mime) with SGDm"
    two_phases = True
    excludes: ClassVar[Mapping[str, str]] = {
        "dp": "its clients send twice a round, and ε counts one upload",
        "local_optimizer": "its local step is already that of an optimiser, momentum with the server's m",
        **dict.fromkeys(("ascent", "man", "mixup", "adversary"), _CANCELS),
    }

    beta: float = 0.9
    """β, the momentum; 0 keeps the corrected gradients"""
    server_lr: float = 1.0
    """η_g, the server's rate; 1 is the plain mean (the paper's)"""

    def __post_init__(self) -> None:
        self.require(0 <= self.beta < 1, "β from 0 to below 1")
        self.require(self.server_lr > 0, "a server rate η_g above 0")

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """m = 0."""
        return {"momentum": torch.zeros_like(w)}

    def ask(self, client: State, server: State, data: LocalData, round: Round) -> dict[str, Tensor]:
        """∇f_i(w^t)."""
        return {"gradient": data.gradient(server.w)}

    def answer(self, server: State, mean: Mean, round: Round) -> dict[str, Tensor]:
        """c; the server's m is the next round's from here on, the clients have received this round's."""
        server.momentum = (1 - self.beta) * mean.gradient + self.beta * server.momentum
        return {"c": mean.gradient}

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """U(ĝ, m) = (1 − β)ĝ + βm, ĝ = g(w) − g(w^t) + c."""
        corrected = gradient(w) - gradient(server.w.expand_as(w)) + server.c
        return (1 - self.beta) * corrected + self.beta * server.momentum

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """w."""
        server.w = server.w + self.server_lr * mean.delta
