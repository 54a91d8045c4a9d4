"""Loss surfaces: planes and lines in parameter space, measured, stored and drawn.

``python -m analysis.surface CKPT`` is the command, :func:`measure_surface` the same in one call.
"""

from analysis.surface.measure import measure_surface
from analysis.surface.options import Effort, Grid, Quantities
from analysis.surface.values import Surface

__all__ = ["Effort", "Grid", "Quantities", "Surface", "measure_surface"]
