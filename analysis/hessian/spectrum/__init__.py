"""Spectra of symmetric operators: eigenpairs and traces by matrix-vector products alone."""

from analysis.hessian.spectrum.eigen import Eigenpairs, extreme_eigenpairs, largest_eigenpairs
from analysis.hessian.spectrum.lanczos import Lanczos
from analysis.hessian.spectrum.operators import (
    Dense,
    Fisher,
    FromScipy,
    GaussNewton,
    Hessian,
    Operator,
    Shifted,
    to_scipy,
)
from analysis.hessian.spectrum.trace import Trace, estimate_trace

__all__ = [
    "Dense",
    "Eigenpairs",
    "Fisher",
    "FromScipy",
    "GaussNewton",
    "Hessian",
    "Lanczos",
    "Operator",
    "Shifted",
    "Trace",
    "estimate_trace",
    "extreme_eigenpairs",
    "largest_eigenpairs",
    "to_scipy",
]
