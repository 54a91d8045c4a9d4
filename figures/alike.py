"""What is measured of each of several models, so that they can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """What is measured of each of several models, to compare them: options of commands and functions alike."""

    top: int = 10
    """how many of the largest eigenvalues"""
    points: int = 21
    """points along each axis of the surfaces"""
    span: float = 1.0
    """farthest step along a direction of the surfaces; at 1 each filter has moved by its own length"""
    trace_tolerance: float = 0.02
    """standard error wanted of the trace, as a share of it"""
    trace_probes: int = 100
    """at most so many random probes of the trace"""
    probes: int = 8
    """random probes of the density: more narrow its error"""
    steps: int = 40
    """Lanczos steps of each probe of the density"""
    seed: int = 0
    """of all random vectors; the surfaces share their random numbers"""

    @property
    def spectrum(self) -> dict[str, Any]:
        """The arguments of :func:`analysis.measure_hessian`, without the seed."""
        return {
            "top": self.top,
            "trace_tolerance": self.trace_tolerance,
            "trace_probes": self.trace_probes,
            "density": True,
            "density_probes": self.probes,
            "density_steps": self.steps,
        }

    @property
    def surface(self) -> dict[str, Any]:
        """The arguments of :func:`analysis.measure_surface`, without the seed."""
        return {"points": self.points, "span": self.span, "exact": True}
