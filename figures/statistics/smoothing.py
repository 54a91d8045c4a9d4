"""Smoothing of curves: Hann window (Sun et al., ICML 2023, Figures 7 to 10) and running mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from landscape import FedscapeError


def hann(values: ArrayLike, length: int) -> np.ndarray:
    """The values smoothed by a Hann window, centred at each.

    The weights are sin²(π j/(length + 1)), j = 1 … length: the window without the zeros at its ends, so that ``length``
    is the number of values that count.  Where the window reaches over an end of the curve, or over a value that is not
    finite, the weights of the values that are there are divided by their sum: a constant stays constant.  A value that
    is not finite stays not-a-number.

    Args:
        values: one a measurement, evenly spaced, [n].
        length: of the window in measurements, odd; 1 leaves the values as they are.

    Raises:
        FedscapeError: the values are no curve, or the length is even or less than 1.

    Example:
        >>> hann([0.0, 6.0, 0.0, 0.0], 3).round(6).tolist()  # weights 1/4, 1/2, 1/4; at the ends 2/3, 1/3
        [2.0, 3.0, 1.5, 0.0]
    """
    curve = _curve(values)
    if length < 1 or length % 2 == 0:
        raise FedscapeError(f"a Hann window of {length} values has no middle: give an odd number from 1, such as 21")
    weights = np.sin(np.pi * np.arange(1, length + 1) / (length + 1)) ** 2
    known = np.isfinite(curve)
    half = length // 2
    # np.convolve's "same" would have the window's length where it is longer than the curve.
    sums, counts = (
        np.convolve(part, weights)[half : half + len(curve)] for part in (np.where(known, curve, 0.0), known * 1.0)
    )
    return np.where(known, sums / np.where(known, counts, 1.0), np.nan)


def running_mean(values: ArrayLike, length: int) -> np.ndarray:
    """The mean of each value and the ``length − 1`` values before it; of as many as there are at the beginning.

    Values that are not finite are left out, and stay not-a-number.

    Args:
        values: one a measurement, [n].
        length: how many values a mean is over, at least 1.

    Raises:
        FedscapeError: the values are no curve, or the length is less than 1.

    Example:
        >>> running_mean([1.0, 3.0, 5.0], 2).tolist()
        [1.0, 2.0, 4.0]
    """
    curve = _curve(values)
    if length < 1:
        raise FedscapeError(f"a running mean over {length} values is none: give 1 or more")
    known = np.isfinite(curve)
    means = [
        curve[max(0, end - length) : end][known[max(0, end - length) : end]].mean() if known[end - 1] else np.nan
        for end in range(1, len(curve) + 1)
    ]
    return np.array(means, dtype=np.float64)


def _curve(values: ArrayLike) -> np.ndarray:
    curve = np.asarray(values, dtype=np.float64)
    if curve.ndim != 1 or not curve.size:
        raise FedscapeError(f"values of shape {curve.shape} are no curve: give one or more in a row")
    return curve
