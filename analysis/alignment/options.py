"""What is asked about the clients' losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from analysis.source import option
from landscape import FedscapeError

Part = Literal["gradients", "perturbations", "used", "curvature", "local"]
Weights = Literal["run", "samples"]
OF_THE_RUN = "those of the run's objective (weights.json)"
"""What the p_i are unless something else is asked for or known."""
PARTS: tuple[Part, ...] = ("gradients", "perturbations", "used", "curvature", "local")


@dataclass(frozen=True)
class Asked:
    """What is measured, and how exactly."""

    parts: Annotated[tuple[Part, ...], tyro.conf.arg(metavar="PART [PART ...]")] = PARTS
    """gradients: cosines and norms; perturbations: what a client's ascent step does to the others; used: what the
    perturbations that the algorithm really used do; curvature: overlap of eigenspaces, heterogeneity of the Hessians;
    local: the clients' models beside the received and the aggregate"""
    top: Annotated[int, option("K", "5")] = 5
    """dimension of the eigenspaces that are compared: of the K largest eigenvalues"""
    rho: Annotated[float, option("R", "0.05")] = 0.05
    """ρ, the radius of the ascent step"""
    ascent: Literal["sam", "asam"] = "sam"
    """the ascent step: sam: ρ g/‖g‖; asam: ρ T²g/‖Tg‖, T = |w| + η on weights and scales, 1 on biases"""
    eta: float = 0.2
    """η of asam"""
    probes: int = 10
    """random vectors by which the Hessians' differences are estimated"""
    tolerance: float = 1e-3
    """relative error wanted of eigenvalues"""
    trace_tolerance: float = 0.05
    """relative standard error wanted of traces"""
    trace_probes: int = 20
    """random vectors for a trace, at most: with them its standard error is what it is"""
    barrier_points: int = 11
    """points on the line between two models, both included"""
    barrier_pairs: int = 45
    """pairs of local models between which barriers are measured, at most; drawn at random where there are more"""
    seed: int = 0
    """draws start vectors, probes and pairs"""
    weights: Weights = "run"
    """the clients' weights p_i in f, those of the run's objective (weights.json) or in proportion to their numbers of
    samples, whatever the run aggregated by"""

    def __post_init__(self) -> None:
        rules = {
            "parts": (bool(self.parts) and set(self.parts) <= set(PARTS), f"some of {', '.join(PARTS)}"),
            "top": (self.top >= 1, "1 or more"),
            "rho": (0 < self.rho < float("inf"), "above 0 and finite"),
            "ascent": (self.ascent in ("sam", "asam"), "sam or asam"),
            "eta": (0 <= self.eta < float("inf"), "0 or more"),
            "probes": (self.probes >= 2, "2 or more: one has no standard error"),
            "tolerance": (0 < self.tolerance < 1, "between 0 and 1"),
            "trace_tolerance": (0 < self.trace_tolerance < 1, "between 0 and 1"),
            "trace_probes": (self.trace_probes >= 2, "2 or more: one has no standard error"),
            "barrier_points": (self.barrier_points >= 3, "3 or more: both ends and a point between"),
            "barrier_pairs": (self.barrier_pairs >= 0, "0 or more"),
            "weights": (self.weights in ("run", "samples"), "run or samples"),
        }
        for name, (holds, right) in rules.items():
            if not holds:
                raise FedscapeError(f"{name.replace('_', ' ')} is {getattr(self, name)}: give {right}")
