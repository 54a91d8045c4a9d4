"""FedAvg with adaptive sharpness-aware minimisation on the clients."""

from dataclasses import dataclass

from trainers.algorithm import Algorithm
from trainers.parts.ascent import ASAM


@dataclass(frozen=True)
class FedASAM(Algorithm):
    """Local ASAM: SAM in a ball whose axes scale with the weights, so that rescaling them changes nothing.

    Client: w ← w − η g(w + ρ T²g/‖Tg‖), T = |w| + η on weights and scales, 1 on biases.  Server: w ← ‹w_i›.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import FedASAM
        >>> space = ParameterSpace.of(torch.nn.Linear(2, 1, bias=False))
        >>> w = torch.tensor([2.0, 0.0])  # T = (2.5, 0.5), Tg = (5, 0): the climb is 0.5 · 2.5
        >>> FedASAM(rho=0.5, eta=0.5).ascent.gradient(w, lambda w: w, space)
        tensor([3.2500, 0.0000])
    """

    paper = "Caldarola et al., ECCV 2022, Algorithm 1; ASAM of Kwon et al., ICML 2021"

    rho: float = 0.7
    """ρ, radius of the ascent step in the scaled space (0.7 is the paper's for CIFAR-10)"""
    eta: float = 0.2
    """η, added to |w| in the scaling T (0.2 is the paper's for CIFAR-10)"""

    def __post_init__(self) -> None:
        self.require(self.rho >= 0 and self.eta >= 0, "ρ and η of 0 or more")

    @property
    def ascent(self) -> ASAM:
        """The ASAM part."""
        return ASAM(self.rho, self.eta)
