"""Rounds, bytes and seconds until a run reaches a target, and what they are beside a reference."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from figures.statistics.smoothing import hann, running_mean
from figures.statistics.spread import metric_curve
from landscape import FedscapeError
from landscape.several import several
from trainers.runs.records import RecordedRun


@dataclass(frozen=True)
class Smoothing:
    """Of which curve the target is looked for: of the recorded one, or of a smoothed one.

    The maximum so far reaches a target where the recorded curve first does: it needs no kind of its own.

    Args:
        kind: ``none``; ``hann``, a centred window, which looks ahead; ``running``, the mean of the last evaluations.
        length: of the window, in evaluations.

    Raises:
        FedscapeError: another kind.
    """

    kind: Literal["none", "hann", "running"] = "none"
    length: int = 1

    def __post_init__(self) -> None:
        if self.kind not in ("none", "hann", "running"):
            raise FedscapeError(f"unknown smoothing '{self.kind}': give none, hann or running")

    def __call__(self, values: ArrayLike) -> np.ndarray:
        """The smoothed curve, [n]."""
        if self.kind == "hann":
            return hann(values, self.length)
        return running_mean(values, self.length if self.kind == "running" else 1)

    def __str__(self) -> str:
        return {
            "none": "of the recorded accuracies",
            "hann": f"of accuracies smoothed by a Hann window of {self.length} evaluations",
            "running": f"of the mean of the last {self.length} accuracies",
        }[self.kind]


@dataclass(frozen=True)
class ToTarget:
    """What several seeds needed to reach a target.

    Attributes:
        target: the value to reach.
        trained: rounds that each run recorded, [seeds].
        rounds: the first round that reaches it, [seeds]; ``None`` where the run did not.
        gigabytes: traffic in both directions up to and including that round, in 10⁹ bytes, [seeds]; ``None`` where it
            was not reached or not recorded.
        seconds: time up to and including that round, with the evaluations, [seeds]; ``None`` likewise.
    """

    target: float
    trained: tuple[int, ...]
    rounds: tuple[int | None, ...]
    gigabytes: tuple[float | None, ...]
    seconds: tuple[float | None, ...]

    @property
    def mean_rounds(self) -> float | None:
        """The mean over seeds; ``None`` if one did not reach the target: the others would be a choice."""
        return _mean(self.rounds)

    @property
    def mean_gigabytes(self) -> float | None:
        """As :attr:`mean_rounds`."""
        return _mean(self.gigabytes)

    @property
    def mean_seconds(self) -> float | None:
        """As :attr:`mean_rounds`."""
        return _mean(self.seconds)

    def __str__(self) -> str:
        """The mean, and the rounds of every seed: ``250 (240, 260)``; ``not reached in 500`` by all or by some."""
        each = [f">{trained}" if r is None else str(r) for r, trained in zip(self.rounds, self.trained, strict=True)]
        if all(round is None for round in self.rounds):
            return f"not reached in {'/'.join(dict.fromkeys(map(str, self.trained)))}"
        if len(each) == 1:
            return each[0]
        mean = self.mean_rounds
        reached = sum(round is not None for round in self.rounds)
        first = f"reached by {reached} of {len(each)}" if mean is None else f"{mean:.5g}"
        return f"{first} ({', '.join(each)})"


def first_round(rounds: Sequence[int], values: ArrayLike, target: float) -> int | None:
    """The first of the rounds whose value is at least the target; ``None`` if none is.

    Raises:
        FedscapeError: there are not as many rounds as values.

    Example:
        >>> first_round([10, 20, 30], [0.2, 0.5, 0.4], 0.5), first_round([10, 20], [0.2, 0.4], 0.5)
        (20, None)
    """
    curve = np.asarray(values, dtype=np.float64)
    if curve.shape != (len(rounds),):
        raise FedscapeError(f"{len(rounds)} rounds and values of shape {curve.shape}: give one value a round")
    there = np.flatnonzero(curve >= target)
    return int(rounds[there[0]]) if there.size else None


def to_target(
    runs: Sequence[RecordedRun] | RecordedRun,
    target: float,
    *,
    metric: str = "test_accuracy",
    smoothing: Smoothing = Smoothing(),
    until: int | None = None,
) -> ToTarget:
    """Rounds, traffic and time of each run until the target.

    Args:
        runs: of one configuration, a seed each; one or several.
        target: as a share, such as 0.5.
        metric: of which the larger is the better.
        smoothing: of which curve.
        until: rounds after this one do not count.

    Raises:
        FedscapeError: there are no runs, the target is not between 0 and 1, or a run has no such metric.
    """
    runs = several(runs)
    if not runs:
        raise FedscapeError("there is no run that could reach a target: give one or more")
    if not 0 < target <= 1:
        raise FedscapeError(f"the target {target} is no accuracy: give a share above 0 and up to 1, such as 0.8")
    reached: list[int | None] = []
    for run in runs:
        rounds, values = metric_curve(run, metric, until)
        if not rounds:
            raise FedscapeError(f"{run.path} has no {metric}: evaluate it")
        reached.append(first_round(rounds, smoothing(values), target))
    trained = tuple(run.rounds if until is None else min(until, run.rounds) for run in runs)
    pairs = list(zip(runs, reached, strict=True))
    gigabytes = tuple(None if round is None else run.gigabytes(round) for run, round in pairs)
    seconds = tuple(None if round is None else seconds_until(run, round) for run, round in pairs)
    return ToTarget(target, trained, tuple(reached), gigabytes, seconds)


def seconds_until(run: RecordedRun, round: int) -> float | None:
    """Time of all rounds up to and including one, with their evaluations; ``None`` if a round's was not recorded."""
    spent = [record.get("seconds") for record in run.metrics if record["round"] <= round]
    known = [seconds for seconds in spent if seconds is not None]
    return sum(known) if known and len(known) == len(spent) else None


def speed_up(cost: float | None, reference: float | None) -> float | None:
    """How many times the cost fits into the reference's; ``None`` where one of them did not reach the target.

    Raises:
        FedscapeError: a cost is 0 or less.

    Example:
        >>> round(speed_up(194, 723), 2)  # Sun et al., ICML 2023, Table 3
        3.73
    """
    if cost is None or reference is None:
        return None
    if cost <= 0 or reference <= 0:
        raise FedscapeError(f"no speed-up from {reference} to {cost}: give costs above 0")
    return reference / cost


def relative_cost(rounds: float | None, reference: float | None, factor: float = 1.0) -> float | None:
    """Traffic to the target in multiples of the reference's (Sun et al., ICML 2023, Table 3).

    Args:
        rounds: to the target.
        reference: the reference's rounds to the target.
        factor: traffic of a round in multiples of the reference's; there 2 for SCAFFOLD, FedCM, MoFedSAM, FedSMOO.

    Example:
        >>> round(relative_cost(533, 723, 2), 2), relative_cost(None, 723)
        (1.47, None)
    """
    return None if rounds is None or reference is None else rounds / reference * factor


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None
