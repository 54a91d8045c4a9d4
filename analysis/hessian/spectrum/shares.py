"""How many eigenvalues lie below −δ, within ±δ and above δ, for a δ that the quadrature resolves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.hessian.spectrum.moments import Estimate

_ROUNDING = 32
"""Eigenvalues of less than this many ε·max|λ| are rounding errors of the products."""
_UNDECIDED = 0.05
"""At ±δ no more than this share of the eigenvalues may be on the one side or on the other."""
_FINER = 2**0.25
"""Ratio of one δ tried to the one before."""
_NORMAL = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Share:
    """A share of the eigenvalues.

    Attributes:
        value: the estimate.
        stderr: its standard error over random probes, without the error of the quadrature.
        low, high: a 95 % interval of both errors.
    """

    value: float
    stderr: float
    low: float
    high: float


@dataclass(frozen=True)
class Shares:
    """The shares of eigenvalues below −δ, within ±δ and above δ; they add up to 1.

    Attributes:
        delta: δ.
        below, within, above: the shares.
    """

    delta: float
    below: Share
    within: Share
    above: Share

    def to_dict(self) -> dict[str, Any]:
        """Numbers only."""
        return {"delta": self.delta, **{name: vars(getattr(self, name)) for name in ("below", "within", "above")}}


def average(nodes: np.ndarray, weights: np.ndarray, d: int, function: Callable[[np.ndarray], np.ndarray]) -> Estimate:
    """(1/d) Σ_i f(λ_i) for a smooth f by the probes' quadratures, with the standard error over the probes.

    A probe is uniform on the sphere, so its vᵀf(A)v has the variance 2/(d+2) · (mean of f(λ)² − (mean of f(λ))²), of
    which the quadrature tells the means: for polynomials f of a degree below its number of steps, exactly.
    """
    values = function(nodes)
    mean = float((weights * values).sum(axis=1).mean())
    spread = float((weights * (values - mean) ** 2).sum(axis=1).mean())
    return Estimate(mean, float(np.sqrt(2 * spread / ((d + 2) * len(nodes)))), len(nodes))


def rounding_floor(nodes: np.ndarray, epsilon: float) -> float:
    """What eigenvalues must exceed to be more than the rounding of the products; above 0."""
    return _ROUNDING * epsilon * float(np.abs(nodes).max()) or np.finfo(float).tiny


def resolved_delta(nodes: np.ndarray, weights: np.ndarray, epsilon: float, floor: float = 0.0) -> float:
    """The least δ above the rounding, and no less than ``floor``, at which the quadratures leave no more than 5 %
    undecided, at −δ and at δ.

    It has two digits, so that what is printed is what was measured.
    """
    tried, largest = max(rounding_floor(nodes, epsilon), floor), float(np.abs(nodes).max())
    while True:
        delta = float(f"{tried:.1e}")
        if tried >= largest or max(_undecided(nodes, weights, t).mean() for t in (-delta, delta)) <= _UNDECIDED:
            return delta
        tried *= _FINER


def shares(
    nodes: np.ndarray, weights: np.ndarray, d: int, epsilon: float, delta: float | None = None, floor: float = 0.0
) -> Shares:
    """The three shares, with errors.

    The intervals cover two errors.  That of the quadrature is bounded (Chebyshev, Markov and Stieltjes): every
    distribution with the moments of a probe has at t no more mass than the Christoffel function λ(t), and differs at t
    from the Gauss quadrature by no more than λ(t).  That of the probes is known: a probe's share of a space of
    dimension pd has the variance 2p(1−p)/(d+2), and the ends of the interval are the p that are 1.96 of *their*
    standard deviations away (Wilson's interval), so that it has a width at shares of 0 and 1.

    Args:
        nodes, weights: the quadrature of each probe, [probes, steps].
        d: the dimension.
        epsilon: the relative rounding error of the products.
        delta: δ; by default :func:`resolved_delta`.
        floor: what products were measured to be off by: a δ that is not given is no less.

    Example:
        >>> import numpy as np
        >>> found = shares(np.array([[0.0, 1.0]] * 4), np.array([[0.75, 0.25]] * 4), 1000, 1e-16, 0.5)
        >>> round(found.within.value, 3), round(found.within.stderr, 3)
        (0.75, 0.01)
    """
    if delta is None:
        delta = resolved_delta(nodes, weights, epsilon, floor)
    sides = (-1.0, 1.0)
    masses = [(weights * (side * nodes > delta)).sum(axis=1) for side in sides]
    widths = [_undecided(nodes, weights, side * delta) for side in sides]
    below, above = (
        _share(mass.mean(), (mass - width).clip(0).mean(), (mass + width).clip(max=1).mean(), len(nodes), d)
        for mass, width in zip(masses, widths, strict=True)
    )
    inside, width = 1 - masses[0] - masses[1], widths[0] + widths[1]
    within = _share(inside.mean(), (inside - width).clip(0).mean(), (inside + width).clip(max=1).mean(), len(nodes), d)
    return Shares(delta, below, within, above)


def _share(value: float, low: float, high: float, probes: int, d: int) -> Share:
    """The share with the probes' error added to the bounds of the quadrature's."""
    effective = probes * (d + 2) / 2
    value = min(max(float(value), 0.0), 1.0)
    stderr = float(np.sqrt(value * (1 - value) / effective))
    return Share(value, stderr, _wilson(float(low), effective, -1), _wilson(float(high), effective, 1))


def _wilson(share: float, effective: float, side: int) -> float:
    """The p with |p − share| = 1.96 √(p(1−p)/effective), on one side of it."""
    share, square = min(max(share, 0.0), 1.0), _NORMAL**2 / effective
    root = np.sqrt(square * share * (1 - share) + square**2 / 4)
    return float(min(max((share + square / 2 + side * root) / (1 + square), 0.0), 1.0))


def _undecided(nodes: np.ndarray, weights: np.ndarray, t: float) -> np.ndarray:
    """The Christoffel function 1/Σ_i ℓ_i(t)²/w_i of each probe, [probes], ℓ_i the Lagrange polynomials of its nodes.

    Nodes without weight mean that the quadrature is that of the probe's own, discrete distribution: then it is 0.
    """
    tiny = np.finfo(float).tiny
    gaps = np.abs(nodes[:, :, None] - nodes[:, None, :])
    gaps += np.eye(nodes.shape[1])  # log 1 = 0: a node has no factor of its own
    away = np.log(np.maximum(np.abs(t - nodes), tiny))
    lagrange = away.sum(axis=1, keepdims=True) - away - np.log(np.maximum(gaps, tiny)).sum(axis=2)
    terms = 2 * lagrange - np.log(np.maximum(weights, tiny))
    return np.exp(-np.logaddexp.reduce(terms, axis=1)).clip(max=1)
