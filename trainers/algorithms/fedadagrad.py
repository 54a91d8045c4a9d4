"""FedAvg with Adagrad on the server."""

from dataclasses import dataclass

from trainers.algorithm import Algorithm
from trainers.parts.server_optimizers import Adagrad


@dataclass(frozen=True)
class FedAdagrad(Algorithm):
    """FedAvg whose server takes Adagrad steps along the mean changes.

    Client: w ← w − η g.
    Server: m ← β1 m + (1 − β1)‹d›; v ← v + ‹d›²; w ← w + η_g m/(√v + τ).
    m_0 = 0, v_0 = τ², no bias correction.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedAdagrad
        >>> adagrad = FedAdagrad(server_lr=1.0, tau=3.0).server_optimizer
        >>> change, state = adagrad.step(torch.tensor([4.0]), adagrad.state(torch.zeros(1)))
        >>> change, state  # m/(√v + τ) with m = 4 and v = 3² + 4²
        (tensor([0.5000]), {'m': tensor([4.]), 'v': tensor([25.])})
    """

    paper = "Reddi et al., ICLR 2021, Algorithm 2 (FedAdagrad)"

    server_lr: float = 0.1
    """η_g, the server's rate, tuned for each task by the paper"""
    beta1: float = 0.0
    """β1, decay of the first moment (0 is the paper's: no momentum)"""
    tau: float = 0.001
    """τ, the degree of adaptivity: small adapts each coordinate, large only scales"""

    def __post_init__(self) -> None:
        self.server_optimizer  # noqa: B018 - its class checks the values

    @property
    def server_optimizer(self) -> Adagrad:
        """The Adagrad part."""
        return Adagrad(self.beta1, self.tau, self.server_lr)
