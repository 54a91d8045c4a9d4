"""What the papers' tables and curves are made of, from recorded runs: smoothing, rounds to target, means and
deviations, operation counts, samples by class; nothing is drawn here."""

from figures.statistics.classes import ClassCounts
from figures.statistics.operations import Operations, count_operations
from figures.statistics.smoothing import hann, running_mean
from figures.statistics.spread import SeedCurve, Spread, curve_over_seeds, over_clients, over_seeds, remark
from figures.statistics.targets import Smoothing, ToTarget, first_round, relative_cost, speed_up, to_target

__all__ = [
    "ClassCounts",
    "Operations",
    "SeedCurve",
    "Smoothing",
    "Spread",
    "ToTarget",
    "count_operations",
    "curve_over_seeds",
    "first_round",
    "hann",
    "over_clients",
    "over_seeds",
    "relative_cost",
    "remark",
    "running_mean",
    "speed_up",
    "to_target",
]
