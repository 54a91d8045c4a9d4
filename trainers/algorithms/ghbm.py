"""Generalised heavy-ball momentum: local steps go on where the server's model went over the last rounds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from trainers.algorithm import Algorithm, Gradient, Mean, Round, State


class HeavyBall(Algorithm):
    """What GHBM, LocalGHBM and FedHBM share: m̃, a displacement of the model, is spread over a client's K local steps.

    Each step goes along g + β/(ηK) m̃, so that K steps add −βm̃ to what the gradients do, whatever rate and K.
    """

    paper = "Zaccone et al., 2023 (arXiv 2311.18578), as in the authors' code"
    excludes: ClassVar[Mapping[str, str]] = {
        "local_optimizer": "β/(ηK) m̃ adds βm̃ to a round by plain steps only: an optimiser would scale it too"
    }

    beta: float

    def __post_init__(self) -> None:
        self.require(self.beta >= 0, "β of 0 or more")

    def displacement(self, w: Tensor, client: State, server: State, round: Round) -> Tensor:
        """m̃ at a local step, [..., d]."""
        raise NotImplementedError

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """g + β/(ηK) m̃."""
        share = self.beta / (round.lr * round.steps)
        return gradient(w) + share * self.displacement(w, client, server, round)


@dataclass(frozen=True)
class GHBM(HeavyBall):
    """Generalised heavy-ball momentum: the server's own last τ rounds, sent along.

    Client: w ← w − η (g + β/(ηK) m̃), K its own number of local steps.
    Server: w ← ‹w_i›; m̃ ← (w^{t−τ} − w^t)/τ for the new model w^t; 0 until τ rounds are over.
    τ near 1/p, p the share of clients a round, has every client in m̃ about once.  τ = 1 at the rate αη is FedCM(α)
    at η with β = 1 − α.  The server keeps τ models.
    The rule is that of the authors' code, whose option of Nesterov's form is left out.
    Traffic per sampled client: two models down (w, m̃), one up.

    Example:
        >>> import torch
        >>> from trainers import GHBM, Mean, Round, State
        >>> algorithm, round = GHBM(beta=0.5, tau=2), Round(2, lr=0.25, participation=0.5, steps=4)
        >>> server = State(w=torch.tensor([4.0]), momentum=torch.zeros(1), past=torch.tensor([[0.0], [8.0]]))
        >>> algorithm.server_step(server, Mean(delta=torch.tensor([-2.0])), round)
        >>> server.w, server.past, server.momentum  # the model two rounds ago was 8: (8 − 2)/2
        (tensor([2.]), tensor([[8.],
                [4.]]), tensor([3.]))
        >>> algorithm.direction(server.w, lambda w: w, State(), server, round)  # 2 + 0.5/(0.25 · 4) · 3
        tensor([3.5000])
    """

    beta: float = 0.9
    """β, share of m̃ that a round's local steps add; 0 is FedAvg"""
    tau: int = 4
    """τ, rounds that m̃ looks back; about clients/per-round (4 fits the default 5 of 20)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.tau >= 1, "τ of 1 round or more")

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """m̃ = 0 and the last τ models, [τ, d], the oldest first."""
        return {"momentum": torch.zeros_like(w), "past": w.new_zeros(self.tau, *w.shape)}

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """w and m̃; the earlier models stay on the server."""
        return {"w": server.w, "momentum": server.momentum}

    def displacement(self, w: Tensor, client: State, server: State, round: Round) -> Tensor:
        """As received."""
        momentum: Tensor = server.momentum
        return momentum

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """w, the queue of models, m̃."""
        server.past = torch.cat([server.past[1:], server.w[None]])
        server.w = server.w + mean.delta
        if round.number >= self.tau:
            server.momentum = (server.past[0] - server.w) / self.tau
