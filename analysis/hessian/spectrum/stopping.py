"""When eigenvalues are near enough: error bounds of Ritz values, and the rule that goes by them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from analysis.hessian.spectrum.lanczos import Ritz
from analysis.hessian.spectrum.wanted import Wanted

_SLOWEST = 10.0
"""What a value has still to go is taken for at most so many times its last move."""
_ROUNDINGS = 10
"""A value is as good as it can be where its bound is this many roundings of the largest value."""


@dataclass(frozen=True)
class Approximation:
    """The wanted eigenvalues as one step approximates them.

    Attributes:
        chosen: their indices among the Ritz values, [k].
        values: [k].
        residuals: of their Ritz vectors, [k].
        bounds: their error bounds, [k].
        margin: the errors allowed, [k].
        floor: what rounding allows at least.
        converged: which bounds are within the margin, [k].
        places: points between the values and beyond them, where an eigenvalue that has not shown would be wanted, [n];
            none while some value has not converged.
    """

    chosen: np.ndarray
    values: np.ndarray
    residuals: np.ndarray
    bounds: np.ndarray
    margin: np.ndarray
    floor: float
    converged: np.ndarray
    places: np.ndarray

    @property
    def moving(self) -> np.ndarray:
        """Indices of the Ritz values that have not converged; of all wanted ones where all have."""
        return self.chosen if self.converged.all() else self.chosen[~self.converged]

    @property
    def relative_error(self) -> float:
        """The largest error bound relative to its value."""
        return float((self.bounds / np.maximum(np.abs(self.values), np.finfo(float).tiny)).max())


class StoppingRule:
    """A wanted value has converged when its error bound is below ``tolerance`` times the value.

    The bound is that of :func:`error_bounds`, and at least what the value has still to go, if its
    moves go on to shrink as the last two did: a Ritz value that climbs within a cluster has nearer neighbours than it
    shows.  It rests on gaps between Ritz values, where eigenvalues may lie that have not shown: the rule names places
    there, and :class:`analysis.hessian.spectrum.multiplicity.MultiplicitySearch` judges them.  A value that is only
    rounding next to the largest one has converged where its bound is such rounding.

    Args:
        wanted: the eigenvalues wanted.
        tolerance: relative error wanted of each value.
        epsilon: the unit roundoff of the operator's type.
    """

    def __init__(self, wanted: Wanted, tolerance: float, epsilon: float) -> None:
        self._wanted, self._tolerance, self._epsilon = wanted, tolerance, epsilon
        self._history: deque[np.ndarray] = deque(maxlen=3)

    def judge(self, ritz: Ritz, *, restarts: int = 0, complete: bool = False) -> Approximation:
        """The wanted values after one more step, and how near they are; to be called once a step.

        Args:
            ritz: at least as many Ritz values as are wanted.
            restarts: so far; each of them rounds anew.
            complete: the basis spans the whole space, so that the values are exact but for rounding.
        """
        chosen = self._wanted.choose(ritz.values)
        values, residuals = ritz.values[chosen], ritz.residuals[chosen]
        bounds = error_bounds(ritz, chosen)
        floor = float(_ROUNDINGS * self._epsilon * np.abs(ritz.values[[0, -1]]).max() * np.sqrt(1 + restarts))
        self._history.append(values)
        if not complete:
            bounds = np.maximum(bounds, self._still_to_go(floor))
        margin = np.maximum(self._tolerance * np.abs(values), floor)
        converged = bounds <= margin
        places = self._wanted.gaps(ritz.values, self._tolerance, floor) if converged.all() else np.zeros(0)
        return Approximation(chosen, values, residuals, bounds, margin, floor, converged, places)

    def state(self) -> dict[str, Any]:
        """Everything the rule continues from: the values of the last steps."""
        return {"history": [torch.from_numpy(values.copy()) for values in self._history]}

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` gave."""
        self._history.extend(values.numpy() for values in state["history"])

    def _still_to_go(self, floor: float) -> np.ndarray:
        """The sum of the moves to come if each shrinks by the factor q of the last: the last one times q/(1 − q).

        Moves below the floor are rounding, which does not shrink.
        """
        if len(self._history) < 3:
            return np.full(len(self._history[0]), np.inf)
        first, second, third = self._history
        before, last = np.abs(second - first), np.abs(third - second)
        shrinks = before - last > last / _SLOWEST
        factor = np.where(shrinks, last / np.where(shrinks, before - last, 1.0), _SLOWEST)
        return np.where(last > floor, factor, 1.0) * last


def error_bounds(ritz: Ritz, chosen: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Error bounds of Ritz values: r²/gap where the gap is wider than the residual r, else (Σ r²)^½ in a cluster.

    The gap is that to the neighbouring Ritz values less their own residuals (Parlett, The Symmetric Eigenvalue Problem,
    1998, section 11.7).  A residual says that there is *an* eigenvalue within it; where the intervals θ ± r of several
    Ritz values overlap, it may be the same one.  As many eigenvalues as there are Ritz values in such a cluster lie
    within ‖R‖ of them, one for each, R the residual vectors side by side (theorem 11.5.1); ‖R‖ <= (Σ r²)^½.  The sum
    for a value is over those of its cluster whose residuals are no larger: they are a block by themselves.
    """
    values, residuals = ritz.values, ritz.residuals
    if len(values) == 1:
        return residuals[chosen]  # nothing is known of the neighbours
    apart, gaps = values[1:] - values[:-1], np.full(len(values), np.inf)
    gaps[:-1] = apart - residuals[1:]
    gaps[1:] = np.minimum(gaps[1:], apart - residuals[:-1])
    usable = (gaps > residuals)[chosen]
    bounds: np.ndarray = residuals[chosen] ** 2 / np.where(usable, gaps[chosen], 1.0)
    return bounds if usable.all() else np.where(usable, bounds, _together(values, residuals)[chosen])


def _together(values: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """(Σ r²)^½ of each value's cluster, [m]."""
    reach = np.maximum.accumulate(values + residuals)
    nearest = np.minimum.accumulate((values - residuals)[::-1])[::-1]
    cluster = np.insert(np.cumsum(nearest[1:] > reach[:-1]), 0, 0)
    order = np.lexsort((residuals, cluster))
    sums = np.cumsum(residuals[order] ** 2)
    firsts = np.searchsorted(cluster[order], np.arange(cluster[-1] + 1))
    before = np.concatenate([[0.0], sums])[firsts][cluster[order]]
    together = np.empty_like(residuals)
    together[order] = np.maximum(np.sqrt(np.maximum(sums - before, 0.0)), residuals[order])
    return together
