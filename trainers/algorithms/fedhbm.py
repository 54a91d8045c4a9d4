"""Heavy-ball momentum towards where each client ended the last time."""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.algorithm import Round, State
from trainers.algorithms.ghbm import HeavyBall


@dataclass(frozen=True)
class FedHBM(HeavyBall):
    """As LocalGHBM, but from the client's own last end, anew at every step.

    Client: w ← w − η (g + β/(ηK) m̃), m̃ = p (w_i° − w) at the step's w, w_i° where it ended the last time, p = |S|/N;
    0 for who never took part.  Then w_i° ← w_i.  The step goes *away* from w_i°: what has been done since is done on.
    Server: w ← ‹w_i›.
    The authors' class of a server for it cannot be built, so their clients were read with FedAvg's server; their
    newcomers may begin from a shared or random w_i° in place of none (not here).
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedHBM, Round, State
        >>> algorithm, round = FedHBM(beta=0.5), Round(9, lr=0.25, participation=0.25, steps=4)
        >>> client, w = State(own=torch.tensor([8.0]), came=torch.ones(1)), torch.tensor([4.0])
        >>> algorithm.direction(w, lambda w: w, client, State(w=w + 1), round)  # 4 + 0.5/(0.25 · 4) · 0.25 (8 − 4)
        tensor([4.5000])
    """

    beta: float = 1.0
    """β, share of m̃ that a round's local steps add; 0 is FedAvg"""

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """w_i°, and whether there was one (0)."""
        return {"own": torch.zeros_like(w), "came": w.new_zeros(1)}

    def displacement(self, w: Tensor, client: State, server: State, round: Round) -> Tensor:
        """p (w_i° − w)."""
        way: Tensor = round.participation * client.came * (client.own - w)
        return way

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i; w_i° is now w_i."""
        client.own, client.came = w, torch.ones_like(client.came)
        return {"delta": w - server.w}
