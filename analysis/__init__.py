"""Measurement of the loss landscape: spectra, traces, densities, surfaces, corrupted images.

The one-call front doors are ``measure_hessian``, ``measure_surface`` and ``measure_corruptions``; the parts below them
work on any symmetric operator.
"""

import landscape.starting  # noqa: F401 - first: Ctrl-C is quiet from here on
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

__all__ = [
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
    "measure_corruptions",
    "measure_hessian",
    "measure_surface",
    "to_scipy",
]
