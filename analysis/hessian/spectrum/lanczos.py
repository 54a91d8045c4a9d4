"""The Lanczos process, always with full re-orthogonalisation.

Without it, converged eigenvalues come back as copies ("ghosts").  A product loses first its parts along the few basis
vectors it couples to, and then, in one pass over the whole basis, what rounding left along the others; another pass
follows where that was not little.  It costs 4md flops a step, which is little compared with a Hessian-vector product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from analysis.hessian.spectrum.evidence import StartRecord
from analysis.hessian.spectrum.symmetry import asymmetry
from landscape import FedscapeError

_BREAKDOWN = 100.0
"""A new direction is rounding only where it is shorter than this many roundings of the operator's scale."""
_KEPT = 0.7
"""Another pass follows one that leaves less than this share of a vector: what rounding leaves along the basis is a
share of what a pass began with (Daniel, Gragg, Kaufman & Stewart, Math. Comp. 1976)."""
_GROUP_BYTES = 2**28
"""The basis is used in groups of rows of this size: of a basis in host memory no more is on the device at once."""
_PIECE_BYTES = 2**22
"""A basis is rotated in pieces of columns of this size, because memory has no room for a second one."""
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
    block product.  After every step A Q = Q T + P C, where the columns of P, the waiting vectors, have norm 1 and are
    orthogonal to Q.  From one start vector there is one of them and T is tridiagonal.

    A Krylov space contains only one eigenvector of a multiple eigenvalue: the projection of the start vector on its
    eigenspace.  ``branch`` begins another space from a random vector orthogonal to the basis: another chain, with a
    waiting vector of its own.  Where all spaces turn out invariant the process begins one by itself, until
    ``complete``.

    ``restart`` shrinks the basis to some of its Ritz vectors (Wu & Simon, SIMAX 2000: thick restart); T is then
    diagonal, and only the waiting vectors couple to it.

    Args:
        start: the start vector, [d].
        generator: draws the vectors that begin other spaces, on the CPU.
        capacity: memory for that many basis vectors is allocated at once; more when it is needed.
        offload: keep the basis in host memory (pinned for a GPU), wherever ``start`` is.
    """

    def __init__(
        self, start: Tensor, generator: torch.Generator, *, capacity: int | None = None, offload: bool = False
    ) -> None:
        self.steps = 0
        """m, the dimension of the basis."""
        self.absorbed = 0
        """Products used, including those before a restart."""
        self.restarts = 0
        """How often the basis was shrunk."""
        self.asymmetry = 0.0
        """The largest :func:`analysis.hessian.spectrum.symmetry.asymmetry` of all products."""
        self._zero = torch.zeros_like(start)
        self._waiting = [start / start.norm()]  # P, the vector to be multiplied next first
        self._couplings: np.ndarray = np.zeros((1, 0))  # C
        self._projection: np.ndarray = np.zeros((0, 0))  # T's lower triangle, with room to grow
        self._tridiagonal = True
        self._scale = 0.0
        self.record = StartRecord()
        """Of the start vector, until another space shares the basis."""
        self._generator = generator
        self._offload = offload
        self._rows = self._allocate(capacity or 0)

    @property
    def vector(self) -> Tensor:
        """The vector to multiply next, [d], of norm 1 (zero once ``complete``)."""
        return self._waiting[0] if self._waiting else self._zero

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
        """C, [waiting vectors, m]; the first row is that of the vector to multiply next."""
        return self._couplings

    @property
    def complete(self) -> bool:
        """Whether the basis spans the whole space."""
        return self.steps == self._rows.shape[1]

    def remainder(self) -> Tensor:
        """The part outside the basis of A times its latest vector, [d]."""
        outside = torch.zeros_like(self._zero)
        for vector, coupling in zip(self._waiting, self._couplings[:, -1], strict=True):
            outside.add_(vector, alpha=float(coupling))
        return outside

    def absorb(self, product: Tensor) -> bool:
        """Add ``vector`` to the basis.

        Args:
            product: A times it.

        Returns:
            Whether its chain goes on (its next vector is then the next to multiply); else its space is invariant.
        """
        vector = self._waiting.pop(0)
        coupled = self._orthogonalise_waiting(vector)
        self._append(vector)
        residual, components, norm = self._orthogonalise(product, coupled)
        along = float(components[-1])
        self._projection[self.steps, : self.steps], self._projection[self.steps, self.steps] = coupled, along
        self.steps += 1
        self.absorbed += 1
        self._couplings = np.hstack([self._couplings, np.zeros((len(self._couplings), 1))])
        self._scale, epsilon = max(self._scale, abs(along) + norm), torch.finfo(product.dtype).eps
        self.asymmetry = max(self.asymmetry, asymmetry(components, coupled, norm, self._scale, epsilon))
        # Not `>`: a product that is not finite goes on, and the caller sees it in the diagonal.
        goes_on = not (self.complete or norm <= _BREAKDOWN * epsilon * self._scale)
        self.record.step(coupled, along, norm if goes_on else 0.0)
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
        """Begin another chain, with a random vector orthogonal to the basis.

        Raises:
            ValueError: the basis is complete.
        """
        if self.complete:
            raise ValueError("nothing is orthogonal to a complete basis")
        vector = torch.randn(len(self._zero), generator=self._generator, dtype=torch.float64).to(self._zero)
        self.record.close()
        self._tridiagonal = self._tridiagonal and not self._waiting
        self._begin(self._outside(vector), np.zeros(self.steps))

    def follow(self, chain: int) -> None:
        """Make the waiting vector of that index (a row of ``couplings``) the next to multiply."""
        if chain:
            vector, couplings = self._waiting.pop(chain), self._couplings[chain]
            self._couplings = np.delete(self._couplings, chain, axis=0)
            self._begin(self._outside(vector), couplings)

    def ritz(self) -> Ritz:
        """Eigenvalues of T."""
        matrix = self._projection[: self.steps, : self.steps]
        if self._tridiagonal and _DIVIDES:
            values, vectors = scipy.linalg.eigh_tridiagonal(np.diagonal(matrix), np.diagonal(matrix, -1))
        else:
            values, vectors = scipy.linalg.eigh(matrix, driver="evd")  # reads the lower triangle
        coupled = self._couplings @ vectors
        squares = coupled**2 if len(coupled) == 1 else coupled * (self._angles() @ coupled)
        return Ritz(values, np.sqrt(squares.sum(axis=0).clip(min=0)), vectors[0] ** 2, vectors)

    def restart(self, choose: Callable[[np.ndarray], np.ndarray]) -> None:
        """Shrink the basis to the chosen Ritz vectors and the two outermost ones.

        Args:
            choose: maps the Ritz values, ascending, to the indices of those to keep.
        """
        ritz = self.ritz()
        kept = np.union1d(choose(ritz.values), [0, self.steps - 1])
        self.restarts += 1
        self.record.restart(ritz.coordinates[:, kept])
        self._rotate(ritz.values[kept], ritz.coordinates[:, kept])

    def to_ritz_vectors(self, first: np.ndarray) -> Tensor:
        """Rotate the basis into the Ritz vectors; those of the indices ``first`` (of ``ritz()``) come first.

        Returns:
            These as rows: a view of the basis, without memory of their own.
        """
        ritz = self.ritz()
        rest = np.setdiff1d(np.arange(self.steps), first)
        order = np.concatenate([first, rest])
        self.record.close()
        self._rotate(ritz.values[order], ritz.coordinates[:, order])
        return self._rows[: len(first)]

    def outside(self, block: Tensor) -> Tensor:
        """(I − QQᵀ) times the columns of a block [d, n], on the block's device."""
        outside = block.clone()  # changed in place: up to Python 3.10 a caller holds what it passes until the call ends
        for rows in self._groups(0, self.steps, block.device):
            outside -= rows.T @ (rows @ outside)
        return outside

    def state(self) -> dict[str, Any]:
        """Everything the process continues from, of tensors in host memory and plain values."""
        return {
            # Through NumPy: torch would save the whole tensor that a slice is of.
            "basis": torch.from_numpy(self.basis.cpu().numpy()),
            "waiting": [vector.cpu() for vector in self._waiting],
            "projection": torch.from_numpy(self._projection[: self.steps, : self.steps].copy()),
            "couplings": torch.from_numpy(self._couplings.copy()),
            "tridiagonal": self._tridiagonal,
            "absorbed": self.absorbed,
            "scale": self._scale,
            "asymmetry": self.asymmetry,
            "generator": self._generator.get_state(),
            "record": self.record.state(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` gave, to the same values to the last bit."""
        basis = state["basis"]
        if len(basis) > len(self._rows):
            self._rows = self._allocate(len(basis))
        self._rows[: len(basis)] = basis
        self._waiting = [vector.to(self._zero) for vector in state["waiting"]]
        self._projection, self._couplings = state["projection"].numpy(), state["couplings"].numpy()
        self.steps, self.absorbed, self._tridiagonal = len(basis), state["absorbed"], state["tridiagonal"]
        self._scale = state["scale"]
        self.asymmetry = state.get("asymmetry", 0.0)  # earlier versions did not look
        try:
            self._generator.set_state(state["generator"])
        except RuntimeError as error:
            raise FedscapeError(f"the state of the random numbers is damaged: {error}") from error
        self.record = StartRecord.resumed(state["record"])

    def _rotate(self, values: np.ndarray, coordinates: np.ndarray) -> None:
        columns = torch.from_numpy(coordinates).to(self._zero).T
        steps, (kept, _) = self.steps, columns.shape
        width = max(1, _PIECE_BYTES // (steps * self._rows.itemsize))
        for begin in range(0, self._rows.shape[1], width):  # in place
            piece = self._rows[:steps, begin : begin + width].to(self._zero.device)
            self._rows[:kept, begin : begin + width] = (columns @ piece).to(self._rows.device)
        self.steps = kept
        self._projection = np.diag(values)
        self._couplings = self._couplings @ coordinates
        # A value that does not couple is left out of the arithmetic of later restarts, and so stays as it is.
        self._couplings[np.abs(self._couplings) <= np.finfo(float).eps * self._scale] = 0.0
        self._tridiagonal = False

    def _begin(self, vector: Tensor, couplings: np.ndarray) -> None:
        self._waiting.insert(0, vector)
        self._couplings = np.vstack([couplings, self._couplings])

    def _orthogonalise_waiting(self, vector: Tensor) -> np.ndarray:
        """Orthogonalise the other waiting vectors to the next basis vector; return the basis's couplings to it, [m]."""
        coupled, waiting, couplings = self._couplings[0], [], []
        if not self._waiting:
            self._couplings = np.zeros((0, self.steps))
            return coupled
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

    def _orthogonalise(self, product: Tensor, coupled: np.ndarray) -> tuple[Tensor, np.ndarray, float]:
        """The part of A times the latest vector outside of the basis, its components along the basis, the part's norm.

        Args:
            product: A times it.
            coupled: the other basis vectors' couplings to it, [m - 1].
        """
        known, steps = np.flatnonzero(coupled), self.steps + 1
        first = int(known[0]) if len(known) else self.steps
        components = np.zeros(steps)
        residual, components[first:] = self._remove(product, first, steps)
        before, norm = np.inf, torch.linalg.vector_norm(residual).item()
        while norm < _KEPT * before:
            residual, rest = self._remove(residual, 0, steps)
            components += rest
            before, norm = norm, torch.linalg.vector_norm(residual).item()
        return residual, components, norm

    def _angles(self) -> np.ndarray:
        """PᵀP, [waiting vectors, waiting vectors]."""
        angles = np.eye(len(self._waiting))
        for i, j in combinations(range(len(self._waiting)), 2):
            angles[i, j] = angles[j, i] = float(torch.dot(self._waiting[i], self._waiting[j]))
        return angles

    def _outside(self, vector: Tensor) -> Tensor:
        for _ in range(2):
            vector, _components = self._remove(vector, 0, self.steps)
        return vector / vector.norm()

    def _groups(self, first: int, last: int, device: torch.device) -> Iterator[Tensor]:
        size = max(1, _GROUP_BYTES // (self._rows.shape[1] * self._rows.itemsize))
        for begin in range(first, last, size):
            yield self._rows[begin : min(last, begin + size)].to(device, non_blocking=True)

    def _remove(self, vector: Tensor, first: int, last: int) -> tuple[Tensor, np.ndarray]:
        """The vector minus its projection on these rows, and its components along them, [last - first]."""
        components = []
        for group in self._groups(first, last, vector.device):
            components.append(group @ vector)
            vector = torch.addmv(vector, group.T, components[-1], alpha=-1)
        # One transfer, as that of a single number would be.
        return vector, (components[0] if len(components) == 1 else torch.cat(components)).cpu().numpy()

    def _allocate(self, rows: int) -> Tensor:
        d = len(self._zero)
        if not self._offload:
            return self._zero.new_empty((rows, d))
        pinned = self._zero.device.type == "cuda" and rows > 0
        return torch.empty((rows, d), dtype=self._zero.dtype, pin_memory=pinned)

    def _append(self, vector: Tensor) -> None:
        if self.steps == len(self._rows):
            larger = self._allocate(min(len(vector), max(32, 3 * self.steps // 2)))
            larger[: self.steps] = self._rows
            self._rows = larger
        if self.steps == len(self._projection):
            more = max(32, self.steps // 2)
            self._projection = np.pad(self._projection, (0, more))
        self._rows[self.steps] = vector
