"""Extreme eigenvalues and their eigenvectors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from analysis.lanczos import Lanczos, Ritz
from analysis.operators import Operator, Report
from landscape import FedscapeError
from landscape.randomness import torch_generator

Which = Literal["largest", "smallest", "magnitude", "both"]

_CHOICES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "largest": lambda ascending, k: np.arange(len(ascending))[::-1][:k],
    "smallest": lambda ascending, k: np.arange(k),
    "magnitude": lambda ascending, k: np.argsort(-np.abs(ascending), kind="stable")[:k],
    "both": lambda ascending, k: np.concatenate([np.arange(len(ascending))[::-1][:k], np.arange(k)]),
}

_SETTLING = 5
"""Steps beyond 2k before the first stop: the gaps that bounds rest on are those between settled Ritz values."""
_LOOK_BACK = 3
"""Steps over which a value must have stood still: a gap is only seen between Ritz values, and a Ritz value that
still climbs within a cluster shows that its true neighbours are nearer."""


@dataclass(frozen=True)
class Eigenpairs:
    """Extreme eigenvalues, in the order asked for (the largest: descending).

    Attributes:
        values: [k].
        residuals: ‖A v − λ v‖ for unit eigenvectors v, [k]: an eigenvalue lies within it of each value.
        bounds: error bounds of the values, [k]: residual²/gap where the gap to the neighbouring Ritz values is
            wide, else the residual; and never less than the value moved in the last steps.
        converged: which bounds are within the wanted tolerance, [k].
        products: products spent (HVPs).
        vectors: unit eigenvectors as rows, [k, d].
        krylov: the process they came from; its basis serves the trace too.

    A report that was read from a file has neither ``vectors`` nor ``krylov``.
    """

    values: np.ndarray
    residuals: np.ndarray
    bounds: np.ndarray
    converged: np.ndarray
    products: int
    vectors: Tensor | None = None
    krylov: Lanczos | None = None

    def ratio(self, i: int, j: int) -> float | None:
        """λ_i/λ_j, counted from 1; ``None`` where fewer eigenvalues were asked for."""
        return float(self.values[i - 1] / self.values[j - 1]) if max(i, j) <= len(self.values) else None


def extreme_eigenpairs(
    operator: Operator,
    k: int = 5,
    *,
    which: Which = "largest",
    tolerance: float = 1e-3,
    max_products: int | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> Eigenpairs:
    """The k eigenvalues at an end of the spectrum, by Lanczos with full re-orthogonalisation.

    Stops when every value's error bound is below ``tolerance`` times the value.  The bound is the residual
    r, or r²/gap where that is smaller (Parlett, The Symmetric Eigenvalue Problem, 1998, section 11.7), with
    the gap to the neighbouring Ritz values less their own residuals, and at least what the value moved in
    the last three steps.

    Args:
        operator: a symmetric operator.
        k: how many, 1 to d.
        which: ``largest`` (descending), ``smallest`` (ascending), ``magnitude`` (largest |λ|, descending), or
            ``both``: the k largest, then the k smallest (k up to d/2).
        tolerance: relative error wanted of each value.
        max_products: stop there even if not converged (``converged`` says which are); 20 k + 100 unless given.
        seed: draws the start vector.
        report: called after each product, with the largest relative error bound.

    Raises:
        FedscapeError: k is not from 1 to d, or the operator gives values that are not finite.
    """
    d = operator.shape[0]
    if which not in _CHOICES:
        raise FedscapeError(f"unknown end of the spectrum '{which}': give {', '.join(_CHOICES)}")
    if which == "both" and 2 * k > d:
        raise FedscapeError(f"{k} eigenvalues at both ends are more than the {d} there are")
    if not 1 <= k <= d:
        raise FedscapeError(f"{k} eigenvalues are asked for: give a number from 1 to the {d} parameters there are")
    limit = min(d, max_products if max_products is not None else 20 * k + 100)
    generator = torch_generator(seed, "lanczos")
    start = torch.randn(d, generator=generator, dtype=torch.float64).to(operator.device, operator.dtype)
    krylov, before = Lanczos(start, generator), operator.products
    history: deque[np.ndarray] = deque(maxlen=_LOOK_BACK + 1)
    while True:
        krylov.absorb(operator.matmat(krylov.vector[:, None])[:, 0])
        if not np.isfinite(krylov.diagonal[-1]):
            raise FedscapeError("the operator's products are not finite: there is no spectrum at this point")
        if krylov.steps < k * (1 + (which == "both")):
            continue
        ritz = krylov.ritz()
        chosen = _CHOICES[which](ritz.values, k)
        values, bounds = ritz.values[chosen], _bounds(ritz)[chosen]
        history.append(values)
        if not krylov.complete:
            bounds = np.maximum(bounds, np.abs(values - history[0]))
        # Values that are rounding beside the largest one are as good as they can be.
        floor = 10 * torch.finfo(operator.dtype).eps * np.abs(ritz.values).max()
        converged = bounds <= np.maximum(tolerance * np.abs(values), floor)
        if report is not None:
            report(operator.products - before, _worst(bounds, values))
        if krylov.complete or krylov.steps >= limit:
            break
        settled = krylov.steps >= 2 * len(values) + _SETTLING
        margin = np.maximum(tolerance * np.abs(values), floor)
        if settled and converged.all() and _no_copies_left(krylov, which, values, margin):
            break
    coordinates = torch.from_numpy(ritz.coordinates[:, chosen]).to(krylov.basis)
    vectors = torch.nn.functional.normalize(coordinates.T @ krylov.basis, dim=1)
    # The recurrence tells a residual in exact arithmetic; below rounding nothing can be told.
    residuals = np.maximum(ritz.residuals[chosen], torch.finfo(operator.dtype).eps * np.abs(ritz.values).max())
    return Eigenpairs(values, residuals, bounds, converged, operator.products - before, vectors, krylov)


def _bounds(ritz: Ritz) -> np.ndarray:
    values, residuals = ritz.values, ritz.residuals
    if len(values) == 1:
        return residuals  # nothing is known of the neighbours
    apart = np.diff(values)
    gaps = np.minimum(np.append(apart - residuals[1:], np.inf), np.insert(apart - residuals[:-1], 0, np.inf))
    usable = gaps > residuals
    return np.where(usable, residuals**2 / np.where(usable, gaps, 1.0), residuals)


def _no_copies_left(krylov: Lanczos, which: Which, values: np.ndarray, margin: np.ndarray) -> bool:
    """After an invariant space, whether a fresh start found nothing that belongs among the chosen values.

    A Krylov space holds one eigenvector of each multiple eigenvalue; the others appear after it is full.
    """
    if len(krylov.blocks) == 1:
        return True
    first = krylov.blocks[-1] if krylov.blocks[-1] < krylov.steps else krylov.blocks[-2]
    if first == 0:
        return False
    latest = krylov.ritz(first)
    low, high = (latest.values - latest.residuals).min(), (latest.values + latest.residuals).max()
    if which == "magnitude":
        return bool(max(abs(low), abs(high)) <= (np.abs(values) + margin).min())
    k = len(values) // 2 if which == "both" else len(values)
    above = which != "smallest" and high > (values + margin)[:k].min()
    below = which != "largest" and low < (values - margin)[-k:].max()
    return not (above or below)


def _worst(bounds: np.ndarray, values: np.ndarray) -> float:
    return float((bounds / np.maximum(np.abs(values), np.finfo(float).tiny)).max())


def largest_eigenpairs(
    operator: Operator,
    k: int = 5,
    *,
    tolerance: float = 1e-3,
    max_products: int | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> Eigenpairs:
    """The k algebraically largest eigenvalues: :func:`extreme_eigenpairs` with ``which="largest"``."""
    return extreme_eigenpairs(operator, k, tolerance=tolerance, max_products=max_products, seed=seed, report=report)
