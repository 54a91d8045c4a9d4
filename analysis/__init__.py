"""Measurement of the loss landscape: spectra, traces, densities, surfaces, corrupted images.

The one-call front doors are ``measure_hessian``, ``measure_surface``, ``measure_corruptions`` and
``measure_alignment``; the parts below them
work on any symmetric operator.
"""

from typing import TYPE_CHECKING

import landscape.terminal.starting  # noqa: F401 - first: Ctrl-C is quiet from here on
from landscape.lazy import lazily

if TYPE_CHECKING:
    from analysis.alignment import Alignment, measure_alignment
    from analysis.corruptions import measure_corruptions
    from analysis.hessian import HessianReport, measure_hessian
    from analysis.hessian.density import Density, estimate_density
    from analysis.hessian.spectrum import (
        Dense,
        Eigenpairs,
        Fisher,
        FromScipy,
        GaussNewton,
        Hessian,
        Lanczos,
        Operator,
        Shifted,
        Trace,
        estimate_trace,
        extreme_eigenpairs,
        largest_eigenpairs,
        to_scipy,
    )
    from analysis.surface import Surface, measure_surface
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Alignment": "analysis.alignment",
            "Dense": "analysis.hessian.spectrum",
            "Density": "analysis.hessian.density",
            "Eigenpairs": "analysis.hessian.spectrum",
            "Fisher": "analysis.hessian.spectrum",
            "FromScipy": "analysis.hessian.spectrum",
            "GaussNewton": "analysis.hessian.spectrum",
            "Hessian": "analysis.hessian.spectrum",
            "HessianReport": "analysis.hessian",
            "Lanczos": "analysis.hessian.spectrum",
            "Operator": "analysis.hessian.spectrum",
            "Shifted": "analysis.hessian.spectrum",
            "Surface": "analysis.surface",
            "Trace": "analysis.hessian.spectrum",
            "estimate_density": "analysis.hessian.density",
            "estimate_trace": "analysis.hessian.spectrum",
            "extreme_eigenpairs": "analysis.hessian.spectrum",
            "largest_eigenpairs": "analysis.hessian.spectrum",
            "measure_alignment": "analysis.alignment",
            "measure_corruptions": "analysis.corruptions",
            "measure_hessian": "analysis.hessian",
            "measure_surface": "analysis.surface",
            "to_scipy": "analysis.hessian.spectrum",
        },
    )

__all__ = [
    "Alignment",
    "Dense",
    "Density",
    "Eigenpairs",
    "Fisher",
    "FromScipy",
    "GaussNewton",
    "Hessian",
    "HessianReport",
    "Lanczos",
    "Operator",
    "Shifted",
    "Surface",
    "Trace",
    "estimate_density",
    "estimate_trace",
    "extreme_eigenpairs",
    "largest_eigenpairs",
    "measure_alignment",
    "measure_corruptions",
    "measure_hessian",
    "measure_surface",
    "to_scipy",
]
