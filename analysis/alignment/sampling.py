"""Means over clients, with the standard error that measuring some of them brings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.hessian.spectrum.trace import confidence_interval


@dataclass(frozen=True)
class Mean:
    """A mean over clients.

    The standard error takes the clients for a random draw of all.  Those that a round sampled are one for the model
    that they received, and none for the model that was made of theirs: on them it is better than on others.

    Attributes:
        value: the mean.
        stderr: its standard error for the mean over all clients: 0 where all were measured, NaN where one of many was.
        low, high: the smallest and the largest client (of pairs: pair).
        count: how many clients it is over.
        left_out: how many clients had no finite value: they are in no mean.
    """

    value: float
    stderr: float
    low: float
    high: float
    count: int
    left_out: int = 0

    @classmethod
    def exact(cls, value: float) -> Mean:
        """One number that is no mean over clients."""
        return cls(value, 0.0, value, value, 1)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval for the mean over all clients, by Student's t."""
        if not np.isfinite(self.stderr):
            return float("nan"), float("nan")
        return confidence_interval(self.value, self.stderr, self.count, level)


_NOTHING = (float("nan"),) * 4


def mean_over_clients(values: np.ndarray, shares: np.ndarray, population: int) -> Mean:
    """x̄ = Σ p_i x_i / Σ p_i over the clients with a finite value, drawn without replacement from ``population``.

    Its variance is that of a ratio of sums, to first order: (1 − n/N) n/(n−1) Σ q_i² (x_i − x̄)², q_i = p_i/Σ p
    (Cochran, Sampling Techniques, 1977, eq. 6.13).

    Args:
        values, shares: x_i and p_i, [n].
        population: N.

    Example:
        >>> import numpy as np
        >>> from analysis.alignment.sampling import mean_over_clients
        >>> found = mean_over_clients(np.array([1.0, 3.0]), np.array([0.5, 0.5]), population=4)
        >>> found.value, round(found.stderr, 4), mean_over_clients(np.array([1.0]), np.array([1.0]), 1).stderr
        (2.0, 0.7071, 0.0)
    """
    kept = np.isfinite(values)
    x, q = values[kept], shares[kept]
    n = len(x)
    if n == 0:
        return Mean(*_NOTHING, 0, len(values))
    q = q / q.sum()
    value = float(q @ x)
    return Mean(value, _stderr(q * (x - value), n, population), float(x.min()), float(x.max()), n, len(values) - n)


def mean_over_pairs(matrix: np.ndarray, population: int) -> Mean:
    """The mean of a symmetric matrix off its diagonal, each pair of clients the same.

    Its variance over the draw of clients is that of a U-statistic of order 2, to first order
    (1 − n/N) 4/(n(n−1)) Σ (h_i − h̄)², h_i the mean of client i's pairs (Hoeffding, Ann. Math. Stat. 1948).

    Args:
        matrix: [n, n]; pairs that are not finite are left out.
        population: N.

    Example:
        >>> import numpy as np
        >>> from analysis.alignment.sampling import mean_over_pairs
        >>> found = mean_over_pairs(np.array([[1.0, 0.5, 0.1], [0.5, 1.0, 0.3], [0.1, 0.3, 1.0]]), population=3)
        >>> round(found.value, 6), found.stderr, found.low, found.high
        (0.3, 0.0, 0.1, 0.5)
    """
    n = len(matrix)
    off = np.where(np.eye(n, dtype=bool) | ~np.isfinite(matrix), np.nan, matrix)
    known = np.isfinite(off)
    counts = known.sum(axis=1)
    able = counts > 0
    if not able.any():
        return Mean(*_NOTHING, 0, n)
    each = np.nansum(off[able], axis=1) / counts[able]
    value, n_able = float(np.nanmean(off)), int(able.sum())
    stderr = _stderr(2 * (each - each.mean()) / n_able, n_able, population)
    return Mean(value, stderr, float(np.nanmin(off)), float(np.nanmax(off)), n_able, n - n_able)


def _stderr(influences: np.ndarray, n: int, population: int) -> float:
    """√((1 − n/N) n/(n−1) Σ e_i²) of the influences e_i of n clients on a mean."""
    if n >= population:
        return 0.0
    if n < 2:
        return float("nan")
    return float(np.sqrt((1 - n / population) * n / (n - 1) * np.sum(influences**2)))


def influence_stderr(influences: np.ndarray, population: int) -> float:
    """The same for any smooth function of means over clients, from its derivatives by the clients' shares, [n]."""
    kept = influences[np.isfinite(influences)]
    return _stderr(kept, len(kept), population)
