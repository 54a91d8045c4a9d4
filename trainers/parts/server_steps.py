"""Server optimisers that look ahead, or ask the clients for a number beside their change."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.parts.local_optimizers import LocalMomentum, LocalOptimizer
from trainers.parts.server_optimizers import LocalSteps, ServerOptimizer, require
from trainers.parts.state import State


@dataclass(frozen=True)
class Nesterov(ServerOptimizer):
    """m ← βm + ‹d›, the change, from clients that began at w^t + βm: momentum that looks ahead (FedACG's server).

    d_i = w_i − (w^t + βm), so that w^t + m⁺ is ‹w_i›.  w^t + βm takes the place of w^t in all that clients do.

    Example:
        >>> import torch
        >>> from trainers.parts import Nesterov
        >>> nesterov, w = Nesterov(beta=0.5), torch.tensor([1.0])
        >>> step, state = nesterov.step(torch.tensor([2.0]), nesterov.state(w))
        >>> nesterov.ahead(w + step, state)  # 1 + 2, and 0.5 · 2 beyond
        tensor([4.])
    """

    beta: float = 0.85
    """β, the server's momentum"""

    def __post_init__(self) -> None:
        require(0 <= self.beta < 1, self, "β from 0 to below 1")

    def state(self, w: Tensor) -> dict[str, Tensor]:
        """m = 0."""
        return {"m": torch.zeros_like(w)}

    def ahead(self, w: Tensor, state: dict[str, Tensor]) -> Tensor:
        """w^t + βm."""
        return w + self.beta * state["m"]

    def step(self, delta: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """m⁺ = βm + ‹d›."""
        m = self.beta * state["m"] + delta
        return m, {"m": m}


@dataclass(frozen=True)
class Extrapolation(ServerOptimizer):
    """η_g ‹d› with η_g = max(1, ½‹‖d_i‖²› / (‖‹d›‖² + Sε)), S sampled clients: FedExP's step.

    Far beyond the mean where the clients' changes point apart, the mean itself where they agree.  ‖d_i‖² goes up beside
    d_i, one number.  ε falls by a factor after each round (the authors' code: by the square of its rate's, 0.998², and
    once before the first round).

    Example:
        >>> import torch
        >>> from trainers import State
        >>> from trainers.parts import Extrapolation
        >>> extrapolation, w = Extrapolation(eps=0.5), torch.zeros(2)
        >>> mean = State(delta=torch.tensor([1.0, 0.0]), square=torch.tensor([12.0]), clients=2)
        >>> extrapolation.change(mean, extrapolation.state(w))[0]  # ½ 12 / (1 + 2 · 0.5) times the mean
        tensor([3., 0.])
    """

    eps: float = 0.001
    """ε, added to ‖‹d›‖² once for each sampled client, so that changes that cancel make no endless step"""
    eps_decay: float = 1.0
    """factor on ε after each round (the authors' code: the square of --lr-decay)"""

    def __post_init__(self) -> None:
        require(self.eps >= 0, self, "ε of 0 or more")
        require(0 < self.eps_decay <= 1, self, "a decay of ε above 0 and at most 1")

    def state(self, w: Tensor) -> dict[str, Tensor]:
        """ε, one number."""
        return {"eps": torch.full_like(w[:1], self.eps)}

    def sent(self, upload: dict[str, Tensor], local: LocalSteps) -> dict[str, Tensor]:
        """d_i and ‖d_i‖²."""
        return {**upload, "square": upload["delta"].square().sum(dim=-1, keepdim=True)}

    def change(self, mean: State, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """η_g ‹d›; ‹d› itself where no client has moved."""
        below = mean.delta.square().sum() + mean.clients * state["eps"]
        rate = torch.where(below > 0, 0.5 * mean.square / below, 1.0).clamp_min(1.0)
        return rate * mean.delta, {"eps": self.eps_decay * state["eps"]}


@dataclass(frozen=True)
class Normalised(ServerOptimizer):
    """‹a›‹d_i/a_i›, a_i how many gradients went into d_i: who takes more steps has no more say (FedNova's server).

    a_i = K_i with plain steps; with momentum ρ the sum over steps of l ← ρl + 1; with a proximal term of weight μ
    a_i ← (1 − ημ)a_i + 1 each step, and ‹K› in the place of ‹a› (the authors' code).  In general it is what the local
    steps make of gradients of 1.  The result is the change of a server momentum if there is one: v ← βv + ‹a›‹d/a›.

    Example:
        >>> import torch
        >>> from trainers import State
        >>> from trainers.parts import Normalised
        >>> from trainers.parts.server_optimizers import LocalSteps
        >>> normalised = Normalised()
        >>> normalised.sent({"delta": torch.tensor([6.0])}, LocalSteps(0.1, [1.0, 1.0, 1.0]))  # 6/3, and 3
        {'delta': tensor([2.]), 'effective': tensor([3.])}
        >>> mean = State(delta=torch.tensor([2.0]), effective=torch.tensor([4.0]))
        >>> normalised.change(mean, normalised.state(torch.zeros(1)))[0]
        tensor([8.])
    """

    beta: float = 0.0
    """β, the server's momentum; 0 is none (the authors' code keeps it in units of the rate: the same while --lr is)"""

    def __post_init__(self) -> None:
        require(0 <= self.beta < 1, self, "β from 0 to below 1")

    def state(self, w: Tensor) -> dict[str, Tensor]:
        """v = 0 if there is a momentum."""
        return {"v": torch.zeros_like(w)} if self.beta else {}

    def sent(self, upload: dict[str, Tensor], local: LocalSteps) -> dict[str, Tensor]:
        """d_i/a_i, and a_i, or K_i with a proximal term."""
        delta, a = upload["delta"], gradients_in(local)
        effective = len(local.shares) if local.proximal else a
        return {**upload, "delta": delta / a, "effective": torch.full_like(delta[..., :1], effective)}

    def change(self, mean: State, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """‹a›‹d/a›, through the momentum."""
        change = mean.effective * mean.delta
        if not self.beta:
            return change, state
        v = self.beta * state["v"] + change
        return v, {"v": v}

    def refusal(self, local: LocalOptimizer) -> str:
        """Of what is not the same sum of gradients each round."""
        if isinstance(local, LocalMomentum) and local.state == "fresh":
            return ""
        return "a_i counts the gradients in d_i, a sum of this round's alone: leave it out, or give fresh momentum"


def gradients_in(local: LocalSteps) -> float:
    """a_i: how far the local steps go, in units of −η, where every gradient is 1.

    Example:
        >>> from trainers import LocalMomentum
        >>> from trainers.parts.server_optimizers import LocalSteps
        >>> from trainers.parts.server_steps import gradients_in
        >>> gradients_in(LocalSteps(0.5, [1.0] * 3, LocalMomentum(0.5)))  # 1 + 1.5 + 1.75
        4.25
        >>> gradients_in(LocalSteps(0.5, [1.0] * 3, proximal=1.0))  # 0.5 (0.5 · 1 + 1) + 1
        1.75
    """
    if local.optimizer is None and not local.proximal:
        return float(sum(local.shares))
    x = torch.zeros(1, dtype=torch.float64)  # w − w^t, in units of η
    memory = {} if local.optimizer is None else local.optimizer.initial(x)
    for share in local.shares:
        direction = 1 + local.lr * local.proximal * x
        if local.optimizer is None:
            x = x - share * direction
        else:
            x, memory = local.optimizer.step(x, direction, memory, share, 0.0)
    return -x.item()
