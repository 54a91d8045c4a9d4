"""The rounding error of a surface with products in bfloat16 or TF32: some of its points again in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.surface.marked_points import Mark
from analysis.surface.points import Points
from analysis.surface.store import SurfaceStore
from landscape.compute.randomness import numpy_generator

_CHECKED = 8
"""How many points are drawn at random, beside those of the models, the lowest and the highest."""


def rounding(full: Points, store: SurfaceStore, marks: Sequence[Mark]) -> dict[str, Any]:
    """Measure some points again in float32 and return the largest deviations.

    Args:
        full: measures in float32.
        store: the surface; interpolated points are left out.
        marks: the models, which are measured again where they are points of the grid.

    Returns:
        ``points``, how many were measured again; by name, the relative deviation of each loss and the deviation of each
        accuracy in percentage points: infinite where only one of the two values is finite.
    """
    measured = np.argwhere(store.done)
    first = store.values[full.names[0]][store.done]
    own = [k for k, (j, i) in enumerate(measured) if any(store.y[j] == m.y and store.x[i] == m.x for m in marks)]
    order = np.argsort(first, kind="stable")  # not-a-number last
    drawn = numpy_generator(0, "points checked").choice(len(measured), min(_CHECKED, len(measured)), replace=False)
    chosen = dict.fromkeys([*own, int(order[0]), int(order[-1]), *map(int, drawn)])
    found: dict[str, Any] = {"points": len(chosen)}
    names = [name for name in full.names if not name.endswith("_stderr")]
    with full.session():
        for j, i in measured[list(chosen)]:
            exact = full.measure(float(store.x[i]), float(store.y[j]))
            for name in names:
                deviation = _deviation(store.values[name][j, i], exact[name], relative=name.endswith("_loss"))
                found[name] = max(found.get(name, 0.0), deviation)
    return found


def _deviation(value: float, exact: float, relative: bool) -> float:
    if np.isfinite(value) and np.isfinite(exact):
        return abs(value - exact) / (abs(exact) if relative and exact else 1.0)
    return 0.0 if not np.isfinite(value) and not np.isfinite(exact) else float("inf")
