"""What a random start vector says of eigenvectors that its Krylov space has not shown.

A start vector drawn uniformly from the sphere has some part of every eigenvector.  As the Krylov space grows, its
vectors would hold more and more of that part, and they hold no more than all of it: so an eigenvector that shows in no
Ritz value must have had a very small part of the start, and how improbable that is, is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
import torch

UNSEEN = 1e-2
"""Bound on the probability that an eigenvalue between those found, or beyond them, has not shown."""
_GROWN = 1e100
"""Polynomials are followed to this size: a part of the start as small as that is out of the question."""


class StartRecord:
    """The recurrence of a Krylov space since its start vector b, from which the polynomials of its vectors follow.

    For an eigenvector u of A with the eigenvalue λ, the recurrence gives the components uᵀq_j = ψ_j(λ) uᵀb of all basis
    vectors q_j and of the next one, also beyond restarts.  These vectors are orthonormal, so Σ_j (uᵀq_j)² <= 1, and
    (uᵀb)² <= 1/Σ_j ψ_j(λ)²: before a restart that is the Christoffel function of the quadrature that belongs to b.
    """

    def __init__(self) -> None:
        self._events: list[tuple[str, np.ndarray, float, float]] = []
        self.open = True
        """Whether the steps that follow belong to it: not once another space shares the basis."""

    def step(self, coupled: np.ndarray, value: float, norm: float) -> None:
        """Note a step that makes q the next basis vector.

        Args:
            coupled: T's new row without its last element, q_jᵀAq, [m].
            value: qᵀAq.
            norm: the length of what Aq has outside of the basis; 0 where the space is invariant.
        """
        if self.open:
            known = np.flatnonzero(coupled)
            self._events.append(("step", coupled[known[0] :].copy() if len(known) else np.zeros(0), value, norm))

    def restart(self, coordinates: np.ndarray) -> None:
        """Note that the basis was shrunk to these combinations of its vectors (columns, [m, kept])."""
        if self.open:
            self._events.append(("restart", coordinates.copy(), 0.0, 0.0))

    def close(self) -> None:
        """The steps that follow belong to other spaces too."""
        self.open = False

    def hidden(self, points: np.ndarray) -> np.ndarray:
        """The largest (uᵀb)² that an eigenvector u may have if its eigenvalue is λ, for each of the points λ, [n].

        Not for points to which a Ritz value has converged: rounding outgrows what is left of their polynomials.
        """
        # ψ of the basis vectors, by vector; the sum of their squares; ψ of the next vector.
        parts: list[np.ndarray] = []
        squares, ahead, largest = np.zeros(len(points)), np.ones(len(points)), np.ones(len(points))
        for kind, array, value, norm in self._events:
            if kind == "restart":
                parts = list((np.column_stack(parts) @ array).T)
                squares = sum((part**2 for part in parts), np.zeros(len(points)))
                continue
            beyond = (points - value) * ahead
            for x, part in zip(array[::-1], reversed(parts), strict=False):
                beyond -= x * part  # only the last vectors couple to q: the array lacks its leading zeros
            with np.errstate(over="ignore"):
                following = beyond / norm if norm else np.where(beyond == 0, 0.0, np.inf)
            parts.append(ahead)
            squares = squares + ahead**2
            grown = np.abs(following) >= _GROWN
            if grown.any():  # what has grown out of all proportion stays where it is
                following, parts[-1] = np.where(grown, _GROWN, following), np.where(grown, 0.0, ahead)
            ahead = following
            largest = np.maximum(largest, squares + ahead**2)
        return 1 / largest

    def missed(self, points: np.ndarray, dimension: int) -> np.ndarray:
        """The probability that an eigenvector with an eigenvalue at a point had so small a part of the start, [n].

        The square of one coordinate of a random unit vector of that dimension, times the dimension, is χ² with one
        degree of freedom (to O(1/dimension)); that it is below x has the probability erf √(x/2).
        """
        return scipy.special.erf(np.sqrt(dimension * self.hidden(points) / 2))

    def state(self) -> dict[str, Any]:
        """Everything the record continues from, of tensors and plain values."""
        events = [[kind, torch.from_numpy(array.copy()), value, norm] for kind, array, value, norm in self._events]
        return {"events": events, "open": self.open}

    @classmethod
    def resumed(cls, state: dict[str, Any]) -> StartRecord:
        """The record that ``state`` gave."""
        record = cls()
        record._events = [(kind, array.numpy(), value, norm) for kind, array, value, norm in state["events"]]
        record.open = state["open"]
        return record
