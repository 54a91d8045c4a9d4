"""The eigenvalue spectral density by stochastic Lanczos quadrature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from analysis.lanczos import Lanczos
from analysis.operators import Operator, Report
from landscape import FedscapeError
from landscape.randomness import torch_generator

_BASIS_BYTES = 2_000_000_000


@dataclass(frozen=True)
class Density:
    """φ(t) = (1/d) Σ_i δ(t − λ_i), smoothed by a Gaussian kernel; it integrates to 1.

    Attributes:
        grid: t, [g], ascending and equidistant.
        values: φ on the grid, [g], per unit of eigenvalue.
        stderr: standard error of ``values`` over the probes, [g].
        width: σ of the kernel.
        nodes, weights: the quadrature of each probe, [probes, steps]; weights sum to 1 a probe.
        products: products spent (HVPs).
    """

    grid: np.ndarray
    values: np.ndarray
    stderr: np.ndarray
    width: float
    nodes: np.ndarray
    weights: np.ndarray
    products: int

    def moment(self, order: int) -> float:
        """(1/d) Σ λ_i^order, from the quadrature itself (no kernel, no grid)."""
        return float((self.weights * self.nodes**order).sum(axis=1).mean())

    def mass_below(self, t: float = 0.0) -> float:
        """The share of eigenvalues below ``t`` (0: the negative ones), from the quadrature itself."""
        return float((self.weights * (self.nodes < t)).sum(axis=1).mean())

    def effective_rank(self, d: int) -> float:
        """(Σλ)²/Σλ², how many equal eigenvalues would give the same trace and Frobenius norm (d: the dimension)."""
        second = self.moment(2)
        return d * self.moment(1) ** 2 / second if second else 0.0


def estimate_density(
    operator: Operator,
    *,
    probes: int = 8,
    steps: int = 40,
    points: int = 1000,
    relative_width: float = 0.01,
    seed: int = 0,
    report: Report | None = None,
) -> Density:
    """Stochastic Lanczos quadrature (Ubaru, Chen & Saad, SIMAX 2017; Ghorbani et al., ICML 2019).

    Each probe is a random direction; ``steps`` Lanczos steps with full re-orthogonalisation turn it into a
    quadrature whose moments up to order 2·steps − 1 are exact for that direction.

    Args:
        operator: a symmetric operator.
        probes: random directions; more of them narrow the error, as 1/√probes.
        steps: Lanczos steps a probe.
        points: grid points.
        relative_width: the kernel's σ as a share of the spectrum's range, so that scaling the loss scales
            the picture and changes nothing else.
        seed: draws the probes.
        report: called with the products spent.

    Raises:
        FedscapeError: fewer than 2 probes, 1 step or 2 points, or a width that is not above 0.
    """
    if probes < 2 or steps < 1 or points < 2 or not relative_width > 0:
        raise FedscapeError("the density needs at least 2 probes, 1 step, 2 grid points and a width above 0")
    d, before = operator.shape[0], operator.products
    steps = min(steps, d)
    together = max(1, min(probes, _BASIS_BYTES // (steps * d * operator.dtype.itemsize)))
    nodes, weights = np.zeros((probes, steps)), np.zeros((probes, steps))
    for first in range(0, probes, together):
        members = range(first, min(first + together, probes))
        processes = [_process(operator, seed, member) for member in members]
        for _ in range(steps):
            products = operator.matmat(torch.stack([process.vector for process in processes], dim=1))
            for process, product in zip(processes, products.T, strict=True):
                process.absorb(product)
            if report is not None:
                report(operator.products - before, None)
        for member, process in zip(members, processes, strict=True):
            # After an invariant space the rest of the tridiagonal matrix is decoupled: its weights are 0.
            ritz = process.ritz()
            nodes[member], weights[member] = ritz.values, ritz.weights
    grid, width = _grid(nodes[weights > 1e-12], points, relative_width)
    curves = np.stack([_smooth(grid, nodes[i], weights[i], width) for i in range(probes)])
    stderr = curves.std(axis=0, ddof=1) / np.sqrt(probes)
    return Density(grid, curves.mean(axis=0), stderr, width, nodes, weights, operator.products - before)


def _process(operator: Operator, seed: int, probe: int) -> Lanczos:
    generator = torch_generator(seed, "density", probe)
    start = torch.randn(operator.shape[0], generator=generator, dtype=torch.float64)
    return Lanczos(start.to(operator.device, operator.dtype), generator)


def _grid(nodes: np.ndarray, points: int, relative_width: float) -> tuple[np.ndarray, float]:
    low, high = float(nodes.min()), float(nodes.max())
    # A spectrum that is one point up to rounding gets a width of its own size.
    spread = max(high - low, 1e-3 * max(abs(high), abs(low))) or 1.0
    width = relative_width * spread
    margin = 5 * width
    return np.linspace(low - margin, high + margin, points), width


def _smooth(grid: np.ndarray, nodes: np.ndarray, weights: np.ndarray, width: float) -> np.ndarray:
    z = (grid[:, None] - nodes) / width
    return (np.exp(-0.5 * z**2) @ weights) / (width * np.sqrt(2 * np.pi))
