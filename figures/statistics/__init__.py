"""What the papers' tables and curves are made of, from recorded runs: smoothing, rounds to target, means and
deviations, operation counts, samples by class; nothing is drawn here."""

from figures.statistics.classes import ClassCounts
from figures.statistics.operations import Operations, count_operations
from figures.statistics.smoothing import hann, running_mean
from figures.statistics.spread import (
    SeedCurve,
    best,
    curve_over_seeds,
    last_rounds,
    metric_curve,
    over_clients,
    remark,
)
from figures.statistics.targets import (
    Smoothing,
    ToTarget,
    first_round,
    relative_cost,
    seconds_until,
    speed_up,
    to_target,
)
from trainers.tables.spread import Spread, over_seeds

__all__ = [
    "ClassCounts",
    "Operations",
    "SeedCurve",
    "Smoothing",
    "Spread",
    "ToTarget",
    "best",
    "count_operations",
    "curve_over_seeds",
    "first_round",
    "hann",
    "last_rounds",
    "metric_curve",
    "over_clients",
    "over_seeds",
    "relative_cost",
    "remark",
    "running_mean",
    "seconds_until",
    "speed_up",
    "to_target",
]
