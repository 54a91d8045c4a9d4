"""The local rate over the rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from landscape.errors import FedscapeError

ScheduleName = Literal["constant", "exponential", "cosine", "step"]
"""Shape of the local rate over the rounds."""


@dataclass(frozen=True)
class Schedule:
    """η_r, the local rate of round r = 1, …, R, from the rate η.

    Warm-up of W rounds: η_r = η r/(W + 1) for r ≤ W.  Then, with t = r − 1 − W and T = R − W,

    - constant: η;
    - exponential: η γ^t;
    - step: η γ^⌊t/s⌋;
    - cosine: η_min + (η − η_min)(1 + cos(π t/T))/2 (Loshchilov & Hutter, ICLR 2017, eq. 5, without restarts).

    These are PyTorch's LinearLR (from 1/(W + 1)), ExponentialLR, StepLR and CosineAnnealingLR; as there, the cosine
    would reach η_min one round after the last, so that no round has the rate 0.

    Attributes:
        name: shape after the warm-up.
        decay: γ, for exponential and step.
        every: s, rounds of a step.
        lowest: η_min of the cosine.
        warmup: W.

    Raises:
        FedscapeError: a number makes no sense, or has no effect on this shape.

    Example:
        >>> from trainers.parts.schedules import Schedule
        >>> schedule = Schedule("cosine", warmup=1)
        >>> [round(schedule.rate(number, rounds=5, lr=0.2), 3) for number in range(1, 6)]
        [0.1, 0.2, 0.171, 0.1, 0.029]
    """

    name: ScheduleName = "exponential"
    decay: float = 1.0
    every: int | None = None
    lowest: float = 0.0
    warmup: int = 0

    def __post_init__(self) -> None:
        def require(condition: bool, rule: str) -> None:
            if not condition:
                raise FedscapeError(rule)

        shape, known = f"--lr-schedule {self.name}", get_args(ScheduleName)
        require(self.name in known, f"{shape} is unknown: give one of {', '.join(known)}")
        require(self.decay > 0, f"--lr-decay is {self.decay}: it must be above 0 (1 keeps the rate)")
        require(
            self.decay == 1 or self.name in ("exponential", "step"),
            f"--lr-decay has no effect with {shape}: leave it out, or give --lr-schedule exponential or step",
        )
        require(
            self.name != "step" or (self.every is not None and self.every >= 1),
            f"{shape} needs --lr-step, the rounds between two drops of the rate, of at least 1",
        )
        require(
            self.name != "step" or self.decay != 1,
            f"{shape} needs --lr-decay, the factor of a drop, and 1 is none",
        )
        require(
            self.every is None or self.name == "step", "--lr-step is an option of --lr-schedule step: give that too"
        )
        require(self.lowest >= 0, f"--lr-min is {self.lowest}: give 0 or more")
        require(
            not self.lowest or self.name == "cosine", "--lr-min is an option of --lr-schedule cosine: give that too"
        )
        require(self.warmup >= 0, f"--lr-warmup is {self.warmup}: give 0 (none) or more")

    @property
    def needs_rounds(self) -> bool:
        """Whether a round's rate depends on how many rounds there are."""
        return self.name == "cosine"

    def check(self, rounds: int, lr: float) -> None:
        """Check that the schedule fits the run.

        Raises:
            FedscapeError: the cosine would not fall, or would begin after the last round.
        """
        if self.name == "cosine" and self.lowest >= lr:
            raise FedscapeError(f"--lr-min is {self.lowest}: give less than --lr, {lr}")
        if self.needs_rounds and 0 < rounds <= self.warmup:
            raise FedscapeError(
                f"--lr-warmup is {self.warmup}: the cosine needs rounds after it, and --rounds is {rounds}"
            )

    def rate(self, number: int, rounds: int, lr: float) -> float:
        """The rate of round ``number`` (1 for the first) of ``rounds``; ``lr`` is η."""
        if number <= self.warmup:
            return lr * number / (self.warmup + 1)
        past = number - 1 - self.warmup
        if self.name == "cosine":
            share = (1 + math.cos(math.pi * past / (rounds - self.warmup))) / 2
            return self.lowest + (lr - self.lowest) * share
        return lr * self.decay ** (past if self.every is None else past // self.every)
