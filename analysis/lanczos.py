"""The Lanczos process, with full re-orthogonalisation in two passes, always.

Without it, converged eigenvalues come back as copies ("ghosts"); it costs 4md flops a step, which is
little beside a Hessian-vector product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

_BREAKDOWN = 100.0
"""A new direction shorter than this many roundings of the operator's scale is rounding only."""


@dataclass(frozen=True)
class Ritz:
    """Eigenvalues of the projected matrix, ascending.

    Attributes:
        values: θ_i, [m].
        residuals: ‖A y_i − θ_i y_i‖ of the Ritz vectors y_i, [m].
        weights: squared first components of T's eigenvectors, [m]: the quadrature weights of the start.
        coordinates: T's eigenvectors as columns, [m, m]: y_i = Σ_j coordinates[j, i] q_j.
    """

    values: np.ndarray
    residuals: np.ndarray
    weights: np.ndarray
    coordinates: np.ndarray


class Lanczos:
    """A growing orthonormal basis of a Krylov space and the tridiagonal matrix of A in it.

    The caller multiplies: ``process.absorb(A @ process.vector)`` is a step, so that several processes can
    share one block product.  Where the space turns out invariant, the process goes on with a random vector
    orthogonal to it (a new block), until ``complete``.

    Args:
        start: the start vector, [d].
        generator: draws the vectors after an invariant space, on the CPU.
    """

    def __init__(self, start: Tensor, generator: torch.Generator) -> None:
        self.vector = start / start.norm()
        """The vector to be multiplied next, [d], of norm 1 (zero once ``complete``)."""
        self.diagonal: list[float] = []
        self.off_diagonal: list[float] = []
        self.blocks = [0]
        """Where the invariant blocks begin."""
        self._generator = generator
        self._rows = start.new_empty((0, len(start)))

    @property
    def steps(self) -> int:
        """m, the dimension of the basis."""
        return len(self.diagonal)

    @property
    def basis(self) -> Tensor:
        """The orthonormal basis as rows, [m, d]."""
        return self._rows[: self.steps]

    @property
    def complete(self) -> bool:
        """Whether the basis spans the whole space."""
        return self.steps == self._rows.shape[1]

    def absorb(self, product: Tensor) -> None:
        """Take in A times ``vector``."""
        rows = self._append(self.vector)
        first = rows @ product
        residual = product - first @ rows
        second = rows @ residual
        residual = residual - second @ rows
        self.diagonal.append(float(first[-1] + second[-1]))
        norm = residual.norm().item()
        scale = max(abs(a) for a in self.diagonal) + max(self.off_diagonal, default=0.0)
        if self.complete:
            norm, residual = 0.0, torch.zeros_like(residual)
        elif norm <= _BREAKDOWN * torch.finfo(product.dtype).eps * scale or norm == 0.0:
            norm, residual = 0.0, self._fresh(product)
            self.blocks.append(self.steps)
        self.off_diagonal.append(norm)
        self.vector = residual / residual.norm().clamp_min(torch.finfo(product.dtype).tiny)

    def ritz(self, first: int = 0) -> Ritz:
        """Eigenvalues of the tridiagonal matrix, from the basis vector ``first`` on."""
        values, vectors = eigh_tridiagonal(self.diagonal[first:], self.off_diagonal[first:-1])
        return Ritz(values, self.off_diagonal[-1] * np.abs(vectors[-1]), vectors[0] ** 2, vectors)

    def _append(self, vector: Tensor) -> Tensor:
        if self.steps == len(self._rows):
            larger = vector.new_empty((min(len(vector), max(32, 3 * self.steps // 2)), len(vector)))
            larger[: self.steps] = self._rows
            self._rows = larger
        self._rows[self.steps] = vector
        return self._rows[: self.steps + 1]

    def _fresh(self, like: Tensor) -> Tensor:
        vector = torch.randn(len(like), generator=self._generator, dtype=torch.float64).to(like)
        rows = self.basis
        for _ in range(2):
            vector = vector - (rows @ vector) @ rows
        return vector
