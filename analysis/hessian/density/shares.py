"""How many eigenvalues lie below −δ, within ±δ and above δ, for a δ that the quadrature resolves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.hessian.density.quadrature import NORMAL, Quadrature

_ROUNDING = 32
"""Eigenvalues of less than this many ε·max|λ| are rounding errors of the products."""
_UNDECIDED = 0.05
"""At ±δ no more than this share of the eigenvalues may be on the one side or on the other."""
_FINER = 2**0.25
"""Ratio of one δ tried to the one before."""


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


def rounding_floor(places: np.ndarray, epsilon: float) -> float:
    """What eigenvalues must exceed to be more than the rounding of the products; above 0."""
    return _ROUNDING * epsilon * float(np.abs(places).max()) or np.finfo(float).tiny


def resolved_delta(rule: Quadrature, epsilon: float, floor: float = 0.0) -> float:
    """The least δ above the rounding and the floor at which the quadratures leave no more than 5 % undecided, at −δ
    and at δ.

    It has two digits, so that what is printed is what was measured.
    """
    tried, largest = max(rounding_floor(rule.places, epsilon), floor), float(np.abs(rule.places).max())
    while True:
        delta = float(f"{tried:.1e}")
        undecided = [_undecided(rule.nodes, rule.weights, t).mean() for t in (-delta, delta)]
        if tried >= largest or max(undecided) <= _UNDECIDED:
            return delta
        tried *= _FINER


def shares(rule: Quadrature, epsilon: float, delta: float | None = None, floor: float = 0.0) -> Shares:
    """The three shares, with errors.

    The intervals cover two errors.  That of the quadrature is bounded (Chebyshev, Markov and Stieltjes): every
    distribution with the moments of a probe has at t no more mass than the Christoffel function λ(t), and differs at t
    from the Gauss quadrature by no more than λ(t).  That of the probes is known: a probe's share of a space of
    dimension pr, in the space of dimension r that the atoms leave, has the variance 2p(1−p)/(r+2), and the ends of the
    interval are the p that are 1.96 of *their* standard deviations away (Wilson's interval), so that it has a width at
    shares of 0 and 1.

    Args:
        rule: atoms and the quadrature of each probe, with the dimension.
        epsilon: the relative rounding error of the products.
        delta: δ; by default :func:`resolved_delta`.
        floor: the least δ then.

    Example:
        >>> import numpy as np
        >>> nodes, weights = np.array([[0.0, 1.0]] * 4), np.array([[0.75, 0.25]] * 4)
        >>> found = shares(Quadrature(nodes, weights, np.zeros(0), 1000), 1e-16, 0.5)
        >>> round(found.within.value, 3), round(found.within.stderr, 3)
        (0.75, 0.01)
    """
    if delta is None:
        delta = resolved_delta(rule, epsilon, floor)
    sides = (-1.0, 1.0)
    masses = [(rule.weights * (side * rule.nodes > delta)).sum(axis=1) for side in sides]
    widths = [_undecided(rule.nodes, rule.weights, side * delta) for side in sides]
    atoms = [float((side * rule.atoms > delta).mean()) if len(rule.atoms) else 0.0 for side in sides]
    below, above = (
        _share(rule, mass, width, outside) for mass, width, outside in zip(masses, widths, atoms, strict=True)
    )
    inside, inner = rule.left - masses[0] - masses[1], 1 - atoms[0] - atoms[1]
    return Shares(delta, below, _share(rule, inside, widths[0] + widths[1], inner), above)


def _share(rule: Quadrature, masses: np.ndarray, widths: np.ndarray, of_atoms: float) -> Share:
    """The share with the probes' error added to the bounds of the quadrature's.

    Args:
        rule: with the dimension.
        masses, widths: of each probe, and the bounds of the quadrature's error in them, [probes].
        of_atoms: the share of the atoms.
    """
    assert rule.dimension is not None
    left, known = rule.left, (1 - rule.left) * of_atoms
    effective = len(masses) * (rule.dimension - len(rule.atoms) + 2) / 2
    value = min(max(float(masses.mean()) / left, 0.0), 1.0)
    low, high = (masses - widths).clip(0).mean() / left, (masses + widths).clip(max=left).mean() / left
    stderr = left * float(np.sqrt(value * (1 - value) / effective))
    ends = [_wilson(float(low), effective, -1), _wilson(float(high), effective, 1)]
    value, *ends = (min(max(known + left * share, 0.0), 1.0) for share in (value, *ends))
    return Share(value, stderr, *ends)


def _wilson(share: float, effective: float, side: int) -> float:
    """The p with |p − share| = 1.96 √(p(1−p)/effective), on one side of it."""
    share, square = min(max(share, 0.0), 1.0), NORMAL**2 / effective
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
