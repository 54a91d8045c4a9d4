"""FedAvg with Adam on the server."""

from dataclasses import dataclass

from trainers.algorithm import Algorithm
from trainers.parts.server_optimizers import Adam


@dataclass(frozen=True)
class FedAdam(Algorithm):
    """FedAvg whose server takes Adam steps along the mean changes.

    Client: w ← w − η g.
    Server: m ← β1 m + (1 − β1)‹d›; v ← β2 v + (1 − β2)‹d›²; w ← w + η_g m/(√v + τ).
    m_0 = 0, v_0 = τ², no bias correction.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedAdam
        >>> adam = FedAdam(server_lr=1.0, beta1=0.5, beta2=0.625, tau=1.0).server_optimizer
        >>> change, state = adam.step(torch.tensor([3.0]), adam.state(torch.zeros(1)))
        >>> change, state  # m/(√v + τ) with m = 0.5 · 3 and v = 0.625 · 1 + 0.375 · 9
        (tensor([0.5000]), {'m': tensor([1.5000]), 'v': tensor([4.])})
    """

    paper = "Reddi et al., ICLR 2021, Algorithm 2 (FedAdam)"

    server_lr: float = 0.1
    """η_g, the server's rate, tuned for each task by the paper"""
    beta1: float = 0.9
    """β1, decay of the first moment"""
    beta2: float = 0.99
    """β2, decay of the second moment"""
    tau: float = 0.001
    """τ, the degree of adaptivity: small adapts each coordinate, large only scales"""

    def __post_init__(self) -> None:
        self.server_optimizer  # noqa: B018 - its class checks the values

    @property
    def server_optimizer(self) -> Adam:
        """The Adam part."""
        return Adam(self.beta1, self.beta2, self.tau, self.server_lr)
