"""The start part: where a client's local steps begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from landscape.errors import FedscapeError
from trainers.parts.state import State

Averaged = Literal["changes", "models"]
"""What the server takes the mean of, where clients begin at points of their own."""


@dataclass(frozen=True)
class Relaxed:
    """a_i = w^t + β(w^t − w_i°), w_i° the point where the client ended the last time (Sun et al., NeurIPS 2023).

    a_i takes the place of w^t in the algorithm's local work: in its proximal and dual terms, and in d_i = w_i − a_i.
    A client that never took part has w_i° = w^0, and begins at w^t + β(w^t − w^0).
    The server adds the mean change ‹d_i› to w^t, as the authors' FL-Simulator does in FedAvg, FedProx and SCAFFOLD;
    with ``average="models"`` its model is made of ‹w_i› = w^t + ‹a_i − w^t + d_i›, as there in FedDyn, FedSpeed and
    FedSMOO.  Duals and control variates are made of d_i either way.  The client then sends a_i − w^t, too.

    Example:
        >>> import torch
        >>> from trainers import State
        >>> from trainers.parts import Relaxed
        >>> client, received = State(end=torch.tensor([1.0])), State(w=torch.tensor([3.0]))
        >>> Relaxed(beta=0.5).begun(client, received).w  # 3 + 0.5 (3 − 1)
        tensor([4.])
    """

    beta: float = 0.1
    """β, how far beyond w^t a client begins, away from where it ended the last time; 0 begins at w^t"""
    average: Averaged = "changes"
    """what the server adds to w^t: changes, the mean of w_i − a_i, or models, that of w_i − w^t, for which a second
    vector goes up (the authors' code: models with FedDyn, FedSpeed and FedSMOO, else changes)"""

    def __post_init__(self) -> None:
        if not self.beta >= 0:
            raise FedscapeError(f"Relaxed needs β of 0 or more, not beta={self.beta}")
        if self.average not in get_args(Averaged):
            raise FedscapeError(f"Relaxed needs an average of changes or models, not average={self.average}")

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """w_i° = w^0."""
        return {"end": w}

    def begun(self, client: State, server: State) -> State:
        """What the client received, with a_i in the place of w^t."""
        return State.of({**server.tensors(), "w": server.w + self.beta * (server.w - client.end)})

    def sent(self, upload: dict[str, Tensor], begun: State, server: State) -> dict[str, Tensor]:
        """The upload, with a_i − w^t if models are averaged."""
        return upload if self.average == "changes" else {**upload, "shift": begun.w - server.w}

    def averaged(self, mean: State) -> None:
        """Make ``mean.delta`` the mean of what is averaged."""
        if self.average == "models":
            mean.delta = mean.delta + mean.shift

    def remember(self, client: State, w: Tensor) -> None:
        """w_i° = w_i, the client's last point."""
        client.end = w
