"""What is measured of each of several models, so that they can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from landscape.errors import FedscapeError

Panel = Literal["surfaces", "clients", "layers"]
"""The panels of a report page whose measurements can be left out."""


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

    def curvature_map(self, points: int) -> dict[str, Any]:
        """The same of a coarser surface in the same plane with λ_max at its points."""
        return {"points": points, "span": self.span, "exact": True, "lambda_max": True}


@dataclass(frozen=True)
class Panels:
    """What a report page shows beside verdict, table, training curves and spectra."""

    without: Annotated[
        tuple[Panel, ...], tyro.conf.arg(metavar="PANEL [PANEL ...]", help_behavior_hint="(default: measure all)")
    ] = ()
    """panels to leave out, with what they measure: surfaces, clients, layers (with --samples N each client is
    measured on up to N samples of its own, which can be many more than N together)"""
    curvature_map: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: none)")] = None
    """on the surfaces also λ_max, at N × N points: each takes 10 to 30 products, so that 9 × 9 take about ten times as
    long as the spectrum; an odd number has the model itself in the centre"""
    alignment: Annotated[
        tuple[Path, ...], tyro.conf.arg(metavar="DIR [DIR ...]", help_behavior_hint="(default: no such panel)")
    ] = ()
    """show how local losses lie to the global one: folders that 'fedscape alignment' wrote for these models"""

    def __post_init__(self) -> None:
        if self.curvature_map is not None and self.curvature_map < 2:
            raise FedscapeError(
                f"--curvature-map {self.curvature_map}: give 2 points along each axis or more, such as 9"
            )
