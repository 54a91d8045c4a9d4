"""FedAvg with sharpness-aware minimisation on the clients."""

from dataclasses import dataclass

from trainers.algorithm import Algorithm
from trainers.parts.ascent import SAM


@dataclass(frozen=True)
class FedSAM(Algorithm):
    """Local SAM: each step descends along the gradient at the worst point within a ball of radius ρ.

    Client: w ← w − η g(w + ρ g(w)/‖g(w)‖).  Server: w ← ‹w_i›.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import FedSAM
        >>> space = ParameterSpace.of(torch.nn.Linear(2, 1, bias=False))
        >>> FedSAM(rho=0.5).ascent.gradient(torch.tensor([3.0, 4.0]), lambda w: w, space)  # (3, 4) + 0.5 (3, 4)/5
        tensor([3.3000, 4.4000])
    """

    paper = "Qu et al., ICML 2022, Algorithm 1 and eq. 4"

    rho: float = 0.05
    """ρ, radius of the ascent step (the paper's: 0.2 EMNIST, 0.5 CIFAR-10, 0.6 CIFAR-100; small nets want less)"""

    def __post_init__(self) -> None:
        self.require(self.rho >= 0, "a radius ρ of 0 or more")

    @property
    def ascent(self) -> SAM:
        """The SAM part."""
        return SAM(self.rho)
