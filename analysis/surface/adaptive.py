"""Fewer points for the same surface: some of a grid's points are measured, the others interpolated and checked.

The logarithm of the loss is interpolated through scattered points by radial basis functions (Φ(r) = r⁵ with a
polynomial of the second degree; Fasshauer, Meshfree Approximation Methods, 2007, chapter 8): on regular lattices they
are as good as cubic splines, and points can be added only where they are needed.  The error of the interpolant at a
point is estimated by its difference from a rougher one (Φ(r) = r³), times the ratio of error and difference at points
that were first predicted and then measured.  The points with the largest estimates are measured next.

This is an estimate and no bound: between measured points a function may do anything.  At the end the interpolant is
fixed and compared with the function at N points drawn uniformly among those never measured.  If a share p of the
interpolated points is off by more than the tolerance, one such check misses it with probability (1 − p)^N: of N = 20,
95 % of the checks find a share of 14 %, 64 % one of 5 %.  What is smaller than the spacing of the measured points, and
was touched by none of them, cannot be seen: a narrow bump, a few points without a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import scipy  # scipy.interpolate is loaded where it is used, because it takes its time

from landscape.compute.devices import one_blas_thread
from landscape.compute.randomness import numpy_generator

Measure = Callable[[list[tuple[int, int]], float | None], None]
"""Measures those of the points (row, column) that have no value; its second argument is the largest expected error."""

Interpolant = Callable[[np.ndarray], np.ndarray]
"""Values at points (row, column), [k, 2] -> [k, quantities]."""

FIRST_LINES = 6
"""Grid lines along each axis of the lattice that is measured first."""
_LEAST_POINTS = 225
"""Every point is measured of a grid with no more points, or with fewer than four lines along an axis."""
_BATCH = 8
"""Points measured before the next estimate, at least; an eighth of the measured ones where that is more."""
_ANYWHERE = 2
"""How many points are drawn at random in each step, beside the worst ones."""
CHECKS = 20
"""Points of the check at the end, unless the user chooses.  With 10, 20, 40 the estimate was too small for 16, 8 and 8
of 60 narrow bumps; planes of ``digits_mlp`` at 0.5 % took 177, 187 and 207 points (median of 16; without it 175)."""
_ATTEMPTS = 3
"""After so many checks that failed all points are measured."""
_SETTLED, _SURPRISES, _SURPRISING = 100, 4, 0.005
"""The surface is not smooth, and all points are measured, where of the predictions made from more than so many points
more than four, and more than 0.5 %, were off by more than the tolerance and by more than was expected of them."""
_REMEMBERED = 40
"""From how many of the last predictions the ratio of error and difference is taken."""
_QUANTILE, _LEAST_RATIO = 0.9, 0.1
"""Which quantile of their ratios is taken, and its least value."""
_FLOOR = 0.05
"""This share of the tolerance is added to each difference, because two interpolants may agree by chance."""
_SAFETY = 2.5
"""Expected errors and observed ones, times this factor, must be within the tolerance.

How often the largest estimate was below the largest true error, on 51² points: of ``digits_mlp`` (16 planes, to 150
samples; tolerances of 2, 1, 0.5 and 0.25 %) 0 of 64 times.  Of the families of ``tests/analysis/surface/families.py``,
60 members each at 0.5 %, without and with surprises and the check, and by how many times at most:

    ============  ================  ================  ========================================
    family        without           with              measured whole
    ============  ================  ================  ========================================
    hills         1 (1.1)           0                 0
    2 % step      23 (152)          0                 60
    kink line     4 (2.3)           0                 48
    saddle, 1e6   5 (4.5)           0                 60
    plateau       8 (29)            2 (3.2)           50
    narrow bump   13 (311)          8 (271)           4
    ============  ================  ================  ========================================

The bumps that are still missed are those that no point touches; one of 109 real surfaces was off by 3.26 % where 2.75 %
had been estimated without the check.  Other networks on 31² points (18 planes of ``digits_cnn``, random ones and the
Hessian's, 4 of ``lenet_fed`` and 3 of ``resnet20_gn`` on CIFAR-10; tolerances of 2, 1 and 0.5 %): of 75 surfaces 69
were interpolated, 3 of them off by more than estimated, by 1.31 times at most, and none by more than the tolerance;
with one check 3 too (1.40 times), with 60 checks 2 (1.37 times).
"""
SPREAD = 3.0
"""The largest deviation of a quantity that is no loss is estimated by that at the checks and at measured points that
are left out (a tenth of them at a time, as in tenfold cross-validation), times this factor.

An accuracy is a step function, whose largest deviation a few checks seldom meet.  Of the 69 interpolated surfaces
above, with 1, 20 and 60 checks: three times the deviation at the checks alone was too small for 60, 16 and 4 (with 20
checks by 5.5 times at most); this estimate for none, at 3 times the true one (median; 10 where accuracies are smooth).
"""
_TENTHS = 10
"""Parts of the measured points of which each is left out once."""
_FULL = 0.5
"""Where more than this share of the points would be needed, all are measured."""
_CANDIDATES = 20_000
"""Of larger grids so many points, drawn at random in each step, are candidates for the next ones."""
_GLOBAL = 3000
"""With more points than that, an interpolant uses the nearest 200 points only."""


@dataclass(frozen=True)
class Checked:
    """How far the interpolated values were off at points drawn at random, which had no part in the interpolant.

    Attributes:
        points: how many.
        largest: relative error of the loss.
        within: what 95 % of these errors do not exceed.
        off: of each quantity that is no loss, the largest deviation.
        attempt: which check this was; after the earlier ones, which failed, more points were measured.
    """

    points: int
    largest: float
    within: float
    off: dict[str, float]
    attempt: int


@dataclass(frozen=True, eq=False)
class Filled:
    """A grid of values, measured or interpolated.

    Attributes:
        values: by name, [ny, nx].
        error: estimate of each point's relative error of the loss, [ny, nx]; 0 where measured.
        spread: of each quantity that is no loss, an estimate of its largest deviation (:data:`SPREAD`).
        checked: what the check at random points found; ``None`` where every point is measured.
    """

    values: dict[str, np.ndarray]
    error: np.ndarray
    spread: dict[str, float] = field(default_factory=dict)
    checked: Checked | None = None

    @property
    def estimated(self) -> float:
        """The largest of the estimates, which is no bound; 0 where every point is measured."""
        return float(self.error.max())


def fill(
    values: dict[str, np.ndarray],
    measure: Measure,
    losses: Iterable[str],
    tolerance: float,
    checks: int = CHECKS,
    done: np.ndarray | None = None,
) -> Filled:
    """Measure as many points as the tolerance needs, and interpolate the others.

    The choice of points depends on measured values alone: a measurement that was stopped asks for the same points
    again, and the interpolated values have the same bits on one CPU, whatever the number of threads, if ``values`` has
    its names in the same order.  All points are measured where a loss was measured that is not positive and finite (it
    has no logarithm, and is unknown, not smooth), where too many points would be needed, and where predictions keep
    being off by more than was expected of them.

    Args:
        values: by name, [ny, nx]; ``measure`` writes into them.
        measure: see :data:`Measure`.
        losses: names of the quantities that the tolerance is for.
        tolerance: largest relative error allowed, by the estimate.
        checks: how many points of those never measured are drawn to check the interpolant.
        done: which points have a value already, [ny, nx]; none unless given.
    """
    filling = _Filling(values, measure, list(losses), tolerance, checks)
    return filling.run(np.zeros(filling.shape, dtype=bool) if done is None else done)


class _NotSmoothError(Exception):
    """A loss is not positive and finite, so that its logarithm cannot be interpolated, or cannot be predicted."""


class _Filling:
    def __init__(
        self,
        values: dict[str, np.ndarray],
        measure: Measure,
        losses: list[str],
        tolerance: float,
        checks: int = CHECKS,
    ) -> None:
        self.values, self.losses, self.tolerance, self.checks = values, losses, tolerance, checks
        self.shape = next(iter(values.values())).shape
        self._measure = measure
        self._asked = np.zeros(self.shape, dtype=bool)
        self._expected: float | None = None
        self._ratios: list[float] = []
        self._predicted, self._surprises, self._failed = 0, 0, 0

    def run(self, done: np.ndarray) -> Filled:
        """The whole grid; ``done``: which points were measured before, which are looked at for values not finite."""
        if min(self.shape) >= 4 and self._asked.size > _LEAST_POINTS:
            try:
                self._check_finite(np.argwhere(done))
                filled = self._refine()
            except _NotSmoothError:
                filled = None
            if filled is not None:
                return filled
        # Too small a grid, or one that no interpolation fits: every point is measured.
        self._measure([(int(j), int(i)) for j, i in np.ndindex(self.shape)], self._expected)
        return Filled(dict(self.values), np.zeros(self.shape))

    def _refine(self) -> Filled | None:
        """Measure and check until the tolerance is met; ``None`` where too many points would be needed."""
        rows, columns = (np.linspace(0, n - 1, min(n, FIRST_LINES)).round().astype(int) for n in self.shape)
        self._ask((j, i) for j in rows for i in columns)
        while self._asked.sum() <= _FULL * self._asked.size and self._failed < _ATTEMPTS:
            left = np.argwhere(~self._asked)
            fine, rough = self._logarithms("quintic"), self._logarithms("cubic")
            some = self._draw("candidates", left, _CANDIDATES)
            expected = self._estimate(fine, rough, some)
            if len(some) < len(left) and expected.max() <= self.tolerance:
                some, expected = left, self._estimate(fine, rough, left)
            self._expected = float(expected.max())
            drawn = self._draw("points", some, _ANYWHERE)
            errors = self._check(fine, rough, np.concatenate([drawn, self._worst(some, expected)]))
            if self._expected <= self.tolerance and _SAFETY * errors.max() <= self.tolerance:
                estimates = np.zeros(self.shape)
                estimates[tuple(some.T)] = np.maximum(expected, _SAFETY * errors.max())
                filled = self._checked(estimates)
                if filled is not None:
                    return filled
        return None

    def _checked(self, before: np.ndarray) -> Filled | None:
        """Fix the interpolant and look at points drawn at random; ``None`` where it is not as good as it should be.

        Args:
            before: estimates for the interpolant without the points that were measured last, [ny, nx].
        """
        known, left = self._asked.copy(), np.argwhere(~self._asked)
        fine, rough = self._logarithms("quintic"), self._logarithms("cubic")
        logarithms = fine(left)
        expected = _SAFETY * self._ratio * self._difference(logarithms, rough(left))
        if expected.max() > self.tolerance:
            return None
        errors = self._check(fine, rough, self._draw("checks", left, self.checks))
        if _SAFETY * errors.max() > self.tolerance:
            self._failed += 1
            return None
        estimates = np.zeros(self.shape)
        estimates[tuple(left.T)] = np.maximum(expected, _SAFETY * errors.max())
        interpolated = np.zeros((*self.shape, len(self.losses)))
        interpolated[tuple(left.T)] = np.exp(logarithms)
        return self._filled(known, interpolated, np.maximum(estimates, before), errors)

    def _draw(self, purpose: str, points: np.ndarray, count: int) -> np.ndarray:
        if len(points) <= count:
            return points
        return numpy_generator(0, f"{purpose} of a surface", int(self._asked.sum())).choice(
            points, count, replace=False
        )

    def _ask(self, points: Iterable[Iterable[int]]) -> None:
        wanted = list(dict.fromkeys((int(j), int(i)) for j, i in points if not self._asked[j, i]))
        self._measure(wanted, self._expected)
        for point in wanted:
            self._asked[point] = True
        self._check_finite(wanted)

    def _check_finite(self, points: Iterable[Iterable[int]]) -> None:
        for j, i in points:
            if not all(0 < self.values[name][j, i] < np.inf for name in self.losses):
                raise _NotSmoothError

    @property
    def _ratio(self) -> float:
        """Of error and difference, as it was at the last points that were predicted."""
        ratio = np.quantile(self._ratios[-_REMEMBERED:], _QUANTILE) if self._ratios else 1.0
        return max(float(ratio), _LEAST_RATIO)

    def _estimate(self, fine: Interpolant, rough: Interpolant, points: np.ndarray) -> np.ndarray:
        """Relative errors that are expected of the fine interpolant at points [k, 2], [k]."""
        return _SAFETY * self._ratio * self._difference(fine(points), rough(points))

    def _difference(self, fine: np.ndarray, rough: np.ndarray) -> np.ndarray:
        return np.abs(fine - rough).max(axis=1) + _FLOOR * self.tolerance

    def _logarithms(self, kernel: str = "quintic") -> Interpolant:
        """The interpolant of the losses' logarithms, through all measured points."""
        there = np.stack([self.values[name][self._asked] for name in self.losses], axis=1)
        return self._interpolant(self._asked, np.log(there), kernel)

    def _interpolant(self, known: np.ndarray, there: np.ndarray, kernel: str) -> Interpolant:
        """The interpolant through values [n, q] at the known points; maps points [k, 2] to values [k, q]."""
        scale, places = np.array(self.shape) - 1.0, np.argwhere(known)
        degree = 2 if kernel == "quintic" else 1
        near = None if len(places) <= _GLOBAL else 200

        def at(points: np.ndarray) -> np.ndarray:
            with one_blas_thread():
                return fitted(points / scale)

        # With one thread: BLAS divides large systems by the number of its threads, which changes the last bits.
        with one_blas_thread():
            fitted = scipy.interpolate.RBFInterpolator(
                places / scale, there, kernel=kernel, degree=degree, neighbors=near
            )
        return at

    def _worst(self, points: np.ndarray, expected: np.ndarray) -> np.ndarray:
        """The points with the largest expected errors, as far from one another as measured points are on average."""
        number, apart = int(self._asked.sum()), np.sqrt(self._asked.size / self._asked.sum())
        taken: list[np.ndarray] = []
        # In single precision, so that rounding does not choose among points that symmetry makes equally bad.
        for point in points[np.argsort(-expected.astype(np.float32), kind="stable")]:
            if not taken or (np.hypot(*(np.array(taken) - point).T) >= apart).all():
                taken.append(point)
            if len(taken) == max(_BATCH, number // 8):
                break
        return np.array(taken)

    def _check(self, fine: Interpolant, rough: Interpolant, points: np.ndarray) -> np.ndarray:
        """Predict points [k, 2], then measure them; return the relative errors of the fine interpolant, [k].

        Raises:
            _NotSmoothError: predictions keep being off by more than was expected of them.
        """
        settled, predicted = self._asked.sum() > _SETTLED, fine(points)
        difference = self._difference(predicted, rough(points))
        expected = np.maximum(_SAFETY * self._ratio * difference, self.tolerance)
        self._ask(points)
        measured = np.log(np.stack([self.values[name][tuple(points.T)] for name in self.losses], axis=1))
        errors = np.expm1(np.abs(measured - predicted)).max(axis=1)
        self._ratios += list(errors / difference)
        if settled:
            self._predicted += len(points)
            self._surprises += int((errors > expected).sum())
            if self._surprises > max(_SURPRISES, _SURPRISING * self._predicted):
                raise _NotSmoothError
        return np.asarray(errors)

    def _filled(self, known: np.ndarray, losses: np.ndarray, estimates: np.ndarray, errors: np.ndarray) -> Filled:
        """The whole grid, with losses [ny, nx, q] interpolated through the ``known`` points and the check's errors."""
        values = {name: np.where(self._asked, measured, np.nan) for name, measured in self.values.items()}
        left, checked = np.argwhere(~self._asked), np.argwhere(self._asked & ~known)
        for k, name in enumerate(self.losses):
            values[name] = np.where(self._asked, values[name], losses[..., k])
        others = [n for n in values if n not in self.losses and np.isfinite(values[n][self._asked]).all()]
        off: dict[str, float] = {}
        spread: dict[str, float] = {}
        if others:
            predicted = self._clipped(others, known, np.concatenate([left, checked])).T
            for name, filled in zip(others, predicted, strict=True):
                values[name][~self._asked] = filled[: len(left)]
                off[name] = float(np.abs(filled[len(left) :] - values[name][tuple(checked.T)]).max())
            for name, seen in zip(others, self._left_out(others), strict=True):
                spread[name] = SPREAD * max(off[name], float(seen))
        within = float(np.quantile(errors, 0.95, method="inverted_cdf"))
        found = Checked(len(errors), float(errors.max()), within, off, self._failed + 1)
        return Filled(values, np.where(self._asked, 0.0, estimates), spread, found)

    def _left_out(self, names: list[str]) -> np.ndarray:
        """The largest deviations at measured points, each predicted from nine tenths of the others, [q].

        The grid's corners stay in, because without them others would be extrapolated.
        """
        places = np.argwhere(self._asked)
        places = places[((places > 0) & (places < np.array(self.shape) - 1)).any(axis=1)]
        places = numpy_generator(0, "tenths of a surface", len(places)).permutation(places)
        off = np.zeros(len(names))
        for part in (places[k::_TENTHS] for k in range(_TENTHS)):
            known = self._asked.copy()
            known[tuple(part.T)] = False
            there = np.stack([self.values[name][tuple(part.T)] for name in names], axis=1)
            off = np.maximum(off, np.abs(self._clipped(names, known, part) - there).max(axis=0))
        return off

    def _clipped(self, names: list[str], known: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Quantities that are no losses, interpolated and clipped to the range of their values, [k, q]."""
        there = np.stack([self.values[name][known] for name in names], axis=1)
        return np.clip(self._interpolant(known, there, "cubic")(points), there.min(axis=0), there.max(axis=0))
