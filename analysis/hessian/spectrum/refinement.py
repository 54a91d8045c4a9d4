"""Eigenvalues of a float32 matrix, refined and judged by one product in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy
import torch
from torch import Tensor

from analysis.hessian.spectrum.eigen import Eigenpairs, Refinement
from analysis.hessian.spectrum.operators import Operator, in_float64
from landscape.compute.devices import one_blas_thread
from landscape.compute.randomness import torch_generator

_ROUNDINGS = 100
"""Rounding of float64 products and sums, in units of its roundoff of the largest value."""
_BYTES = 2**28
"""Vectors multiplied at a time take so much memory; at least five are."""
_PIECE = 2**16
"""Coordinates summed in float64 at a time: this takes little memory."""
_SAFETY = 10
"""Noise is out of the question where so many times as much would still be within the tolerance."""


@one_blas_thread()
def refined(operator: Operator, eigen: Eigenpairs, *, tolerance: float = 1e-3, seed: int = 0) -> Eigenpairs:
    """Eigenvalues with float64's values, residuals and bounds, of eigenvectors that float32 found.

    A Lanczos process in float32 knows the residuals of exact arithmetic; its products have errors of their own, which
    are often larger.  One block product A₆₄V in float64 with all Ritz vectors V gives the Rayleigh-Ritz values (the
    eigenvalues of A₆₄ on the span of V) and the true residuals ‖A₆₄y − θy‖, from which the bounds follow
    (:func:`cluster_bounds`); one more product in float32 gives the noise.  TF32's products are refined too.

    The vectors and the Krylov space stay as they were, in float32.  Near a cross-entropy L of less than 1e-10 float64
    has a noise of its own, which the bounds leave out: 1 − p cancels in its softmax, to a relative 1e-16/L.

    Args:
        operator: the matrix that the eigenvalues are of.
        eigen: as :func:`analysis.hessian.spectrum.eigen.extreme_eigenpairs` gave them.
        tolerance: the relative error wanted; ``converged`` is judged anew.
        seed: draws u.

    Returns:
        ``eigen`` itself if the operator is not of a landscape in float32 or TF32.
    """
    precise = in_float64(operator)
    if precise is None or eigen.vectors is None or eigen.krylov is None:
        return eigen
    vectors, values = eigen.vectors, eigen.values
    signs = _signs(eigen, seed)
    mixed = (signs.to(vectors) @ vectors).to(operator.device)
    noise = operator.matmat(mixed[:, None])[:, 0].double()  # less the same product in float64, below
    differences = torch.empty_like(vectors)  # A₆₄v − λv: small, so that float32 holds it well
    step = max(5, _BYTES // (8 * operator.shape[0]))
    for first in range(0, len(vectors), step):
        rows = vectors[first : first + step].to(operator.device, torch.float64)
        products = precise.matmat(rows.T).T
        noise -= signs[first : first + step].to(products) @ products
        here = torch.from_numpy(values[first : first + step]).to(rows)
        differences[first : first + step] = products - here[:, None] * rows
    theta, residuals = _rayleigh_ritz(vectors, differences, values)
    place = np.argsort(np.argsort(values, kind="stable"))  # in the order asked for
    theta, residuals = theta[place], residuals[place]
    rounding = _ROUNDINGS * torch.finfo(torch.float64).eps * np.abs(theta).max()
    residuals = np.maximum(residuals, rounding)
    bounds = np.maximum(_bounds(eigen, theta, residuals), rounding)
    floor = float(noise.norm() / mixed.double().norm())
    converged = eigen.converged & (bounds <= np.maximum(tolerance * np.abs(theta), floor))
    cost = Refinement(len(vectors), floor)
    return replace(eigen, values=theta, residuals=residuals, bounds=bounds, converged=converged, refinement=cost)


@one_blas_thread()
def refined_where_needed(
    operator: Operator, eigen: Eigenpairs, *, tolerance: float = 1e-3, seed: int = 0
) -> Eigenpairs:
    """Eigenvalues of which one float64 product says that float32's noise does not matter; else :func:`refined`.

    On a CPU a product in float64 costs three of float32, and without kept graphs more: k of them were a quarter of
    all work on an eigenspace.  With A₃₂ = A₆₄ + Δ and the vectors U as columns, the values move by ‖ΔU‖₂ ≤ ‖ΔU‖_F at
    most.  For random signs s the mean of ‖ΔUs‖² is ‖ΔU‖²_F; where ten times that is below the wanted error of every
    value, it is added to residuals and bounds, and values and ``converged`` stay those of the iteration.

    Args:
        operator, eigen, tolerance, seed: as in :func:`refined`.
    """
    precise = in_float64(operator)
    if precise is None or eigen.vectors is None or len(eigen.values) == 1:
        return refined(operator, eigen, tolerance=tolerance, seed=seed)
    mixed = (_signs(eigen, seed).to(eigen.vectors) @ eigen.vectors).to(operator.device)
    rest = operator.matmat(mixed[:, None]).double() - precise.matmat(mixed.double()[:, None])
    error = float(rest.norm())
    if not _SAFETY * error <= tolerance * np.abs(eigen.values).min():
        found = refined(operator, eigen, tolerance=tolerance, seed=seed)
        assert found.refinement is not None
        return replace(found, refinement=replace(found.refinement, products=found.refinement.products + 1))
    cost = Refinement(1, error / float(mixed.double().norm()))
    return replace(eigen, residuals=eigen.residuals + error, bounds=eigen.bounds + error, refinement=cost)


def _signs(eigen: Eigenpairs, seed: int) -> Tensor:
    """Random signs, one for each eigenvalue."""
    return torch.randint(2, (len(eigen.values),), generator=torch_generator(seed, "refinement")) * 2.0 - 1


def spent(operator: Operator, eigen: Eigenpairs) -> int:
    """Products by the operator, those in float64 that refined its eigenvalues, and those by another step."""
    return operator.products + sum(extra.products for extra in (eigen.refinement, eigen.steps) if extra)


def doubts(value: float, converged: bool, noise: float | None) -> str:
    """What must be said of an eigenvalue, to follow its error; empty where there is nothing.

    Args:
        value: the eigenvalue.
        converged: whether its bound is within the wanted tolerance.
        noise: that of float32 products (:class:`analysis.hessian.spectrum.eigen.Refinement`), where it is known.
    """
    lost = noise is not None and abs(value) < noise
    below = f", below the noise of float32 products ({noise:.1e})" if lost else ""
    return ("" if converged else ", NOT CONVERGED") + below


def _rayleigh_ritz(vectors: Tensor, differences: Tensor, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, ascending, of A on the span of V, and residuals, from A V − V Λ in ``differences``."""
    count = len(vectors)
    gram, coupled = (torch.zeros(count, count, dtype=torch.float64, device=vectors.device) for _ in range(2))
    pieces = [slice(at, at + _PIECE) for at in range(0, vectors.shape[1], _PIECE)]
    for piece in pieces:
        rows = vectors[:, piece].double()
        gram += rows @ rows.T
        coupled += rows @ differences[:, piece].double().T
    overlaps = gram.cpu().numpy()
    projected = coupled.cpu().numpy() + overlaps * values
    theta, turn = scipy.linalg.eigh((projected + projected.T) / 2, overlaps)
    # A y − θ y = Σ_j s_j ((A v_j − λ_j v_j) + (λ_j − θ) v_j)
    there = torch.from_numpy(turn.T.copy()).to(gram)
    shift = torch.from_numpy(turn.T * (values[None] - theta[:, None])).to(gram)
    squares = torch.zeros(count, dtype=torch.float64, device=vectors.device)
    for piece in pieces:
        rest = there @ differences[:, piece].double() + shift @ vectors[:, piece].double()
        squares += rest.square().sum(1)
    return theta, squares.sqrt().cpu().numpy()


def _bounds(eigen: Eigenpairs, theta: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """Error bounds of the refined values among the other Ritz values; no less than the iteration's own."""
    assert eigen.krylov is not None
    ritz = eigen.krylov.ritz()
    chosen = np.array([np.abs(ritz.values - value).argmin() for value in eigen.values])
    if len(set(chosen)) < len(chosen):  # multiple values: nothing is known of gaps
        others = np.full((2, 0), np.nan)
    else:
        others = np.delete(np.stack([ritz.values, ritz.residuals]), chosen, axis=1)
    gaps = len(set(chosen)) == len(chosen)
    return np.maximum(eigen.bounds, cluster_bounds(theta, residuals, *others, gaps=gaps))


def cluster_bounds(
    theta: np.ndarray, residuals: np.ndarray, others: np.ndarray, errors: np.ndarray, *, gaps: bool = True
) -> np.ndarray:
    """Bounds of |θ_j − λ_j| for Ritz values of which some may be nearer to each other than their residuals.

    A residual says that there is *an* eigenvalue within it; where the intervals θ ± r of several overlap, it may be the
    same one.  As many eigenvalues as there are Ritz values in such a cluster lie within ‖R‖ of them, one for each, R
    the residual vectors side by side (Parlett, The Symmetric Eigenvalue Problem, 1998, theorem 11.5.1); ‖R‖ ≤ (Σ r²)^½.
    A value on its own has the bound r²/gap where the gap to the nearest of the rest on either side, less its residual,
    is wider than r (section 11.7), as while the iteration ran: what may hide in the gap is the search's business.

    Args:
        theta, residuals: the values wanted and their residuals, [k].
        others, errors: the other Ritz values and their residuals, which are the rest, [m].
        gaps: whether the rest is known, and with it the gap.
    """
    order = np.argsort(theta, kind="stable")
    reach = np.maximum.accumulate((theta + residuals)[order])
    apart = (theta - residuals)[order][1:] > reach[:-1]
    bounds = np.empty_like(theta)
    for members in np.split(order, np.flatnonzero(apart) + 1):
        norm = float(np.sqrt((residuals[members] ** 2).sum()))
        low, high = theta[members].min(), theta[members].max()
        rest = np.setdiff1d(np.arange(len(theta)), members)
        values, within = np.r_[theta[rest], others], np.r_[residuals[rest], errors]
        below, above = np.where(values < low, values, -np.inf), np.where(values > high, values, np.inf)
        gap = np.inf
        if values.size and np.isfinite(below.max()):
            gap = low - below.max() - within[below.argmax()]
        if values.size and np.isfinite(above.min()):
            gap = min(gap, above.min() - within[above.argmin()] - high)
        alone = gaps and len(members) == 1 and norm < gap < np.inf
        bounds[members] = norm**2 / gap if alone else norm
    return bounds
