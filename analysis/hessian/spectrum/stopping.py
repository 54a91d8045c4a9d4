"""When eigenvalues are near enough: error bounds of Ritz values, and the rule that stops on them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from analysis.hessian.spectrum.lanczos import Ritz
from analysis.hessian.spectrum.wanted import Wanted

_SETTLING = 5
"""Products beyond two per wanted value before the first stop: bounds rest on gaps between Ritz values that have
settled."""
_LOOK_BACK = 3
"""Steps over which a value must have stood still: a gap is only seen between Ritz values, and a Ritz value that
still climbs within a cluster shows that its true neighbours are nearer."""
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
        converged: which bounds are within the margin, [k].
        settled: whether all are, after enough steps to trust the bounds.
    """

    chosen: np.ndarray
    values: np.ndarray
    residuals: np.ndarray
    bounds: np.ndarray
    margin: np.ndarray
    converged: np.ndarray
    settled: bool

    @property
    def moving(self) -> np.ndarray:
        """Indices of the Ritz values that have not converged; of all wanted ones where all have."""
        return self.chosen if self.converged.all() else self.chosen[~self.converged]

    @property
    def relative_error(self) -> float:
        """The largest error bound relative to its value."""
        return float((self.bounds / np.maximum(np.abs(self.values), np.finfo(float).tiny)).max())


class StoppingRule:
    """Stop when every wanted value's error bound is below ``tolerance`` times the value.

    The bound is that of :func:`error_bounds`, and at least what the value moved in the last three steps.  A value that
    is only rounding next to the largest one has converged where its bound is such rounding.

    Args:
        wanted: the eigenvalues wanted.
        tolerance: relative error wanted of each value.
        epsilon: the unit roundoff of the operator's type.
    """

    def __init__(self, wanted: Wanted, tolerance: float, epsilon: float) -> None:
        self._wanted, self._tolerance, self._epsilon = wanted, tolerance, epsilon
        self._history: deque[np.ndarray] = deque(maxlen=_LOOK_BACK + 1)

    def judge(self, ritz: Ritz, *, products: int, restarts: int = 0, complete: bool = False) -> Approximation:
        """The wanted values after one more step, and how near they are; to be called once a step.

        Args:
            ritz: at least as many Ritz values as are wanted.
            products: spent so far.
            restarts: so far; each of them rounds anew.
            complete: the basis spans the whole space, so that the values are exact but for rounding.
        """
        chosen = self._wanted.choose(ritz.values)
        values, bounds = ritz.values[chosen], error_bounds(ritz)[chosen]
        self._history.append(values)
        if not complete:
            bounds = np.maximum(bounds, np.abs(values - self._history[0]))
        floor = _ROUNDINGS * self._epsilon * np.abs(ritz.values).max() * np.sqrt(1 + restarts)
        margin = np.maximum(self._tolerance * np.abs(values), floor)
        converged = bounds <= margin
        settled = products >= 2 * self._wanted.count + _SETTLING and bool(converged.all())
        return Approximation(chosen, values, ritz.residuals[chosen], bounds, margin, converged, settled)

    def state(self) -> dict[str, Any]:
        """Everything the rule continues from: the values of the last steps."""
        return {"history": [torch.from_numpy(values.copy()) for values in self._history]}

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` gave."""
        self._history.extend(values.numpy() for values in state["history"])


def error_bounds(ritz: Ritz) -> np.ndarray:
    """Error bounds of Ritz values, [m]: the residual r, or r²/gap where that is smaller.

    Parlett, The Symmetric Eigenvalue Problem, 1998, section 11.7.  The gap is that to the neighbouring Ritz values
    less their own residuals.
    """
    values, residuals = ritz.values, ritz.residuals
    if len(values) == 1:
        return residuals  # nothing is known of the neighbours
    apart = np.diff(values)
    gaps = np.minimum(np.append(apart - residuals[1:], np.inf), np.insert(apart - residuals[:-1], 0, np.inf))
    usable = gaps > residuals
    return np.where(usable, residuals**2 / np.where(usable, gaps, 1.0), residuals)
