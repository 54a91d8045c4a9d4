"""Heavy-ball momentum that each client makes of the models it received."""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.algorithm import Round, State
from trainers.algorithms.ghbm import HeavyBall


@dataclass(frozen=True)
class LocalGHBM(HeavyBall):
    """GHBM without traffic: the server's way since a client last took part, p = |S|/N of it.

    Client: w ← w − η (g + β/(ηK) m̃), m̃ = p (w^{t_i} − w^t), w^{t_i} the model it received the last time; 0 for who
    never took part.  Then w^{t_i} ← w^t.  A client comes about every 1/p rounds, so m̃ is about the way of one.
    Server: w ← ‹w_i›.
    The authors' code has p as a constant of the run; here it is the round's, which with exact sampling is the same.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import LocalGHBM, Round, State
        >>> algorithm, round = LocalGHBM(beta=0.5), Round(9, lr=0.25, participation=0.25, steps=4)
        >>> client, received = State(last=torch.tensor([8.0]), came=torch.ones(1)), State(w=torch.tensor([4.0]))
        >>> algorithm.direction(received.w, lambda w: w, client, received, round)  # 4 + 0.5/(0.25 · 4) · 0.25 (8 − 4)
        tensor([4.5000])
    """

    beta: float = 0.9
    """β, share of m̃ that a round's local steps add; 0 is FedAvg"""

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """w^{t_i}, and whether there was one (0)."""
        return {"last": torch.zeros_like(w), "came": w.new_zeros(1)}

    def displacement(self, w: Tensor, client: State, server: State, round: Round) -> Tensor:
        """p (w^{t_i} − w^t), the same at all steps."""
        way: Tensor = round.participation * client.came * (client.last - server.w)
        return way

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i; w^{t_i} is now w^t."""
        client.last, client.came = server.w.expand_as(w), torch.ones_like(client.came)
        return {"delta": w - server.w}
