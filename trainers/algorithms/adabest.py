"""Adaptive bias estimation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from trainers.algorithm import Algorithm, Gradient, LocalData, Mean, Round, State


@dataclass(frozen=True)
class AdaBest(Algorithm):
    """Drift estimates that are forgotten the longer a client stayed away, and a server that extrapolates its means.

    Client: w ← w − η (g − h_i); then h_i ← h_i/(t − t_i) + μ(w^t − w_i), t_i the last round in which i took part.
    Server: w̄ = ‹w_i›; h = β(w̄_prev − w̄); w ← w̄ − h, w̄_prev = w^0 before the first round.
    h_i is 0 before the first time, so t_i is of no matter then.
    Variant official, the authors' fedsim: h_i is kept without μ, h_i ← h_i/(t − t_i) + w^t − w_i, and a local step has
    μ E B̄/n_i h_i (epochs, mean size of all clients' batches so far, samples of the client); B̄ is 0 in the first round.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import AdaBest, Mean, Round, State
        >>> algorithm, round = AdaBest(mu=0.5, beta=0.5), Round(4, lr=0.1, participation=0.5)
        >>> client, received = State(h=torch.tensor([4.0]), last=torch.tensor([2.0])), State(w=torch.tensor([1.0]))
        >>> _ = algorithm.upload(torch.tensor([3.0]), client, received, round, steps=1)
        >>> client.h  # 4/(4 − 2) + 0.5 (1 − 3)
        tensor([1.])
        >>> server = State(w=torch.tensor([1.0]), average=torch.tensor([1.0]))
        >>> algorithm.server_step(server, Mean(delta=torch.tensor([2.0])), round)
        >>> server.w  # w̄ = 3, so 3 − 0.5 (1 − 3)
        tensor([4.])
    """

    paper = "Varno et al., ECCV 2022, Algorithm 1"
    drift = "local drift corrected in part"
    excludes: ClassVar[Mapping[str, str]] = {
        "server_optimizer": "its server step is itself a momentum, over the averages of the clients' models",
        "local_optimizer": "h_i takes −μ d_i for a gradient, and μ is the scale of changes made by plain SGD steps",
    }

    mu: float = 0.02
    """μ, weight of a round in the client's drift estimate (0.02 in the authors' fedsim)"""
    beta: float = 0.96
    """β, the server's extrapolation, in [0, 1) (0.96 in the authors' fedsim for CIFAR-100)"""
    variant: Literal["paper", "official"] = "paper"
    """official: the authors' fedsim, which multiplies μ by 1 over about the steps of an epoch, when h_i is used"""

    def __post_init__(self) -> None:
        self.require(self.mu >= 0 and 0 <= self.beta < 1, "μ of 0 or more, β in [0, 1)")
        self.require(self.variant in ("paper", "official"), "variant paper or official")

    @property
    def _official(self) -> bool:
        return self.variant == "official"

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """h_i = 0, and t_i as one number; officially E/n_i and E n_i, too."""
        number = torch.zeros_like(w[..., :1])
        own = {"per_sample": number, "seen": number} if self._official else {}
        return {"h": torch.zeros_like(w), "last": number, **own}

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """w̄ = w^0; officially B̄ = 0 and the number of batch sizes that it is the mean of, too."""
        number = torch.zeros_like(w[..., :1])
        return {"average": w, **({"batch": number, "counted": number} if self._official else {})}

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """The model, officially with B̄; w̄ stays on the server."""
        return {"w": server.w, **({"batch": server.batch} if self._official else {})}

    def prepare(self, client: State, server: State, data: LocalData, round: Round) -> None:
        """E/n_i and E n_i, of the official variant."""
        if self._official:
            client.per_sample = torch.full_like(client.per_sample, data.epochs / data.samples)
            client.seen = torch.full_like(client.seen, data.epochs * data.samples)

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """g − h_i; officially g − μ E B̄/n_i h_i."""
        return gradient(w) - (self.mu * client.per_sample * server.batch * client.h if self._official else client.h)

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i; h_i is divided by the number of rounds since the last one."""
        delta = w - server.w
        client.h = client.h / (round.number - client.last) - (delta if self._official else self.mu * delta)
        client.last = torch.full_like(client.last, round.number)
        return {"delta": delta, **({"batch": client.seen / steps} if self._official else {})}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """w̄, then w = w̄ − h; officially B̄, too."""
        if self._official:
            server.counted = server.counted + mean.clients
            server.batch = server.batch + mean.clients / server.counted * (mean.batch - server.batch)
        average = server.w + mean.delta
        server.w = average - self.beta * (server.average - average)
        server.average = average
