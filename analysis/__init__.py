"""Measurement of the loss landscape: spectra, traces, densities, surfaces, corrupted images.

The one-call front doors are ``measure_hessian``, ``measure_surface`` and ``measure_corruptions``; the parts below them
work on any symmetric operator.
"""

from typing import Any

from analysis.density import Density, estimate_density
from analysis.eigen import Eigenpairs, extreme_eigenpairs, largest_eigenpairs
from analysis.lanczos import Lanczos
from analysis.operators import Dense, Fisher, FromScipy, GaussNewton, Hessian, Operator, Shifted, to_scipy
from analysis.report import HessianReport
from analysis.trace import Trace, estimate_trace

_COMMANDS = {
    "measure_corruptions": "corruptions",
    "measure_hessian": "hessian",
    "measure_surface": "surface",
    "Surface": "surface",
}

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


def __getattr__(name: str) -> Any:
    # Modules that are commands too (python -m analysis.hessian) must not be imported before they run.
    if name in _COMMANDS:
        import importlib

        return getattr(importlib.import_module(f"analysis.{_COMMANDS[name]}"), name)
    raise AttributeError(f"module 'analysis' has no attribute '{name}'")
