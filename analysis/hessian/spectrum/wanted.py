"""Which eigenvalues are asked for: k at an end of the spectrum, or at both ends; and which ratios of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from landscape import FedscapeError

Which = Literal["largest", "smallest", "magnitude", "both"]

_CHOICES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "largest": lambda ascending, k: np.arange(len(ascending))[::-1][:k],
    "smallest": lambda ascending, k: np.arange(k),
    "magnitude": lambda ascending, k: np.argsort(-np.abs(ascending), kind="stable")[:k],
    "both": lambda ascending, k: np.concatenate([np.arange(len(ascending))[::-1][:k], np.arange(k)]),
}
_PLACES = np.array([0.2, 0.35, 0.5])
"""Distances from either end of a gap between Ritz values, as shares of it."""
_KEPT = 0.5
"""Share of a basis's room beyond the wanted eigenvalues that a restart fills with the Ritz vectors next to them."""


@dataclass(frozen=True)
class Wanted:
    """The k eigenvalues at an end of the spectrum.

    Attributes:
        which: ``largest`` (descending), ``smallest`` (ascending), ``magnitude`` (largest |λ|, descending), or
            ``both``: the k largest, then the k smallest.
        k: how many, at each end of ``both``.
    """

    which: Which
    k: int

    @property
    def count(self) -> int:
        """How many eigenvalues in all: 2k of both ends."""
        return self.k * (1 + (self.which == "both"))

    def check(self, d: int) -> None:
        """Refuse what a matrix of dimension d does not have.

        Raises:
            FedscapeError: an unknown end, or k is not from 1 to d (to d/2 for both ends).
        """
        if self.which not in _CHOICES:
            raise FedscapeError(f"unknown end of the spectrum '{self.which}': give {', '.join(_CHOICES)}")
        if self.which == "both" and 2 * self.k > d:
            raise FedscapeError(f"{self.k} eigenvalues at both ends are more than the {d} there are")
        if not 1 <= self.k <= d:
            raise FedscapeError(
                f"{self.k} eigenvalues are asked for: give a number from 1 to the {d} parameters there are"
            )

    def choose(self, ascending: np.ndarray) -> np.ndarray:
        """Indices of the wanted values among values that ascend, in the order they are wanted in."""
        return _CHOICES[self.which](ascending, self.k)

    def keep(self, ascending: np.ndarray, room: int) -> np.ndarray:
        """Indices of the Ritz values that a restart of a basis of ``room`` vectors keeps: the wanted ones and the
        next ones towards the middle of the spectrum."""
        total = self.count + int((room - self.count) * _KEPT)
        if self.which != "both":
            return _CHOICES[self.which](ascending, total)
        return np.unique(_CHOICES[self.which](ascending, total // 2))

    def limits(self, values: np.ndarray) -> tuple[float, float]:
        """(low, high): a value below ``low`` or above ``high`` would be one of the wanted; infinite at other ends.

        Args:
            values: the wanted values found so far, in their order.
        """
        size = np.abs(values).min()
        high = {"largest": values[-1], "both": values[self.k - 1], "magnitude": size}.get(self.which, np.inf)
        low = {"smallest": values[-1], "both": values[-1], "magnitude": -size}.get(self.which, -np.inf)
        return low, high

    def gaps(self, ascending: np.ndarray, tolerance: float, floor: float) -> np.ndarray:
        """Points between the Ritz values at the wanted ends, and beyond them: an eigenvalue there would be wanted.

        Args:
            ascending: all Ritz values, at least two.
            tolerance, floor: points nearer to a Ritz value than this share of it, or than the floor, are left out.

        Returns:
            Six points in each gap, and the two at the geometric mean of the least distance and the gap from its ends:
            a Ritz value may stand still for some steps between two eigenvalues that are as near as that.
        """
        points = []
        for side, limit, inside in self._sides(ascending):
            if len(inside):
                margins = np.maximum(tolerance * np.abs(inside), floor)
                distances = inside[-1] - side * ascending
                # Beyond the last one it is taken as wide as the next gap inwards.
                beyond = distances[distances > margins[-1]].min(initial=np.ptp(ascending))
                widths = np.append(np.diff(inside), beyond)
                near = np.sqrt(margins * np.maximum(widths, margins))
                apart = np.column_stack([near, widths[:, None] * _PLACES])
                far_enough = (apart > margins[:, None]) & (apart <= widths[:, None] / 2)
                low, high = inside[:, None] + apart, (inside + widths)[:, None] - apart
                points.append(side * np.concatenate([low[far_enough], high[far_enough]]))
            else:
                points.append(np.array([side * limit]))
        return np.concatenate(points)

    def copied(self, ascending: np.ndarray, tolerance: float, floor: float) -> np.ndarray:
        """At each wanted end the innermost value a copy of which would take the place of another one.

        Args:
            ascending: all Ritz values.
            tolerance, floor: values that differ by less than this share, or than the floor, are one.
        """
        points: list[float] = []
        for side, limit, inside in self._sides(ascending):
            points.extend(side * inside[inside > limit + max(tolerance * abs(limit), floor)][:1])
        return np.array(points)

    def _sides(self, ascending: np.ndarray) -> Iterator[tuple[int, float, np.ndarray]]:
        """Of each wanted end: 1 or −1, and times that: the innermost place there, and the Ritz values from there on,
        ascending."""
        low, high = self.limits(ascending[self.choose(ascending)])
        for side, limit in ((1, high), (-1, -low)):
            if np.isfinite(limit):
                values = np.sort(side * ascending)
                yield side, limit, values[values >= limit]


def read_ratio(text: str) -> tuple[int, int]:
    """(i, j) of a text such as ``1/5``.

    Raises:
        FedscapeError: it has another form.
    """
    parts = text.split("/")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise FedscapeError(f"'{text}' is no ratio of eigenvalues: give one such as 1/5")
    return int(parts[0]), int(parts[1])


def check_ratios(ratios: Sequence[tuple[int, int]], which: str, k: int) -> None:
    """Refuse ratios λ_i/λ_j of eigenvalues that are not among the k at that end of the spectrum.

    Raises:
        FedscapeError: there is such a ratio.
    """
    for i, j in ratios:
        if min(i, j) < 1:
            raise FedscapeError(f"the ratio {i}/{j} is none of eigenvalues: they are counted from 1")
        if which not in ("largest", "both"):
            raise FedscapeError(f"the ratio {i}/{j} is one of the largest eigenvalues: measure those (--which largest)")
        if max(i, j) > k:
            raise FedscapeError(
                f"the ratio {i}/{j} needs {max(i, j)} eigenvalues, and there are {k}: give --top {max(i, j)}"
            )
