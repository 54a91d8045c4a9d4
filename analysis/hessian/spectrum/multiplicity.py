"""The search for eigenvectors that the first start vector had no part of: those of multiple eigenvalues."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal

from analysis.hessian.spectrum.lanczos import Lanczos, Ritz
from analysis.hessian.spectrum.stopping import Approximation
from analysis.hessian.spectrum.wanted import Wanted

_MISSED = 1e-2
"""Bound on the probability that a search for multiple eigenvalues misses one (on hard spectra of 240 eigenvalues, no
seed in 600 did)."""
_SHARE, _APART = 0.2, 0.2
"""A search that finds values near those wanted ends with this share of all products, where others as far apart as
this share of the spectrum's width would have been found."""


class MultiplicitySearch:
    """Once the wanted values have settled, some steps from a second random start look for further copies of them.

    A Krylov space holds one eigenvector of a multiple eigenvalue.  The others are eigenvectors of A restricted to what
    is orthogonal to the basis, outermost ones, which Lanczos finds from a random start.  Where one value is wanted
    (k = 1) no copy of it is needed.

    Args:
        wanted: the eigenvalues wanted.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._steps: _SecondStart | None = None

    @property
    def active(self) -> bool:
        """Whether a search is under way: the steps taken are its own."""
        return self._steps is not None

    def finished(self, krylov: Lanczos, ritz: Ritz, found: Approximation, goes_on: bool) -> bool:
        """Note one step of the process, and begin or end a search where it is time; to be called once a step.

        Args:
            krylov: the process; a search begins by a new branch of it.
            ritz: its Ritz values.
            found: the wanted values.
            goes_on: whether the step's Krylov space goes on; where it is invariant, it has told all.

        Returns:
            Whether the wanted values have settled and no further copy of them is to be expected.
        """
        if self._steps is None:
            if found.settled and self._wanted.k > 1:
                krylov.branch()
                self._steps = _SecondStart(found.values, found.margin)
            return found.settled and self._wanted.k == 1
        self._steps.note(krylov)
        through = not goes_on or self._steps.enough(self._wanted, krylov, ritz)
        if through and found.settled:
            return True
        if through or self._steps.differs(found.values):
            self._steps = None
        return False

    def state(self) -> dict[str, Any]:
        """Everything the search continues from."""
        steps = self._steps
        if steps is None:
            return {"search": None}
        arrays = {"values": torch.from_numpy(steps.values.copy()), "margin": torch.from_numpy(steps.margin.copy())}
        return {"search": {**arrays, "diagonal": steps.diagonal.copy(), "off": steps.off_diagonal.copy()}}

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` gave."""
        if (saved := state["search"]) is not None:
            values, margin = saved["values"].numpy(), saved["margin"].numpy()
            self._steps = _SecondStart(values, margin, saved["diagonal"], saved["off"])


@dataclass
class _SecondStart:
    """The steps of a search.

    Attributes:
        values: the wanted values when it began, [k].
        margin: the errors allowed in them, [k].
        diagonal, off_diagonal: the tridiagonal projection of the restricted matrix on the search's Krylov space.
    """

    values: np.ndarray
    margin: np.ndarray
    diagonal: list[float] = field(default_factory=list)
    off_diagonal: list[float] = field(default_factory=list)

    def note(self, krylov: Lanczos) -> None:
        """Note the step that the process took."""
        self.diagonal.append(float(krylov.diagonal[-1]))
        self.off_diagonal.append(float(krylov.couplings[0, -1]))

    def differs(self, values: np.ndarray) -> bool:
        """Whether another value has come among the wanted ones."""
        return bool((np.abs(values - self.values) > self.margin).any())

    def enough(self, wanted: Wanted, krylov: Lanczos, ritz: Ritz) -> bool:
        """Whether it is unlikely that there is something to find, or a fifth of all products went into the search.

        Kuczyński & Woźniakowski (SIMAX 1992, theorem 4.2): t steps from a random start miss the largest eigenvalue
        by more than ε of the spectrum's width with a probability of at most 1.648 √d exp(−√ε (2t − 1)).  The width is
        taken of the largest and smallest Ritz values, and ε from the innermost of the values found to the largest
        seen in the search.
        """
        steps = len(self.diagonal)
        seen = eigh_tridiagonal(self.diagonal, self.off_diagonal[: steps - 1], eigvals_only=True)
        low, high = wanted.limits(self.values)
        width = ritz.values[-1] - ritz.values[0]
        apart = min(high - seen[-1], seen[0] - low) / width
        needed = np.log(1.648 * np.sqrt(krylov.basis.shape[1]) / _MISSED)
        if (2 * steps - 1) * np.sqrt(max(apart, 0.0)) >= needed:
            return True
        return steps >= _SHARE * krylov.absorbed and (2 * steps - 1) * np.sqrt(_APART) >= needed
