"""The loss barrier between two models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Barrier:
    """How far the loss rises above the straight line between two models' losses, and where; 0 where it does not."""

    height: float
    x: float
    loss: float


def barrier(x: np.ndarray, loss: np.ndarray, start: float, end: float) -> Barrier | None:
    """The largest L(t) − [the straight line between L(start) and L(end)] over t (Entezari et al. 2022).

    Args:
        x: steps along the line, ascending, [n].
        loss: the losses there, [n].
        start, end: the steps at which the two models are.

    Returns:
        The barrier over the points between them; ``None`` where both are the same point, or the losses are not finite.

    Example:
        >>> import numpy as np
        >>> barrier(np.array([0.0, 0.5, 1.0]), np.array([1.0, 4.0, 2.0]), 0.0, 1.0)
        Barrier(height=2.5, x=0.5, loss=4.0)
    """
    first, last = np.interp([start, end], x, loss)
    between = (x >= start) & (x <= end) & np.isfinite(loss)
    if end == start or not between.any() or not np.isfinite([first, last]).all():
        return None
    chord = first + (last - first) * (x[between] - start) / (end - start)
    rise = loss[between] - chord
    k = int(rise.argmax())
    height = float(rise[k]) if rise[k] > _ROUNDING * float(np.abs(chord).max()) else 0.0
    return Barrier(height, float(x[between][k]), float(loss[between][k]))
