"""FedAvg with a proximal term."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from trainers.algorithm import Algorithm, Gradient, Round, State


@dataclass(frozen=True)
class FedProx(Algorithm):
    """Local SGD on the loss + (μ/2)‖w − w^t‖², which holds clients near the server's model.

    Client: w ← w − η (g + μ(w − w^t)).  Server: w ← ‹w_i›.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedProx, Round, State
        >>> w, received = torch.tensor([3.0]), State(w=torch.tensor([1.0]))
        >>> FedProx(mu=0.5).direction(w, lambda w: 2 * w, State(), received, Round(1, 0.1, 1.0))  # 6 + 0.5 (3 − 1)
        tensor([7.])
    """

    paper = "Li et al., MLSys 2020, Algorithm 2"

    mu: float = 0.01
    """μ, weight of the proximal term; 0 is FedAvg"""
    proximal: Literal["full", "half"] = "full"
    """half: the direction has μ/2 in the place of μ, as in fedsim"""

    def __post_init__(self) -> None:
        self.require(self.mu >= 0, "μ of 0 or more")
        self.require(self.proximal in ("full", "half"), "a proximal term full or half")

    @property
    def proximal_weight(self) -> float:
        """μ, or μ/2."""
        return self.mu if self.proximal == "full" else self.mu / 2

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """g + μ(w − w^t)."""
        return gradient(w) + self.proximal_weight * (w - server.w)
