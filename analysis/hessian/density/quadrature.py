"""Means over all eigenvalues by the quadratures of random probes, with the errors of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy

from analysis.hessian.spectrum.moments import Estimate

_COARSEST, _COARSER = 0.7, 6
"""The quadrature is compared with at most six of fewer steps, down to this share of them."""
NORMAL = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Quadrature:
    """(1/d) Σ_i f(λ_i) ≈ (1/d) Σ_a f(atom_a) + the mean over the probes of Σ_j weight_pj f(node_pj).

    Attributes:
        nodes, weights: of each probe, [probes, steps]; its weights sum to the share of the eigenvalues that are not
            atoms.
        atoms: eigenvalues known by themselves, [a].
        dimension: d, where the probes are uniform on the sphere of the space that the atoms leave; ``None`` for probes
            of another kind, whose variance is that of the sample.
    """

    nodes: np.ndarray
    weights: np.ndarray
    atoms: np.ndarray
    dimension: int | None = None

    @property
    def left(self) -> float:
        """The share of the eigenvalues that are not atoms."""
        if self.dimension is None:
            return float(self.weights.sum(axis=1).mean())
        return 1 - len(self.atoms) / self.dimension

    @property
    def places(self) -> np.ndarray:
        """Atoms, and the nodes that have weight."""
        return np.concatenate([self.atoms, self.nodes[self.weights > 1e-12]])

    @property
    def quantile(self) -> float:
        """Standard errors to either end of a 95 % interval over the probes."""
        return NORMAL if self.dimension is not None else float(scipy.special.stdtrit(len(self.nodes) - 1, 0.975))

    def mean(self, function: Callable[[np.ndarray], np.ndarray]) -> Estimate:
        """The mean of f over the eigenvalues, with its standard error over the probes."""
        values, stderr = self.means(lambda t: function(t)[None])
        return Estimate(float(values[0]), float(stderr[0]), len(self.nodes))

    def means(self, functions: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Means of several functions over the eigenvalues, and their standard errors over the probes, [g] each.

        A probe that is uniform on the sphere of a space of dimension r has a vᵀf(A)v of the variance 2/(r+2) · (mean of
        f² − (mean of f)²), of which the quadrature tells the means: for polynomials f of a degree below its number of
        steps, exactly.

        Args:
            functions: maps places [n] to their values, [g, n].
        """
        at_nodes = [functions(nodes) for nodes in self.nodes]
        each = np.stack([f @ weights for f, weights in zip(at_nodes, self.weights, strict=True)])
        values, left, count = each.mean(axis=0), self.left, len(self.nodes)
        drawn = values
        if len(self.atoms):
            values = values + functions(self.atoms).mean(axis=1) * (1 - left)
        if self.dimension is None:
            return values, each.std(axis=0, ddof=1) / np.sqrt(count)
        room = self.dimension - len(self.atoms)
        squares = np.stack([f**2 @ weights for f, weights in zip(at_nodes, self.weights, strict=True)]).mean(axis=0)
        spread = np.maximum(squares * left - drawn**2, 0.0)  # (left)² times that of the normalised weights
        return values, np.sqrt(2 * spread / ((room + 2) * count))

    def error(self, functions: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """An estimate of the quadrature's own error in the means of :meth:`means`, [g].

        The largest change of a mean against quadratures of fewer steps (down to 70 % of them): as steps are added, it
        falls, so that it is larger than what is left.  It is 0 where the nodes are all eigenvalues there are.
        """
        steps = self.nodes.shape[1]
        if self.dimension is not None and steps >= self.dimension - len(self.atoms):
            return np.zeros(len(functions(self.nodes[0])))

        def alone(rule: Quadrature) -> np.ndarray:
            each = [functions(nodes) @ weights for nodes, weights in zip(rule.nodes, rule.weights, strict=True)]
            return np.mean(each, axis=0)

        here = alone(self)
        return np.max([np.abs(alone(rule) - here) for rule in self.coarser()] or [np.abs(here)], axis=0)

    def coarser(self) -> Iterator[Quadrature]:
        """The Gauss quadratures of the same probes after fewer steps."""
        steps = self.nodes.shape[1]
        counts = np.unique(np.linspace(int(np.ceil(_COARSEST * steps)), steps - 1, _COARSER).astype(int))
        recurrences = [_recurrence(nodes, weights) for nodes, weights in zip(self.nodes, self.weights, strict=True)]
        for count in counts[(counts >= 1) & (counts < steps)]:
            found = [scipy.linalg.eigh_tridiagonal(a[:count], b[: count - 1]) for a, b in recurrences]
            nodes = np.stack([values for values, _ in found])
            weights = np.stack([vectors[0] ** 2 for _, vectors in found]) * self.weights.sum(axis=1, keepdims=True)
            yield Quadrature(nodes, weights, self.atoms, self.dimension)


def _recurrence(nodes: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The diagonal [m] and off-diagonal [m − 1] of the Jacobi matrix of a discrete distribution (Lanczos)."""
    m, scale = len(nodes), float(np.abs(nodes).max()) or 1.0
    basis, diagonal, beside = np.zeros((m, m)), np.zeros(m), np.zeros(m)
    vector = np.sqrt(weights / weights.sum())
    for j in range(m):
        basis[j], vector = vector, nodes * vector
        diagonal[j] = basis[j] @ vector
        for _ in range(2):
            vector = vector - (basis[: j + 1] @ vector) @ basis[: j + 1]
        beside[j] = np.linalg.norm(vector)
        if beside[j] <= 1e-13 * scale:  # no weight is left: what follows has none
            beside[j] = 0.0
            break
        vector = vector / beside[j]
    return diagonal, beside[: m - 1]
