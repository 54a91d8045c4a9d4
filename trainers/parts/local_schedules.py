"""The local-schedule part: the local rate over the steps of a round."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from landscape.errors import FedscapeError


@dataclass(frozen=True)
class Linear:
    """η_k = η(1 − k/K + ρ k/K), step k = 0 … K−1 of the client's K: from η towards ρη (FedSWA's rate).

    The whole step has this rate, weight decay too.  Where an algorithm reads a mean direction off a client's change, as
    SCAFFOLD does, it divides by Σ_k η_k in the place of Kη.

    Example:
        >>> from trainers.parts.local_schedules import Linear
        >>> linear = Linear(end=0.5)
        >>> [linear.share(step, 4) for step in range(4)], linear.mean(4)  # half is reached after the last
        ([1.0, 0.875, 0.75, 0.625], 0.8125)
    """

    end: float = 0.1
    """ρ, the share of η that the rate of a round's steps falls to in a straight line; 1 keeps it"""

    def __post_init__(self) -> None:
        if not self.end >= 0:
            raise FedscapeError(f"Linear needs an end ρ of 0 or more, not end={self.end}")

    def share(self, step: int, steps: int | Tensor) -> float | Tensor:
        """η_k/η of step ``step`` of ``steps``; a column [S, 1] where ``steps`` is one."""
        return 1 + (self.end - 1) * step / steps

    def mean(self, steps: int) -> float:
        """(1/K) Σ_k η_k/η."""
        return 1 + (self.end - 1) * (steps - 1) / (2 * steps)
