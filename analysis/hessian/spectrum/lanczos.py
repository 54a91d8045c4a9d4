"""The Lanczos process, with full re-orthogonalisation in two passes, always.

Without it, converged eigenvalues come back as copies ("ghosts"); it costs 4md flops a step, which is
little beside a Hessian-vector product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import scipy
import torch
from scipy.linalg import eigh, eigh_tridiagonal
from torch import Tensor

_BREAKDOWN = 100.0
"""A new direction shorter than this many roundings of the operator's scale is rounding only."""
_GROUP_BYTES = 2**28
"""The basis is worked on in groups of rows of this size: of one in host memory, no more is on the device at once."""
_PIECE_BYTES = 2**22
"""A basis is turned in pieces of columns of this size: there is no room for a second one."""
_DIVIDES = tuple(int(part) for part in scipy.__version__.split(".")[:2]) >= (1, 16)
"""Whether SciPy's tridiagonal solver divides and conquers; the vectors of the one before are less orthogonal."""


@dataclass(frozen=True)
class Ritz:
    """Eigenvalues of the projected matrix, ascending.

    Attributes:
        values: θ_i, [m].
        residuals: ‖A y_i − θ_i y_i‖ of the Ritz vectors y_i, [m].
        weights: squared first components of T's eigenvectors, [m]: the quadrature weights of the start (before any
            restart).
        coordinates: T's eigenvectors as columns, [m, m]: y_i = Σ_j coordinates[j, i] q_j.
    """

    values: np.ndarray
    residuals: np.ndarray
    weights: np.ndarray
    coordinates: np.ndarray


class Lanczos:
    """A growing orthonormal basis Q of Krylov spaces and the projection T of A onto it.

    The caller multiplies: ``process.absorb(A @ process.vector)`` is a step, so that several processes can share one
    block product.  At every moment A Q = Q T + P C, where the columns of P, the vectors waiting, have norm 1 and are
    orthogonal to Q.  From one start vector there is one of them and T is tridiagonal.  A Krylov space holds one
    eigenvector of a multiple eigenvalue, the one its start has a part of: ``branch`` begins another space, from a
    random vector orthogonal to the basis, a chain of its own.  Where all spaces turn out invariant the process begins
    one by itself, until ``complete``.

    ``restart`` shrinks the basis to some of its Ritz vectors (Wu & Simon, SIMAX 2000: thick restart); T is then
    diagonal in these, and they couple to the waiting vectors alone.

    Args:
        start: the start vector, [d].
        generator: draws the vectors that begin other spaces, on the CPU.
        capacity: room for that many basis vectors is taken at once; more are taken when they are needed.
        offload: keep the basis in host memory (pinned for a GPU), however ``start`` lies.
    """

    def __init__(
        self, start: Tensor, generator: torch.Generator, *, capacity: int | None = None, offload: bool = False
    ) -> None:
        self.steps = 0
        """m, the dimension of the basis."""
        self.absorbed = 0
        """Products taken in, those before a restart too."""
        self._nothing = torch.zeros_like(start)
        self._waiting = [start / start.norm()]  # P, the vector to be multiplied next first
        self._couplings: np.ndarray = np.zeros((1, 0))  # C
        self._projection: np.ndarray = np.zeros((0, 0))  # T's lower triangle, with room to grow
        self._tridiagonal = True
        self._scale = 0.0
        self._generator = generator
        self._offload = offload
        self._rows = self._room(capacity or 0)

    @property
    def vector(self) -> Tensor:
        """The vector to be multiplied next, [d], of norm 1 (zero once ``complete``)."""
        return self._waiting[0] if self._waiting else self._nothing

    @property
    def basis(self) -> Tensor:
        """The orthonormal basis as rows, [m, d] (in host memory where it is offloaded)."""
        return self._rows[: self.steps]

    @property
    def diagonal(self) -> np.ndarray:
        """T's diagonal, [m]: its sum is tr QᵀAQ."""
        return np.diagonal(self._projection)[: self.steps]

    @property
    def couplings(self) -> np.ndarray:
        """C, [waiting vectors, m], the one to be multiplied next first."""
        return self._couplings

    @property
    def complete(self) -> bool:
        """Whether the basis spans the whole space."""
        return self.steps == self._rows.shape[1]

    def remainder(self) -> Tensor:
        """What lies outside the basis of A times its latest vector, [d]."""
        outside = torch.zeros_like(self._nothing)
        for vector, coupling in zip(self._waiting, self._couplings[:, -1], strict=True):
            outside.add_(vector, alpha=float(coupling))
        return outside

    def absorb(self, product: Tensor) -> bool:
        """Take in A times ``vector``; whether its chain goes on (and is followed), or its space is invariant."""
        vector = self._waiting.pop(0)
        coupled = self._pass_by(vector)
        self._append(vector)
        residual, first = self._remove(product, self.steps + 1)
        residual, second = self._remove(residual, self.steps + 1)
        self._projection[self.steps, : self.steps], self._projection[self.steps, self.steps] = coupled, first + second
        self.steps += 1
        self.absorbed += 1
        self._couplings = np.pad(self._couplings, ((0, 0), (0, 1)))
        norm = residual.norm().item()
        self._scale = max(self._scale, abs(first + second) + norm)
        # Not `>`: what is not finite goes on, and the caller sees it in the diagonal.
        goes_on = not (self.complete or norm <= _BREAKDOWN * torch.finfo(product.dtype).eps * self._scale)
        if goes_on:
            self._begin(residual / norm, np.append(np.zeros(self.steps - 1), norm))
        if self.complete:
            self._waiting, self._couplings = [], np.zeros((0, self.steps))
        elif not self._waiting:
            self.branch()
        elif not goes_on:
            self._waiting[0] = self._outside(self._waiting[0])
        return goes_on

    def branch(self) -> None:
        """Go on with a random vector orthogonal to the basis.

        Raises:
            ValueError: the basis is complete.
        """
        if self.complete:
            raise ValueError("nothing is orthogonal to a complete basis")
        vector = torch.randn(len(self._nothing), generator=self._generator, dtype=torch.float64).to(self._nothing)
        self._tridiagonal = self._tridiagonal and not self._waiting
        self._begin(self._outside(vector), np.zeros(self.steps))

    def follow(self, chain: int) -> None:
        """Go on with the waiting vector of that index (a row of ``couplings``)."""
        if chain:
            vector, couplings = self._waiting.pop(chain), self._couplings[chain]
            self._couplings = np.delete(self._couplings, chain, axis=0)
            self._begin(self._outside(vector), couplings)

    def ritz(self) -> Ritz:
        """Eigenvalues of T."""
        matrix = self._projection[: self.steps, : self.steps]
        if self._tridiagonal and _DIVIDES:
            values, vectors = eigh_tridiagonal(np.diagonal(matrix), np.diagonal(matrix, -1))
        else:
            values, vectors = eigh(matrix, driver="evd")  # reads the lower triangle
        coupled = self._couplings @ vectors
        squares = coupled**2 if len(coupled) == 1 else coupled * (self._angles() @ coupled)
        return Ritz(values, np.sqrt(squares.sum(axis=0).clip(min=0)), vectors[0] ** 2, vectors)

    def restart(self, choose: Callable[[np.ndarray], np.ndarray]) -> None:
        """Shrink the basis to the Ritz vectors chosen, and to the outermost ones.

        Args:
            choose: which of the Ritz values, given ascending: their indices.
        """
        ritz = self.ritz()
        kept = np.union1d(choose(ritz.values), [0, self.steps - 1])
        self._turn(ritz.values[kept], ritz.coordinates[:, kept])

    def to_ritz_vectors(self, first: np.ndarray) -> Tensor:
        """Turn the basis into the Ritz vectors; those of the indices ``first`` (of ``ritz()``) come first.

        Returns:
            those, as rows: a view of the basis, so that they need no memory of their own.
        """
        ritz = self.ritz()
        rest = np.setdiff1d(np.arange(self.steps), first)
        order = np.concatenate([first, rest])
        self._turn(ritz.values[order], ritz.coordinates[:, order])
        return self._rows[: len(first)]

    def outside(self, block: Tensor) -> Tensor:
        """(I − QQᵀ) times the columns of a block [d, n], wherever the basis lies."""
        outside = block.clone()  # changed in place: up to Python 3.10 a caller holds what it passes until the call ends
        for rows in self._groups(self.steps, block.device):
            outside -= rows.T @ (rows @ outside)
        return outside

    def state(self) -> dict[str, Any]:
        """Everything the process goes on from, of tensors in host memory and plain values."""
        return {
            # By way of NumPy: of a part of a tensor torch would write the whole.
            "basis": torch.from_numpy(self.basis.cpu().numpy()),
            "waiting": [vector.cpu() for vector in self._waiting],
            "projection": torch.from_numpy(self._projection[: self.steps, : self.steps].copy()),
            "couplings": torch.from_numpy(self._couplings.copy()),
            "tridiagonal": self._tridiagonal,
            "absorbed": self.absorbed,
            "scale": self._scale,
            "generator": self._generator.get_state(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from what ``state`` gave: the same values to the last bit."""
        basis = state["basis"]
        if len(basis) > len(self._rows):
            self._rows = self._room(len(basis))
        self._rows[: len(basis)] = basis
        self._waiting = [vector.to(self._nothing) for vector in state["waiting"]]
        self._projection, self._couplings = state["projection"].numpy(), state["couplings"].numpy()
        self.steps, self.absorbed, self._tridiagonal = len(basis), state["absorbed"], state["tridiagonal"]
        self._scale = state["scale"]
        self._generator.set_state(state["generator"])

    def _turn(self, values: np.ndarray, coordinates: np.ndarray) -> None:
        columns = torch.from_numpy(coordinates).to(self._nothing).T
        steps, (kept, _) = self.steps, columns.shape
        width = max(1, _PIECE_BYTES // (steps * self._rows.itemsize))
        for begin in range(0, self._rows.shape[1], width):  # in place
            piece = self._rows[:steps, begin : begin + width].to(self._nothing.device)
            self._rows[:kept, begin : begin + width] = (columns @ piece).to(self._rows.device)
        self.steps = kept
        self._projection = np.diag(values)
        self._couplings = self._couplings @ coordinates
        # What does not couple stays out of the arithmetic of later restarts, and its value as it is.
        self._couplings[np.abs(self._couplings) <= np.finfo(float).eps * self._scale] = 0.0
        self._tridiagonal = False

    def _begin(self, vector: Tensor, couplings: np.ndarray) -> None:
        self._waiting.insert(0, vector)
        self._couplings = np.vstack([couplings, self._couplings])

    def _pass_by(self, vector: Tensor) -> np.ndarray:
        """Take the parts along the next basis vector out of what waits behind it; returns what couples to it, [m]."""
        coupled, waiting, couplings = self._couplings[0], [], []
        for other, row in zip(self._waiting, self._couplings[1:], strict=True):
            part = float(torch.dot(vector, other))
            coupled = coupled + part * row
            rest = other - part * vector
            norm = rest.norm().item()
            if norm > _BREAKDOWN * torch.finfo(vector.dtype).eps:
                waiting.append(rest / norm)
                couplings.append(norm * row)
        self._waiting, self._couplings = waiting, np.reshape(couplings, (len(waiting), self.steps))
        return coupled

    def _angles(self) -> np.ndarray:
        """PᵀP, [waiting vectors, waiting vectors]."""
        angles = np.eye(len(self._waiting))
        for i, j in combinations(range(len(self._waiting)), 2):
            angles[i, j] = angles[j, i] = float(torch.dot(self._waiting[i], self._waiting[j]))
        return angles

    def _outside(self, vector: Tensor) -> Tensor:
        for _ in range(2):
            vector, _component = self._remove(vector, self.steps)
        return vector / vector.norm()

    def _groups(self, rows: int, device: torch.device) -> Iterator[Tensor]:
        size = max(1, _GROUP_BYTES // (self._rows.shape[1] * self._rows.itemsize))
        for first in range(0, rows, size):
            yield self._rows[first : min(rows, first + size)].to(device, non_blocking=True)

    def _remove(self, vector: Tensor, rows: int) -> tuple[Tensor, float]:
        """The vector less its projection on the first rows, and its component along the last of them."""
        component = vector.new_zeros(1)
        for group in self._groups(rows, vector.device):
            component = group @ vector
            vector = vector - component @ group
        return vector, (float(component[-1]) if rows else 0.0)

    def _room(self, rows: int) -> Tensor:
        d = len(self._nothing)
        if not self._offload:
            return self._nothing.new_empty((rows, d))
        pinned = self._nothing.device.type == "cuda" and rows > 0
        return torch.empty((rows, d), dtype=self._nothing.dtype, pin_memory=pinned)

    def _append(self, vector: Tensor) -> None:
        if self.steps == len(self._rows):
            larger = self._room(min(len(vector), max(32, 3 * self.steps // 2)))
            larger[: self.steps] = self._rows
            self._rows = larger
        if self.steps == len(self._projection):
            more = max(32, self.steps // 2)
            self._projection = np.pad(self._projection, (0, more))
        self._rows[self.steps] = vector
