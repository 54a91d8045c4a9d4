"""What server and clients keep and exchange, and the numbers of a round, as algorithms and parts see them."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from torch import Tensor


class State(SimpleNamespace):
    """Named tensors: the state of the server or of a client, or a message between them.

    Example:
        >>> import torch
        >>> from trainers import State
        >>> state = State(w=torch.zeros(3), c=torch.ones(3))
        >>> state.c, state.nbytes()
        (tensor([1., 1., 1.]), 24)
    """

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> State:
        """A state with these tensors (not copied)."""
        return cls(**tensors)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name (not copied)."""
        return dict(vars(self))

    def nbytes(self) -> int:
        """Size of the tensors in bytes, as counted for traffic."""
        return sum(tensor.nbytes for tensor in vars(self).values())


@dataclass(frozen=True)
class Round:
    """The numbers of one communication round, known to server and clients.

    Attributes:
        number: 1 for the first.
        lr: the local rate η of this round; in ``upload`` the mean over the client's steps, K times which is the sum
            of their rates.
        participation: p = |S|/N, sampled clients over all clients.
        step: in a local step, its number k = 0 … K−1; 0 before and after the local steps.
        steps: on a client, the number K of local steps that it will take in the round, or those of several clients in a
            column [S, 1]; 0 on the server.
        share: in a local step, its rate η_k over η, or those of several clients in a column [S, 1].
        dual_steps: K by which changes are divided (``--dual-steps``); 0: the client's own.
        dual_lr: η by which they are (``--dual-lr``), in ``upload`` scaled as ``lr`` is; ``None``: that.
        norm_eps: added to the norms that perturbations are divided by (``--norm-eps``).

    Example:
        >>> from trainers import Round
        >>> Round(3, lr=0.25, participation=1.0).path(4), Round(3, 0.25, 1.0, dual_steps=10, dual_lr=0.5).path(4)
        (1.0, 5.0)
    """

    number: int
    lr: float
    participation: float
    step: int = 0
    steps: int | Tensor = 0
    share: float | Tensor = 1.0
    dual_steps: float = 0.0
    dual_lr: float | None = None
    norm_eps: float = 0.0

    def path(self, steps: float) -> float:
        """Kη, by which a change made in K = ``steps`` local steps is divided to be a mean direction.

        In ``upload`` η is the mean over the client's steps: Kη is the sum of their rates.
        """
        return (self.dual_steps or steps) * (self.lr if self.dual_lr is None else self.dual_lr)
