"""One number of a run, or of several: means with their deviations over seeds or clients, last rounds, runs that failed.

A deviation over seeds is one of a sample, with divisor n − 1, and one over clients is that of all there are, with
divisor n, as runs record it: the two are never mixed, and each says over what it is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from figures.statistics.smoothing import hann
from landscape import FedscapeError
from landscape.several import several
from trainers.runs.records import RecordedRun
from trainers.tables.spread import Spread

NEAR = 0.04
"""How far above chance an accuracy still is near it: Caldarola et al. (ECCV 2022), Table 6, has collapsed runs at
4.60 % where chance is 1 %, and at 10.00 % where it is 10 %."""


def over_clients(run: RecordedRun, metric: str = "client_test_accuracy", round: int | None = None) -> Spread:
    """Mean and deviation over the clients as the run recorded them, of the global model.

    Args:
        run: trained with ``--client-accuracy``.
        metric: ``client_test_accuracy`` or ``client_train_accuracy``.
        round: of which round; ``None``: the last that has it.

    Raises:
        FedscapeError: it was not recorded.
    """
    records = [r for r in run.metrics if r.get(metric) is not None and r.get(f"{metric}_deviation") is not None]
    found = [r for r in records if round is None or r["round"] == round]
    if not found:
        where = "" if round is None else f" in round {round}"
        raise FedscapeError(f"{run.path} has no {metric}{where}: train it with --client-accuracy ROUNDS")
    clients = run.config["settings"].get("clients")
    if not isinstance(clients, int):
        raise FedscapeError(f"{run.path / 'config.json'} does not say how many clients there are")
    return Spread(found[-1][metric], found[-1][f"{metric}_deviation"], clients, "clients")


def last_rounds(
    run: RecordedRun, metric: str = "test_accuracy", *, rounds: int | None = None, share: float | None = None
) -> float:
    """The mean over the evaluated rounds among the last ones (Caldarola et al., ECCV 2022: the last 100 rounds).

    Args:
        run: finished or not: its last recorded rounds count.
        metric: which.
        rounds: how many rounds; 1: the last round.
        share: instead of ``rounds``, that share of the rounds recorded, rounded up: 0.01 where the paper means 100 of
            10,000.

    Raises:
        FedscapeError: neither or both are given, or no round among them was evaluated.
    """
    if (rounds is None) == (share is None):
        raise FedscapeError("say over how many of the last rounds the mean is: give either rounds or a share of them")
    if rounds is None:
        assert share is not None
        if not 0 < share <= 1:
            raise FedscapeError(f"{share} is no share of the rounds: give one above 0 and up to 1, such as 0.01")
        rounds = math.ceil(round(share * run.rounds, 9))  # 0.01 · 300 is a little more than 3
    if rounds < 1:
        raise FedscapeError(f"a mean over the last {rounds} rounds is none: give 1 or more")
    values = [r[metric] for r in run.metrics if r["round"] > run.rounds - rounds and r.get(metric) is not None]
    if not values:
        raise FedscapeError(f"{run.path} has no {metric} in its last {rounds} of {run.rounds} rounds: evaluate them")
    return statistics.fmean(values)


def best(run: RecordedRun, metric: str = "test_accuracy") -> float:
    """The largest recorded value of a metric that is the better, the larger.

    Raises:
        FedscapeError: it was not recorded, or is a loss.
    """
    if "loss" in metric:
        raise FedscapeError(f"the largest {metric} is not the best: give an accuracy")
    values = run.values(metric)
    if not values:
        raise FedscapeError(f"{run.path} has no {metric}")
    return max(values)


def remark(run: RecordedRun, classes: int) -> str | None:
    """Why a run's accuracy is no result: that it diverged, or ends at or near chance; ``None`` if it is one.

    Chance is 1/classes.  Near it is less than :data:`NEAR` above; what is judged is the mean over the last hundredth of
    the rounds (:func:`last_rounds`), and a short run may be there because it has only begun.

    Raises:
        FedscapeError: it has no test accuracy, or there are fewer than two classes.
    """
    if classes < 2:
        raise FedscapeError(f"with {classes} classes there is no chance to be wrong: give 2 or more")
    if run.status == "diverged":
        return run.status_text
    evaluated = [record["round"] for record in run.metrics if record.get("test_accuracy") is not None]
    if not evaluated:
        raise FedscapeError(f"{run.path} has no test accuracy")
    wanted = max(math.ceil(run.rounds / 100), run.rounds - evaluated[-1] + 1)
    accuracy = last_rounds(run, rounds=wanted)
    if accuracy > 1 / classes + NEAR:
        return None
    where = "near" if accuracy > 1 / classes else "at"
    return f"{where} chance: {100 * accuracy:.2f} % of {classes} classes"


Band = Literal["deviation", "range"]
"""What a band over seeds is."""


@dataclass(frozen=True)
class SeedCurve:
    """A metric over the rounds: the mean over seeds, and the edges of a band around it.

    Attributes:
        rounds: those that every run has evaluated, [t].
        mean, low, high: [t] each; ``low`` and ``high`` are ``None`` of a single seed.
        seeds: how many runs.
    """

    rounds: np.ndarray
    mean: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    seeds: int


def curve_over_seeds(
    runs: Sequence[RecordedRun] | RecordedRun,
    metric: str = "test_accuracy",
    *,
    smoothing: int = 1,
    until: int | None = None,
    band: Band = "deviation",
) -> SeedCurve:
    """The mean curve over the runs of several seeds, with a band around it.

    Args:
        runs: of one configuration, one or several.
        metric: which.
        smoothing: length of the Hann window by which each run's curve is smoothed before the mean is taken
            (:func:`figures.statistics.smoothing.hann`), in evaluations; 1: none.
        until: the last round.
        band: one deviation (divisor n − 1) below and above, or the ``range`` from the smallest to the largest.

    Raises:
        FedscapeError: there are no runs, or no round that all of them evaluated.
    """
    runs = several(runs)
    if not runs:
        raise FedscapeError("there is no run to take a curve from: give one or more")
    curves = [metric_curve(run, metric, until) for run in runs]
    common = sorted(set.intersection(*(set(rounds) for rounds, _ in curves)))
    if not common:
        raise FedscapeError(f"the runs have no round in common with a {metric}: {', '.join(str(r.path) for r in runs)}")
    smooth = [dict(zip(rounds, hann(values, smoothing), strict=True)) for rounds, values in curves]
    table = np.array([[of[round] for round in common] for of in smooth])
    mean = table.mean(axis=0)
    if len(runs) == 1:
        return SeedCurve(np.array(common), mean, None, None, 1)
    if band == "range":
        return SeedCurve(np.array(common), mean, table.min(axis=0), table.max(axis=0), len(runs))
    deviation = table.std(axis=0, ddof=1)
    return SeedCurve(np.array(common), mean, mean - deviation, mean + deviation, len(runs))


def metric_curve(run: RecordedRun, metric: str, until: int | None = None) -> tuple[list[int], list[float]]:
    """The rounds in which a metric was recorded, up to and including ``until``, and its values."""
    found = [r for r in run.metrics if r.get(metric) is not None and (until is None or r["round"] <= until)]
    return [r["round"] for r in found], [r[metric] for r in found]
