"""The search for eigenvectors that the first start vector had no part of: those of multiple eigenvalues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from analysis.hessian.spectrum.evidence import UNSEEN, StartRecord
from analysis.hessian.spectrum.lanczos import Lanczos, Ritz
from analysis.hessian.spectrum.stopping import Approximation
from analysis.hessian.spectrum.wanted import Wanted

_BEGIN = 0.02
"""A search begins once this bounds the probability that the first start has missed an eigenvalue in a gap.  Later
starts say nothing of an eigenvector that the basis already has a part of, though no Ritz value shows it yet: so this
alone must be small.  With 2 %, 3 of 12,000 starts on eight spectra, none of which had been looked at when it was
chosen, gave a value off by more than its bound, at most 1 of 500 in a case; with 20 %, which saves one to three
products, up to 5 of 500."""
_SHARE, _STEPS = 0.3, 10
"""A search ends with this share of all products, and so many steps at least, whatever is still possible."""

_BESIDE = 4
"""A basis shrunk for a search keeps half as many Ritz vectors beside the wanted ones, whose bounds need them."""


class MultiplicitySearch:
    """Once the wanted values have converged, some steps from a second random start look for what was missed.

    A Krylov space holds one eigenvector of a multiple eigenvalue.  The others are eigenvectors of PAP, A restricted to
    what is orthogonal to the basis, outermost ones, which Lanczos finds from a random start.  The search ends when it
    is improbable (below 1 %, by the record of its start) that PAP has an eigenvalue as large as the least of which a
    copy would take a wanted value's place, or with three tenths of all products; ``missed`` is the probability then.
    Where one value is wanted (k = 1) no copy of it is needed.

    An eigenvalue between those found, or beyond them, may also have not shown because the first start had little part
    of its eigenvector.  The second start is independent of the first: that both have missed it has the product of the
    two probabilities, which must be below 1 % at several places in each gap before the search ends.  It begins where
    the first start's probability is below 2 %.  Where there is no search, or the basis would be shrunk during it, the
    first start brings all of the evidence.

    Args:
        wanted: the eigenvalues wanted.
        tolerance: values that differ by less than this share are one.
        room: basis vectors held at most.
    """

    def __init__(self, wanted: Wanted, tolerance: float, room: int) -> None:
        self._wanted, self._tolerance, self._room = wanted, tolerance, room
        self._steps: _SecondStart | None = None
        self.products = 0
        """Products spent on searches."""
        self.missed = 0.0
        """The probability that the last search did not see what would take a wanted value's place, if there is any."""

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
        if self._steps is None and not found.converged.all():
            return False
        copied = self._copied(ritz, found)
        if self._steps is not None:
            self.products += 1
            self._steps.note(krylov, goes_on)
            self.missed = float(self._steps.missed(copied).max(initial=0.0))
            if not self._steps.differs(found.values):
                return self._through(krylov, found)
            self._steps = None  # something was found: another search follows once it has converged
        if not found.converged.all():
            return False
        unseen = self._unseen(krylov, found)
        if unseen <= UNSEEN and not len(copied):
            self.missed = 0.0
            return True
        enough = _BEGIN if len(copied) and krylov.steps + self._most(krylov) <= self._room else UNSEEN
        if unseen <= enough or not krylov.record.open:
            self._begin(krylov, found, goes_on)
        return False

    def _through(self, krylov: Lanczos, found: Approximation) -> bool:
        """Whether the search has looked far enough, and no value moves any more."""
        assert self._steps is not None
        if self.missed > UNSEEN and self._steps.count < self._most(krylov):
            return False
        if not found.converged.all():
            self._steps = None
            return False
        unseen = self._unseen(krylov, found)
        if unseen > UNSEEN and krylov.steps < self._room:
            return False
        self.missed = max(self.missed, unseen)
        return True

    def _most(self, krylov: Lanczos) -> float:
        """Steps after which a search ends whatever copies are still possible."""
        return max(_SHARE * krylov.absorbed, _STEPS)

    def _unseen(self, krylov: Lanczos, found: Approximation) -> float:
        """The largest probability that all starts have missed an eigenvalue at one of the places."""
        missed = krylov.record.missed(found.places, krylov.basis.shape[1])
        if self._steps is not None:
            missed = missed * self._steps.missed(found.places)
        return float(missed.max(initial=0.0))

    def _begin(self, krylov: Lanczos, found: Approximation, goes_on: bool) -> None:
        if krylov.steps + self._most(krylov) > self._room < krylov.basis.shape[1]:
            # A restart in its midst would end the record of its start: with few vectors left it has the room there is.
            krylov.restart(lambda ascending: self._wanted.keep(ascending, self._wanted.count + _BESIDE))
        dimension = krylov.basis.shape[1] - krylov.steps
        if goes_on or len(krylov.couplings) > 1:
            krylov.branch()  # else the process has begun one by itself
        self._steps = _SecondStart(found.values, found.margin, dimension, StartRecord())

    def _copied(self, ritz: Ritz, found: Approximation) -> np.ndarray:
        """Values of which a copy would take a wanted one's place."""
        return self._wanted.copied(ritz.values, self._tolerance, found.floor) if self._wanted.k > 1 else np.zeros(0)

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
        self.count, self.last = self.count + 1, norm
        if krylov.steps < krylov.basis.shape[1] - self.dimension + self.count:
            self.record.close()  # the basis was shrunk: its vectors are mixed, and this chain's no longer among them
        self.record.step(coupled, float(krylov.diagonal[-1]), norm)

    def differs(self, values: np.ndarray) -> bool:
        """Whether another value has come among the wanted ones."""
        return bool((np.abs(values - self.values) > self.margin).any())

    def missed(self, points: np.ndarray) -> np.ndarray:
        """The probability that PAP has an eigenvector with an eigenvalue at a point that has not shown, [n]."""
        return self.record.missed(points, self.dimension)
