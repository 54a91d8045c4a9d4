"""The largest eigenvalues and their eigenvectors."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from analysis.lanczos import Lanczos, Ritz
from analysis.operators import Operator, Report
from landscape import FedscapeError
from landscape.randomness import torch_generator

_SETTLING = 5
"""Steps beyond 2k before the first stop: the gaps that bounds rest on are those between settled Ritz values."""
_LOOK_BACK = 3
"""Steps over which a value must have stood still: a gap is only seen between Ritz values, and a Ritz value that
still climbs within a cluster shows that its true neighbours are nearer."""


@dataclass(frozen=True)
class Eigenpairs:
    """Largest eigenvalues, descending.

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


def largest_eigenpairs(
    operator: Operator,
    k: int = 5,
    *,
    tolerance: float = 1e-3,
    max_products: int | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> Eigenpairs:
    """The k algebraically largest eigenvalues by Lanczos with full re-orthogonalisation.

    Stops when every value's error bound is below ``tolerance`` times the value.  The bound is the residual
    r, or r²/gap where that is smaller (Parlett, The Symmetric Eigenvalue Problem, 1998, section 11.7), with
    the gap to the neighbouring Ritz values less their own residuals, and at least what the value moved in
    the last three steps.

    Args:
        operator: a symmetric operator.
        k: how many, 1 to d.
        tolerance: relative error wanted of each value.
        max_products: stop there even if not converged (``converged`` says which are); 20 k + 100 unless given.
        seed: draws the start vector.
        report: called after each product, with the largest relative error bound.

    Raises:
        FedscapeError: k is not from 1 to d, or the operator gives values that are not finite.
    """
    d = operator.shape[0]
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
        if krylov.steps < k:
            continue
        ritz = krylov.ritz()
        values, bounds = ritz.values[::-1][:k], _bounds(ritz)[::-1][:k]
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
        if (
            krylov.steps >= 2 * k + _SETTLING
            and converged.all()
            and _no_copies_left(krylov, values[-1] + max(tolerance * abs(values[-1]), floor))
        ):
            break
    coordinates = torch.from_numpy(ritz.coordinates[:, ::-1][:, :k].copy()).to(krylov.basis)
    vectors = torch.nn.functional.normalize(coordinates.T @ krylov.basis, dim=1)
    residuals = ritz.residuals[::-1][:k].copy()
    return Eigenpairs(values.copy(), residuals, bounds.copy(), converged, operator.products - before, vectors, krylov)


def _bounds(ritz: Ritz) -> np.ndarray:
    values, residuals = ritz.values, ritz.residuals
    if len(values) == 1:
        return residuals  # nothing is known of the neighbours
    apart = np.diff(values)
    gaps = np.minimum(np.append(apart - residuals[1:], np.inf), np.insert(apart - residuals[:-1], 0, np.inf))
    usable = gaps > residuals
    return np.where(usable, residuals**2 / np.where(usable, gaps, 1.0), residuals)


def _no_copies_left(krylov: Lanczos, smallest: float) -> bool:
    """After an invariant space, whether a fresh start found nothing that belongs among the largest.

    A Krylov space holds one eigenvector of each multiple eigenvalue; the others appear after it is full.
    """
    if len(krylov.blocks) == 1:
        return True
    first = krylov.blocks[-1] if krylov.blocks[-1] < krylov.steps else krylov.blocks[-2]
    if first == 0:
        return False
    latest = krylov.ritz(first)
    return bool(latest.values[-1] + latest.residuals[-1] <= smallest)


def _worst(bounds: np.ndarray, values: np.ndarray) -> float:
    return float((bounds / np.maximum(np.abs(values), np.finfo(float).tiny)).max())
