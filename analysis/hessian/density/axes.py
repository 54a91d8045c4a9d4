"""The symmetric logarithmic axis that spectra of several decades are drawn on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SymLog:
    """An axis that is logarithmic on both sides of 0, a decade a unit, and linear within ±``within``.

        u(t) = t/(s ln 10) for |t| < s, else sign(t) (1/ln 10 + log10(|t|/s)),   s = within;

    the two meet with one slope, so that a density per unit of this axis has no step there.
    """

    within: float

    def forward(self, t: np.ndarray) -> np.ndarray:
        """Values -> places on the axis."""
        size = np.abs(t) / self.within
        return np.sign(t) * np.where(size < 1, size / np.log(10), 1 / np.log(10) + np.log10(np.maximum(size, 1)))

    def inverse(self, u: np.ndarray) -> np.ndarray:
        """Places on the axis -> values."""
        size = np.abs(u) * np.log(10)
        return np.sign(u) * self.within * np.where(size < 1, size, np.exp(np.maximum(size, 1) - 1))
