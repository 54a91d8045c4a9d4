"""The search for eigenvectors that the first start vector had no part of: those of multiple eigenvalues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from analysis.hessian.spectrum.evidence import StartRecord
from analysis.hessian.spectrum.lanczos import Lanczos, Ritz
from analysis.hessian.spectrum.stopping import UNSEEN, Approximation
from analysis.hessian.spectrum.wanted import Wanted

_SHARE, _STEPS = 0.2, 10
"""A search ends with this share of all products, and so many steps at least, whatever is still possible."""


class MultiplicitySearch:
    """Once the wanted values have settled, some steps from a second random start look for further copies of them.

    A Krylov space holds one eigenvector of a multiple eigenvalue.  The others are eigenvectors of PAP, A restricted to
    what is orthogonal to the basis, outermost ones, which Lanczos finds from a random start.  The search ends when it
    is improbable (below 1 %, by the record of its start) that PAP has an eigenvalue as large as the least of which a
    copy would take a wanted value's place, or with a fifth of all products; ``missed`` is the probability then.  Where
    one value is wanted (k = 1) no copy of it is needed.

    Args:
        wanted: the eigenvalues wanted.
        tolerance: values that differ by less than this share are one.
    """

    def __init__(self, wanted: Wanted, tolerance: float) -> None:
        self._wanted, self._tolerance = wanted, tolerance
        self._steps: _SecondStart | None = None
        self.products = 0
        """Products spent on searches."""
        self.missed = 0.0
        """The probability that a copy which would take a wanted value's place was not seen by the last search."""

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
            return found.settled and not self._begun(krylov, ritz, found, goes_on)
        self.products += 1
        self._steps.note(krylov, goes_on)
        self.missed = self._steps.missed(self._copied(ritz, found))
        through = self.missed <= UNSEEN or self._steps.count >= max(_SHARE * krylov.absorbed, _STEPS)
        if self._steps.differs(found.values):
            self._steps = None  # something was found: another search follows once it has settled
            return found.settled and not self._begun(krylov, ritz, found, goes_on)
        if through and not found.settled:
            self._steps = None
        return through and found.settled

    def _begun(self, krylov: Lanczos, ritz: Ritz, found: Approximation, goes_on: bool) -> bool:
        """Begin a search, if a copy of some value would take a wanted one's place."""
        if self._wanted.k == 1 or not len(self._copied(ritz, found)):
            self.missed = 0.0
            return False
        dimension = krylov.basis.shape[1] - krylov.steps
        if goes_on or len(krylov.couplings) > 1:
            krylov.branch()  # else the process has begun one by itself
        self._steps = _SecondStart(found.values, found.margin, dimension, StartRecord())
        return True

    def _copied(self, ritz: Ritz, found: Approximation) -> np.ndarray:
        return self._wanted.copied(ritz.values, self._tolerance, found.floor)

    def state(self) -> dict[str, Any]:
        """Everything the search continues from."""
        steps, counts = self._steps, {"searched": self.products, "missed": self.missed}
        if steps is None:
            return {"search": counts}
        arrays = {"values": torch.from_numpy(steps.values.copy()), "margin": torch.from_numpy(steps.margin.copy())}
        more = {"dimension": steps.dimension, "count": steps.count, "last": steps.last, "record": steps.record.state()}
        return {"search": {**counts, "steps": {**arrays, **more}}}

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` gave."""
        saved = state["search"]
        self.products, self.missed = saved["searched"], saved["missed"]
        if (steps := saved.get("steps")) is not None:
            record = StartRecord.resumed(steps["record"])
            values, margin = steps["values"].numpy(), steps["margin"].numpy()
            self._steps = _SecondStart(values, margin, steps["dimension"], record, steps["count"], steps["last"])


@dataclass
class _SecondStart:
    """The steps of a search.

    Attributes:
        values: the wanted values when it began, [k].
        margin: the errors allowed in them, [k].
        dimension: of what was orthogonal to the basis then.
        record: of the start, whose Krylov space is of PAP.
        count: steps taken.
        last: the length of what the last product had outside of the basis.
    """

    values: np.ndarray
    margin: np.ndarray
    dimension: int
    record: StartRecord
    count: int = 0
    last: float = 0.0

    def note(self, krylov: Lanczos, goes_on: bool) -> None:
        """Note the step that the process took."""
        norm = float(krylov.couplings[0, -1]) if goes_on else 0.0
        coupled = np.array([self.last]) if self.count else np.zeros(0)
        self.record.step(coupled, float(krylov.diagonal[-1]), norm)
        self.count, self.last = self.count + 1, norm

    def differs(self, values: np.ndarray) -> bool:
        """Whether another value has come among the wanted ones."""
        return bool((np.abs(values - self.values) > self.margin).any())

    def missed(self, copied: np.ndarray) -> float:
        """The probability that PAP has an eigenvector at one of these values or further out that has not shown."""
        return float(self.record.missed(copied, self.dimension).max(initial=0.0))
