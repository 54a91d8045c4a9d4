"""Fewer points for the same surface: some of a grid's points are measured, the others interpolated and checked.

The logarithm of the loss is interpolated through scattered points by radial basis functions (Φ(r) = r⁵ with a
polynomial of the second degree; Fasshauer, Meshfree Approximation Methods, 2007, chapter 8): on regular lattices they
are as good as cubic splines, and points can be added only where they are needed.  The error of the interpolant at a
point is estimated by its difference from a rougher one (Φ(r) = r³), times the ratio of error and difference at points
that were first predicted and then measured.  The points with the largest estimates are measured next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import scipy  # scipy.interpolate is loaded where it is used, because it takes its time
from threadpoolctl import ThreadpoolController

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
_ANYWHERE, _CHECKS = 2, 10
"""How many points are drawn at random, beside the worst ones: in each step, and in the last check."""
_REMEMBERED = 40
"""From how many of the last predictions the ratio of error and difference is taken."""
_QUANTILE, _LEAST_RATIO = 0.9, 0.1
"""Which quantile of their ratios is taken, and its least value."""
_FLOOR = 0.05
"""This share of the tolerance is added to each difference, because two interpolants may agree by chance."""
_SAFETY = 2.5
"""Expected errors and observed ones, times this factor, must be within the tolerance.  On 42 surfaces (51² points; 40
of ``digits_mlp``, down to 150 samples, ``lenet_fed`` and ``resnet18_gn`` on CIFAR-10) with tolerances of 2, 1, 0.5 and
0.25 % no true error was above the promised one; on 36 others of ``digits_mlp`` 2 of 144 were, by a factor of up to
1.25."""
_FULL = 0.6
"""Where more than this share of the points would be needed, all are measured."""
_CANDIDATES = 20_000
"""Of larger grids so many points, drawn at random in each step, are candidates for the next ones."""
_GLOBAL = 3000
"""With more points than that, an interpolant uses the nearest 200 points only."""


@dataclass(frozen=True, eq=False)
class Filled:
    """A grid of values, measured or interpolated.

    Attributes:
        values: by name, [ny, nx].
        error: bound on each point's relative error of the loss, estimated by the checks, [ny, nx]; 0 where measured.
        spread: of each quantity that is no loss, the largest deviation at the points of the last check.
    """

    values: dict[str, np.ndarray]
    error: np.ndarray
    spread: dict[str, float] = field(default_factory=dict)

    @property
    def promised(self) -> float:
        """The largest of the bounds; 0 where every point is measured."""
        return float(self.error.max())


def fill(
    values: dict[str, np.ndarray],
    measure: Measure,
    losses: Iterable[str],
    tolerance: float,
) -> Filled:
    """Measure as many points as the tolerance needs, and interpolate the others.

    The choice of points depends on measured values alone: a measurement that was stopped asks for the same points
    again, and the interpolated values have the same bits on one CPU, whatever the number of threads, if ``values`` has
    its names in the same order.  All points are measured where a loss is not positive and finite, so that it has no
    logarithm, or where too many points would be needed.

    Args:
        values: by name, [ny, nx]; ``measure`` writes into them.
        measure: see :data:`Measure`.
        losses: names of the quantities that the tolerance is for.
        tolerance: largest relative error allowed.
    """
    return _Filling(values, measure, list(losses), tolerance).run()


class _NotSmoothError(Exception):
    """A loss is not positive and finite, so that its logarithm cannot be interpolated."""


class _Filling:
    def __init__(self, values: dict[str, np.ndarray], measure: Measure, losses: list[str], tolerance: float) -> None:
        self.values, self.losses, self.tolerance = values, losses, tolerance
        self.shape = next(iter(values.values())).shape
        self._measure = measure
        self._asked = np.zeros(self.shape, dtype=bool)
        self._expected: float | None = None
        self._ratios: list[float] = []
        self._blas = ThreadpoolController().select(user_api="blas")

    def run(self) -> Filled:
        if min(self.shape) >= 4 and self._asked.size > _LEAST_POINTS:
            try:
                filled = self._refine()
                if filled is not None:
                    return filled
            except _NotSmoothError:
                pass
        self._measure([(int(j), int(i)) for j, i in np.ndindex(self.shape)], self._expected)
        return Filled(dict(self.values), np.zeros(self.shape))

    def _refine(self) -> Filled | None:
        """Measure and check until the tolerance is met; ``None`` where too many points would be needed."""
        rows, columns = (np.linspace(0, n - 1, min(n, FIRST_LINES)).round().astype(int) for n in self.shape)
        self._ask((j, i) for j in rows for i in columns)
        while self._asked.sum() <= _FULL * self._asked.size:
            known, left = self._asked.copy(), np.argwhere(~self._asked)
            fine, rough = self._logarithms("quintic"), self._logarithms("cubic")
            some = self._draw("candidates", left, _CANDIDATES)
            expected = self._estimate(fine, rough, some)
            if len(some) < len(left) and expected.max() <= self.tolerance:
                some, expected = left, self._estimate(fine, rough, left)
            self._expected = float(expected.max())
            ends = self._expected <= self.tolerance
            drawn = self._draw("points", some, _CHECKS if ends else _ANYWHERE)
            seen = self._check(fine, rough, np.concatenate([drawn, self._worst(some, expected)]))
            if ends and _SAFETY * seen <= self.tolerance:
                bounds = np.zeros(self.shape)
                bounds[tuple(some.T)] = np.maximum(expected, _SAFETY * seen)
                return self._filled(known, bounds)
        return None

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
            if not all(0 < self.values[name][point] < np.inf for name in self.losses):
                raise _NotSmoothError

    def _estimate(self, fine: Interpolant, rough: Interpolant, points: np.ndarray) -> np.ndarray:
        """Relative errors that are expected of the fine interpolant at points [k, 2], [k]."""
        ratio = np.quantile(self._ratios[-_REMEMBERED:], _QUANTILE) if self._ratios else 1.0
        return _SAFETY * max(float(ratio), _LEAST_RATIO) * self._difference(fine(points), rough(points))

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
            with self._blas.limit(limits=1):
                return fitted(points / scale)

        # With one thread: BLAS divides large systems by the number of its threads, which changes the last bits.
        with self._blas.limit(limits=1):
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

    def _check(self, fine: Interpolant, rough: Interpolant, points: np.ndarray) -> float:
        """Predict points [k, 2], then measure them; return the largest relative error of the fine interpolant."""
        predicted = fine(points)
        difference = self._difference(predicted, rough(points))
        self._ask(points)
        measured = np.log(np.stack([self.values[name][tuple(points.T)] for name in self.losses], axis=1))
        errors = np.expm1(np.abs(measured - predicted)).max(axis=1)
        self._ratios += list(errors / difference)
        return float(errors.max())

    def _filled(self, before: np.ndarray, bounds: np.ndarray) -> Filled:
        """The whole grid; ``before``: which points were measured before the last check."""
        left, checked = np.argwhere(~self._asked), self._asked & ~before
        values = {name: np.where(self._asked, measured, np.nan) for name, measured in self.values.items()}
        for name, losses in zip(self.losses, np.exp(self._logarithms()(left)).T, strict=True):
            values[name][~self._asked] = losses
        others = [n for n in values if n not in self.losses and np.isfinite(values[n][self._asked]).all()]
        spread: dict[str, float] = {}
        if others:
            whole = self._clipped(others, self._asked, left)
            predicted = self._clipped(others, before, np.argwhere(checked))
            for name, filled, found in zip(others, whole.T, predicted.T, strict=True):
                values[name][~self._asked] = filled
                spread[name] = float(np.abs(found - values[name][checked]).max())
        return Filled(values, np.where(self._asked, 0.0, bounds), spread)

    def _clipped(self, names: list[str], known: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Quantities that are no losses, interpolated and clipped to the range of their values, [k, q]."""
        there = np.stack([self.values[name][known] for name in names], axis=1)
        return np.clip(self._interpolant(known, there, "cubic")(points), there.min(axis=0), there.max(axis=0))
