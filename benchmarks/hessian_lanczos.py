"""Plain Lanczos on a diagonal matrix, told the true spectrum: the fewest products that honest error bounds need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh_tridiagonal


@dataclass(frozen=True)
class Needed:
    """Steps of a Lanczos process without restarts, from one start vector.

    Attributes:
        honest: the first at which bounds of all k values are within the tolerance, and hold.
        true: the first at which the errors of all k values are.
    """

    honest: int
    true: int


def plain_lanczos(spectrum: np.ndarray, start: np.ndarray, k: int, tolerance: float = 1e-3) -> Needed:
    """How many steps the k largest eigenvalues of a diagonal matrix need.

    The honest bound of the i-th Ritz value θ with the residual r is the smaller of r and Kato and Temple's r²/gap, the
    gap being that to the *true* eigenvalues λ_{i-1} and λ_{i+1}, which no program knows (Parlett, The Symmetric
    Eigenvalue Problem, 1998, section 11.7); it counts where θ is so near to λ_i.

    Args:
        spectrum: the diagonal, descending, [d].
        start: [d].
        k: how many, below d.
        tolerance: relative, of each value.
    """
    honest = true = 0
    process = _Process(spectrum, start)
    while not honest:
        process.step()
        if process.steps < k:
            continue
        values, residuals = process.ritz(k)
        wanted, errors = tolerance * np.abs(spectrum[:k]), np.abs(values - spectrum[:k])
        if not true and (errors <= wanted).all():
            true = process.steps
        above = np.append(np.inf, np.abs(values[1:] - spectrum[: k - 1]))
        gaps = np.minimum(above, np.abs(values - spectrum[1 : k + 1]))
        bounds = np.minimum(residuals, residuals**2 / np.maximum(gaps, np.finfo(float).tiny))
        rounding = 100 * np.finfo(float).eps * np.abs(spectrum).max()
        if ((bounds <= wanted) & (errors <= bounds + rounding)).all():
            honest = process.steps
    return Needed(honest, true)


class _Process:
    """Lanczos with two passes of re-orthogonalisation."""

    def __init__(self, spectrum: np.ndarray, start: np.ndarray) -> None:
        self.steps = 0
        self._spectrum = spectrum
        self._basis = np.zeros((64, len(spectrum)))
        self._basis[0] = start / np.linalg.norm(start)
        self._diagonal: list[float] = []
        self._beside: list[float] = []

    def step(self) -> None:
        """One product."""
        vector = self._basis[self.steps]
        product = self._spectrum * vector
        self._diagonal.append(float(vector @ product))
        self.steps += 1
        known = self._basis[: self.steps]
        for _ in range(2):
            product = product - (known @ product) @ known
        self._beside.append(float(np.linalg.norm(product)))
        if self.steps == len(self._basis):
            self._basis = np.vstack([self._basis, np.zeros_like(self._basis)])
        self._basis[self.steps] = product / self._beside[-1]

    def ritz(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k largest Ritz values, descending, and their residuals, [k] each."""
        m = self.steps
        values, vectors = eigh_tridiagonal(self._diagonal, self._beside[:-1], select="i", select_range=(m - k, m - 1))
        return values[::-1], np.abs(self._beside[-1] * vectors[-1, ::-1])
