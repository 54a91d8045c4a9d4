"""FedAvg with surrogate-gap guided sharpness-aware minimisation on the clients."""

from dataclasses import dataclass

from trainers.algorithm import Algorithm
from trainers.parts.ascent import GSAM


@dataclass(frozen=True)
class FedGSAM(Algorithm):
    """Local GSAM: SAM that also climbs, across its own gradient, to close the gap between the worst loss and the loss.

    Client: w ← w − η (g_p − α g_⊥), g_p = g(w + ρ g/‖g‖), g_⊥ the part of g orthogonal to g_p.  Server: w ← ‹w_i›.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import FedGSAM
        >>> space, slopes = ParameterSpace.of(torch.nn.Linear(2, 1, bias=False)), torch.tensor([1.0, 2.0])
        >>> w = torch.tensor([3.0, 2.0])  # g = (3, 4), so SAM's gradient is that at w + 2.5 (0.6, 0.8): (4.5, 8)
        >>> FedGSAM(rho=2.5, alpha=1.0).ascent.gradient(w, lambda w: slopes * w, space)  # less g's part across it
        tensor([3.9303, 8.3205])
    """

    paper = "GSAM of Zhuang et al., ICLR 2022, Algorithm 1, as FedSAM's local optimiser (Qu et al., ICML 2022, Fig. 1)"

    rho: float = 0.05
    """ρ, radius of the ascent step"""
    alpha: float = 0.2
    """α, weight of the ascent across SAM's gradient (0.2 is GSAM's authors' for CIFAR-10); 0 is FedSAM"""

    def __post_init__(self) -> None:
        self.require(self.rho >= 0, "a radius ρ of 0 or more")
        self.require(self.alpha >= 0, "α of 0 or more")

    @property
    def ascent(self) -> GSAM:
        """The GSAM part."""
        return GSAM(self.rho, self.alpha)
