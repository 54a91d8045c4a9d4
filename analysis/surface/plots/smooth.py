"""Values between the points of a coarse grid, for drawing contours only: no result and no file has them."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import Normalize
from scipy.interpolate import PchipInterpolator

ENOUGH = 41
"""From so many points on along an axis, contours between them look smooth as they are."""
_LINES = 61
"""About so many grid lines a coarse grid is drawn with."""


def refined(along: np.ndarray) -> np.ndarray:
    """The coordinates, with as many between each two of them as contours need; all where there are enough.

    Example:
        >>> import numpy as np
        >>> finer = refined(np.linspace(-1, 1, 11))
        >>> len(finer), finer[::6].tolist() == np.linspace(-1, 1, 11).tolist()
        (61, True)
    """
    if not 1 < len(along) < ENOUGH:
        return along
    parts = -(-(_LINES - 1) // (len(along) - 1))
    places = np.arange(parts * (len(along) - 1) + 1)
    finer = np.interp(places / parts, np.arange(len(along)), along)
    finer[::parts] = along
    return finer


def between(
    x: np.ndarray, y: np.ndarray, values: np.ndarray, norm: Normalize
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates and values [ny, nx] of a grid fine enough for smooth contours, as they are where it is fine already.

    Cubic between neighbours and monotone (PCHIP; Fritsch & Butland, SIAM J. Sci. Stat. Comput. 1984) along one axis
    and then the other, the mean of both orders, on the scale of the colours: measured values stay as they are, and no
    value in a cell is outside the range of its four corners, so that no minimum is invented.  Cells with a corner that
    has no value have none inside.
    """
    across, up = refined(x), refined(y)
    if len(across) == len(x) and len(up) == len(y):
        return x, y, values
    heights = np.asarray(norm(np.ma.masked_invalid(values)).filled(np.nan), dtype=np.float64)
    first = _along(y, _along(x, heights.T, across).T, up)
    second = _along(x, _along(y, heights, up).T, across).T
    finer = np.asarray(norm.inverse((first + second) / 2), dtype=np.float64)
    columns, rows = np.searchsorted(across, x), np.searchsorted(up, y)
    finer[np.ix_(rows, columns)] = values
    return across, up, finer


def _along(places: np.ndarray, values: np.ndarray, finer: np.ndarray) -> np.ndarray:
    """The values [n, ...] along the first axis at finer places; beside one that is not finite there are none."""
    if np.isfinite(values).all():
        return np.asarray(PchipInterpolator(places, values)(finer))
    found = np.full((len(finer), values.shape[1]), np.nan)
    for column, heights in enumerate(values.T):
        known = np.flatnonzero(np.isfinite(heights))
        for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
            if len(run) > 1:
                inside = (finer >= places[run[0]]) & (finer <= places[run[-1]])
                found[inside, column] = PchipInterpolator(places[run], heights[run])(finer[inside])
    return found
