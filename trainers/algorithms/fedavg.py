"""Federated averaging."""

from dataclasses import dataclass

from trainers.algorithm import Algorithm, Mean, Round, State


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Federated averaging: local SGD, then the mean of the clients' models.

    Client: w ← w − η g.  Server: w ← w + η_g ‹w_i − w›.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedAvg, Mean, Round, State
        >>> server = State(w=torch.tensor([1.0, 2.0]))
        >>> FedAvg(server_lr=0.5).server_step(server, Mean(delta=torch.tensor([2.0, -4.0])), Round(1, 0.1, 1.0))
        >>> server.w  # w + 0.5 ‹d›
        tensor([2., 0.])
    """

    paper = "McMahan et al., AISTATS 2017, Algorithm 1"

    server_lr: float = 1.0
    """η_g, the server's rate; 1 is the plain mean"""

    def __post_init__(self) -> None:
        self.require(self.server_lr > 0, "a server rate η_g above 0")

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """w ← w + η_g ‹d›."""
        server.w = server.w + self.server_lr * mean.delta
