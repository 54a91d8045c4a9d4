"""What pictures that compare several things share: colours, markers and dashes, in the order in which they are used,
and crosses over values that have not converged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from landscape.storage.canvas import pt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe & Ito's palette, which colour-blind readers can tell apart; markers and dashes are for greyscale."""
MARKERS = "osD^vPX"
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))


def cross_out(ax: Axes, x: np.ndarray, y: np.ndarray, converged: np.ndarray) -> None:
    """Cross out the points that have not converged; x, y and which have are [n] each."""
    if not converged.all():
        ax.plot(x[~converged], y[~converged], "x", color="black", markersize=pt(9))


def crossed(converged: Sequence[np.ndarray]) -> str:
    """What the crosses of :func:`cross_out` are, to follow a caption; empty where there is none."""
    return "" if all(which.all() for which in converged) else "; crosses: NOT CONVERGED"
