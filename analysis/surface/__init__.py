"""Loss surfaces: planes and lines in parameter space, measured, stored and drawn.

``python -m analysis.surface CKPT`` is the command, :func:`measure_surface` the same in one call.
"""

from typing import TYPE_CHECKING

from landscape.lazy import lazily

if TYPE_CHECKING:
    from analysis.surface.measure import measure_surface
    from analysis.surface.options import Effort, Grid, Quantities
    from analysis.surface.values import Surface
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Effort": "analysis.surface.options",
            "Grid": "analysis.surface.options",
            "Quantities": "analysis.surface.options",
            "Surface": "analysis.surface.values",
            "measure_surface": "analysis.surface.measure",
        },
    )

__all__ = ["Effort", "Grid", "Quantities", "Surface", "measure_surface"]
