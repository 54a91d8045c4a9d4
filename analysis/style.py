"""What pictures that compare several things share: colours, markers and dashes, in the order in which they are used,
and crosses over values that have not converged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from landscape.storage.canvas import pt
from landscape.storage.looks import COLOURS, DASHES, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "DASHES", "MARKERS", "cross_out", "crossed"]


def cross_out(ax: Axes, x: np.ndarray, y: np.ndarray, converged: np.ndarray) -> None:
    """Cross out the points that have not converged; x, y and which have are [n] each."""
    if not converged.all():
        ax.plot(x[~converged], y[~converged], "x", color="black", markersize=pt(9))


def crossed(converged: Sequence[np.ndarray]) -> str:
    """What the crosses of :func:`cross_out` are, to follow a caption; empty where there is none."""
    return "" if all(which.all() for which in converged) else "; crosses: NOT CONVERGED"
