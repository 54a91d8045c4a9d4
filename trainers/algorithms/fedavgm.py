"""FedAvg with momentum on the server."""

from dataclasses import dataclass

from trainers.algorithm import Algorithm
from trainers.parts.server_optimizers import Momentum


@dataclass(frozen=True)
class FedAvgM(Algorithm):
    """FedAvg whose server accumulates the mean changes.

    Client: w ← w − η g.  Server: v ← βv + ‹d›; w ← w + η_g v.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedAvgM
        >>> momentum = FedAvgM(server_lr=0.5, beta=0.5).server_optimizer
        >>> first, state = momentum.step(torch.tensor([2.0]), momentum.state(torch.zeros(1)))
        >>> second, state = momentum.step(torch.tensor([2.0]), state)
        >>> first, second  # 0.5 · 2, then 0.5 (0.5 · 2 + 2)
        (tensor([1.]), tensor([1.5000]))
    """

    paper = "Hsu et al., 2019 (arXiv 1909.06335), FedAvgM"

    server_lr: float = 1.0
    """η_g, the server's rate; 1 is Hsu et al.'s"""
    beta: float = 0.9
    """β, the server's momentum; 0 is FedAvg"""

    def __post_init__(self) -> None:
        self.server_optimizer  # noqa: B018 - its class checks the values

    @property
    def server_optimizer(self) -> Momentum:
        """The momentum part."""
        return Momentum(self.beta, self.server_lr)
