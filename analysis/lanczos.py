"""The Lanczos process, with full re-orthogonalisation in two passes, always.

Without it, converged eigenvalues come back as copies ("ghosts"); it costs 4md flops a step, which is
little beside a Hessian-vector product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.linalg import eigh, eigh_tridiagonal
from torch import Tensor

_BREAKDOWN = 100.0
"""A new direction shorter than this many roundings of the operator's scale is rounding only."""
_GROUP_BYTES = 2**28
"""The basis is worked on in groups of rows of this size: of one in host memory, no more is on the device at once."""


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
    """A growing orthonormal basis of a Krylov space and the projection T of A onto it.

    The caller multiplies: ``process.absorb(A @ process.vector)`` is a step, so that several processes can
    share one block product.  Where the space turns out invariant, the process goes on with a random vector
    orthogonal to it (a new block), until ``complete``.

    ``restart`` shrinks the basis to some of its Ritz vectors (Wu & Simon, SIMAX 2000: thick restart).  T, tridiagonal
    before, is then diagonal in these, and they couple to the next vector alone (an arrow).

    Args:
        start: the start vector, [d].
        generator: draws the vectors after an invariant space, on the CPU.
        capacity: room for that many basis vectors is taken at once; more are taken when they are needed.
        offload: keep the basis in host memory (pinned for a GPU), however ``start`` lies.
    """

    def __init__(
        self, start: Tensor, generator: torch.Generator, *, capacity: int | None = None, offload: bool = False
    ) -> None:
        self.vector = start / start.norm()
        """The vector to be multiplied next, [d], of norm 1 (zero once ``complete``)."""
        self.diagonal: list[float] = []
        """T's diagonal: its sum is tr QᵀAQ, before and after a restart."""
        self.off_diagonal: list[float] = []
        self.blocks = [0]
        """Where the invariant blocks begin."""
        self.absorbed = 0
        """Products taken in, those before a restart too."""
        self.invariant = False
        """Whether an invariant space was ever met."""
        self._arrow = np.zeros(0)  # what couples the vectors kept by a restart to the one after them
        self._generator = generator
        self._offload = offload
        self._rows = self._room(capacity or 0)

    @property
    def steps(self) -> int:
        """m, the dimension of the basis."""
        return len(self.diagonal)

    @property
    def basis(self) -> Tensor:
        """The orthonormal basis as rows, [m, d] (in host memory where it is offloaded)."""
        return self._rows[: self.steps]

    @property
    def complete(self) -> bool:
        """Whether the basis spans the whole space."""
        return self.steps == self._rows.shape[1]

    def absorb(self, product: Tensor) -> None:
        """Take in A times ``vector``."""
        self._append(self.vector)
        residual, first = self._remove(product, self.steps + 1)
        residual, second = self._remove(residual, self.steps + 1)
        self.absorbed += 1
        self.diagonal.append(float(first + second))
        norm = residual.norm().item()
        scale = max(abs(a) for a in self.diagonal) + max(self.off_diagonal, default=0.0)
        if self.complete:
            norm, residual = 0.0, torch.zeros_like(residual)
        elif norm <= _BREAKDOWN * torch.finfo(product.dtype).eps * scale or norm == 0.0:
            norm, residual = 0.0, self._fresh(product)
            self.blocks.append(self.steps)
            self.invariant = True
        self.off_diagonal.append(norm)
        self.vector = residual / residual.norm().clamp_min(torch.finfo(product.dtype).tiny)

    def ritz(self, first: int = 0, last: int | None = None) -> Ritz:
        """Eigenvalues of T, from the basis vector ``first`` on (up to before ``last``, the begin of a block)."""
        last = self.steps if last is None else last
        kept = len(self._arrow)
        if first >= kept:
            values, vectors = eigh_tridiagonal(self.diagonal[first:last], self.off_diagonal[first : last - 1])
        else:
            matrix = np.diag(self.diagonal) + np.diag(self.off_diagonal[:-1], -1)
            if self.steps > kept:
                matrix[kept, :kept] = self._arrow
            values, vectors = eigh(matrix[first:last, first:last], driver="evd")  # reads the lower triangle
        return Ritz(values, np.abs(self._coupling(first, last) @ vectors), vectors[0] ** 2, vectors)

    def restart(self, choose: Callable[[np.ndarray], np.ndarray]) -> None:
        """Shrink the basis to the Ritz vectors chosen, and to the outermost of the latest block.

        Invariant blocks stay apart: a value that two blocks share stays two.

        Args:
            choose: which of the Ritz values, given ascending: their indices.
        """
        edges = [first for first in self.blocks if first < self.steps] + [self.steps]
        parts = [self.ritz(first, last) for first, last in pairwise(edges)]
        values = np.concatenate([part.values for part in parts])
        owner = np.repeat(np.arange(len(parts)), np.diff(edges))
        order = np.argsort(values, kind="stable")
        chosen = set(order[choose(values[order])].tolist()) | {edges[-2], edges[-1] - 1}
        kept = np.array(sorted(chosen, key=lambda i: (owner[i], values[i])))
        coordinates = np.zeros((self.steps, len(kept)))
        for column, i in enumerate(kept):
            first, last = edges[owner[i]], edges[owner[i] + 1]
            coordinates[first:last, column] = parts[owner[i]].coordinates[:, i - first]
        begins = sorted({int(np.argmax(owner[kept] == block)) for block in owner[kept]})
        fresh = [len(kept)] if self.blocks[-1] == self.steps else []
        self._turn(values[kept], coordinates)
        self.blocks = begins + fresh

    def to_ritz_vectors(self, first: np.ndarray) -> Tensor:
        """Turn the basis into the Ritz vectors; those of the indices ``first`` (of ``ritz()``) come first.

        Returns:
            those, as rows: a view of the basis, so that they need no memory of their own.
        """
        ritz = self.ritz()
        rest = np.setdiff1d(np.arange(self.steps), first)
        order = np.concatenate([first, rest])
        self._turn(ritz.values[order], ritz.coordinates[:, order])
        self.blocks = [0]
        return self._rows[: len(first)]

    def outside(self, block: Tensor) -> Tensor:
        """(I − QQᵀ) times the columns of a block [d, n], wherever the basis lies."""
        for rows in self._groups(self.steps, block.device):
            block = block - rows.T @ (rows @ block)
        return block

    def state(self) -> dict[str, Any]:
        """Everything the process goes on from, of tensors in host memory and plain values."""
        return {
            # By way of NumPy: of a part of a tensor torch would write the whole.
            "basis": torch.from_numpy(self.basis.cpu().numpy()),
            "vector": self.vector.cpu(),
            "diagonal": self.diagonal,
            "off_diagonal": self.off_diagonal,
            "arrow": torch.from_numpy(self._arrow.copy()),
            "blocks": self.blocks,
            "absorbed": self.absorbed,
            "invariant": self.invariant,
            "generator": self._generator.get_state(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from what ``state`` gave: the same values to the last bit."""
        basis = state["basis"]
        if len(basis) > len(self._rows):
            self._rows = self._room(len(basis))
        self._rows[: len(basis)] = basis
        self.vector = state["vector"].to(self.vector)
        self.diagonal, self.off_diagonal = state["diagonal"], state["off_diagonal"]
        self._arrow = state["arrow"].numpy()
        self.blocks, self.absorbed, self.invariant = state["blocks"], state["absorbed"], state["invariant"]
        self._generator.set_state(state["generator"])

    def _coupling(self, first: int, last: int) -> np.ndarray:
        """What couples the basis vectors from ``first`` to before ``last`` to the one at ``last``."""
        if last == len(self._arrow) == self.steps:
            return self._arrow[first:]
        coupling = np.zeros(last - first)
        coupling[-1] = self.off_diagonal[last - 1]
        return coupling

    def _turn(self, values: np.ndarray, coordinates: np.ndarray) -> None:
        arrow = self._coupling(0, self.steps) @ coordinates
        columns = torch.from_numpy(coordinates).to(self.vector).T
        steps, (kept, _) = self.steps, columns.shape
        width = max(1, _GROUP_BYTES // (4 * steps * self._rows.itemsize))
        for begin in range(0, self._rows.shape[1], width):  # in place: there is no room for both bases
            piece = self._rows[:steps, begin : begin + width].to(self.vector.device)
            self._rows[:kept, begin : begin + width] = (columns @ piece).to(self._rows.device)
        self.diagonal = [float(value) for value in values]
        self.off_diagonal = [0.0] * kept
        self._arrow = arrow

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
        d = len(self.vector)
        if not self._offload:
            return self.vector.new_empty((rows, d))
        pinned = self.vector.device.type == "cuda" and rows > 0
        return torch.empty((rows, d), dtype=self.vector.dtype, pin_memory=pinned)

    def _append(self, vector: Tensor) -> None:
        if self.steps == len(self._rows):
            larger = self._room(min(len(vector), max(32, 3 * self.steps // 2)))
            larger[: self.steps] = self._rows
            self._rows = larger
        self._rows[self.steps] = vector

    def _fresh(self, like: Tensor) -> Tensor:
        vector = torch.randn(len(like), generator=self._generator, dtype=torch.float64).to(like)
        for _ in range(2):
            vector, _component = self._remove(vector, self.steps)
        return vector
