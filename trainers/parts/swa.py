"""Stochastic weight averaging on the server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import tyro
from torch import Tensor

from landscape.errors import FedscapeError


@dataclass(frozen=True)
class SWA:
    """The mean of server models captured under a cyclic local rate (Caldarola et al., ECCV 2022, Algorithm 1).

    From t > start·T on (t = 0 is the first of T rounds) the local rate falls in each cycle of c rounds, eq. 7:
    η(t) = (1 − τ) γ1 + τ γ2 with τ = ((t mod c) + 1)/c, γ1 the rate of the round without SWA.  At the end of
    each such cycle, τ = 1 and the lowest rate, the new server model is captured: θ_SWA ← (n θ_SWA + θ)/(n + 1), n the
    number of models captured before.  The paper's n = t/c and its capture at mod(t, c) = 0, one round after the
    lowest rate, are misprints.
    Variant official, the authors' code: with t_0 = ⌊start·T⌋ the rate falls from t ≥ t_0 on, one round earlier (a cycle
    of one round keeps its rate γ1), and captured is where t > t_0 and mod(t − t_0, c) = 0, which is after the *highest*
    rate of a cycle where c divides t_0.  Their averaged model is the server's of t_0 until the first capture.

    Example:
        >>> from trainers import SWA
        >>> swa = SWA(start=0.5, cycle=2, lr=0.02)
        >>> [round(swa.rate(number, rounds=8, lr=0.1), 2) for number in range(1, 9)]
        [0.1, 0.1, 0.1, 0.1, 0.1, 0.02, 0.06, 0.02]
        >>> [number for number in range(1, 9) if swa.captures(number, rounds=8)]
        [6, 8]
        >>> official = SWA(start=0.5, cycle=2, lr=0.02, variant="official")
        >>> [round(official.rate(number, rounds=8, lr=0.1), 2) for number in range(1, 9)]
        [0.1, 0.1, 0.1, 0.1, 0.06, 0.02, 0.06, 0.02]
        >>> [number for number in range(1, 9) if official.captures(number, rounds=8)]
        [7]
    """

    start: Annotated[float, tyro.conf.arg(metavar="SHARE")] = 0.75
    """share of the rounds before averaging begins"""
    cycle: Annotated[int, tyro.conf.arg(metavar="ROUNDS")] = 10
    """c, rounds of a cycle of the rate"""
    lr: float = 1e-4
    """γ2, the lowest local rate of a cycle"""
    variant: Literal["paper", "official"] = "paper"
    """official: the authors' code, which begins one round earlier and captures after the highest rate of a cycle"""

    def __post_init__(self) -> None:
        if not 0 <= self.start < 1 or self.cycle < 1 or not self.lr > 0:
            raise FedscapeError(
                f"SWA needs a start from 0 to below 1, a cycle of at least 1 round and a rate above 0, not "
                f"start={self.start}, cycle={self.cycle}, lr={self.lr}"
            )
        if self.variant not in ("paper", "official"):
            raise FedscapeError(f"SWA needs a variant of paper or official, not {self.variant}")

    def rate(self, number: int, rounds: int, lr: float) -> float:
        """The local rate of round ``number`` (1 for the first) of ``rounds``; ``lr`` is that without SWA."""
        official = self.variant == "official"
        begun = number - 1 >= self._first(rounds) if official else self._averages(number, rounds)
        if not begun or (official and self.cycle == 1):
            return lr
        tau = ((number - 1) % self.cycle + 1) / self.cycle
        return (1 - tau) * lr + tau * self.lr

    def captures(self, number: int, rounds: int) -> bool:
        """Whether the server model after this round goes into the mean."""
        if self.variant == "official":
            past = number - 1 - self._first(rounds)
            return past > 0 and past % self.cycle == 0
        return self._averages(number, rounds) and number % self.cycle == 0

    def _first(self, rounds: int) -> int:
        return math.floor(round(self.start * rounds, 6))

    def _averages(self, number: int, rounds: int) -> bool:
        # Rounded, as 0.29 · 100 is 28.999999999999996.
        return number - 1 > round(self.start * rounds, 6)

    def check(self, rounds: int) -> None:
        """Check that at least one model of a run is captured.

        Raises:
            FedscapeError: no cycle ends between the start of averaging and the last round.
        """
        if rounds and not any(self.captures(number, rounds) for number in range(1, rounds + 1)):
            raise FedscapeError(
                f"no cycle of {self.cycle} rounds ends after {self.start:.0%} of {rounds} rounds, so SWA would average "
                "nothing: give a shorter --swa-cycle, or more --rounds"
            )


class RunningMean:
    """The plain mean of the vectors added so far, [d].

    Example:
        >>> import torch
        >>> from trainers.parts.swa import RunningMean
        >>> mean = RunningMean()
        >>> for w in ([1.0, 2.0], [3.0, 6.0]):
        ...     mean.add(torch.tensor(w))
        >>> mean.count, mean.value
        (2, tensor([2., 4.]))
    """

    def __init__(self) -> None:
        self.count = 0
        self.value: Tensor | None = None

    def add(self, w: Tensor) -> None:
        """Add one vector."""
        self.count += 1
        self.value = w.clone() if self.value is None else self.value + (w - self.value) / self.count

    def export(self) -> dict[str, Tensor | int]:
        """The state, for :meth:`restore`."""
        value = torch.zeros(0) if self.value is None else self.value.cpu()
        return {"count": self.count, "value": value}

    def restore(self, state: dict[str, Tensor | int], device: torch.device) -> None:
        """Continue from a state of :meth:`export`."""
        self.count, value = int(state["count"]), state["value"]
        assert isinstance(value, Tensor)
        self.value = value.to(device) if self.count else None
