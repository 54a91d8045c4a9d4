"""The eigenvalue spectral density by stochastic Lanczos quadrature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from analysis.hessian.spectrum.lanczos import Lanczos
from analysis.hessian.spectrum.moments import Estimate
from analysis.hessian.spectrum.operators import Operator, Report
from analysis.hessian.spectrum.shares import Shares, average, shares
from landscape import FedscapeError
from landscape.compute.randomness import torch_generator

_BASIS_BYTES = 2_000_000_000
_DECADES = 0.1
"""σ of the kernel on a symmetric logarithmic axis."""
_NO_WEIGHT = 1e-12
"""Nodes of less weight do not belong to the spectrum."""
_NEAREST = 5
"""Number of nodes next to 0 whose spacing is the resolution of the quadrature there."""


@dataclass(frozen=True)
class SymLog:
    """An axis that is logarithmic on both sides of 0, a decade a unit, and linear within ±``within``.

        u(t) = t/(s ln 10) for |t| < s, else sign(t) (1/ln 10 + log10(|t|/s)),   s = within;

    the two meet with one slope, so that a density per unit of this axis has no step there.
    """

    within: float

    def forward(self, t: np.ndarray) -> np.ndarray:
        """Values -> places on the axis."""
        size = np.abs(t) / self.within
        return np.sign(t) * np.where(size < 1, size / np.log(10), 1 / np.log(10) + np.log10(np.maximum(size, 1)))

    def inverse(self, u: np.ndarray) -> np.ndarray:
        """Places on the axis -> values."""
        size = np.abs(u) * np.log(10)
        return np.sign(u) * self.within * np.where(size < 1, size, np.exp(np.maximum(size, 1) - 1))


@dataclass(frozen=True)
class Curve:
    """A smoothed density for drawing.

    Attributes:
        grid: eigenvalues, [g], equidistant on the axis the curve is for.
        values: the density per unit of that axis, [g]: areas in the picture are shares of the eigenvalues.
        stderr: its standard error over the probes, [g], without the quadrature's own error.
        width: σ of the kernel, in units of that axis.
    """

    grid: np.ndarray
    values: np.ndarray
    stderr: np.ndarray
    width: float


@dataclass(frozen=True)
class Density:
    """φ(t) = (1/d) Σ_i δ(t − λ_i), smoothed by a Gaussian kernel; it integrates to 1.

    Attributes:
        grid: t, [g], ascending and equidistant.
        values: φ on the grid, [g], per unit of eigenvalue.
        stderr: standard error of ``values`` over the probes, [g].  That of the quadrature is not in it: of a broad
            bulk, of which few steps resolve no more than a few hundredths, it is the larger of the two.
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

    @classmethod
    def smoothed(
        cls, nodes: np.ndarray, weights: np.ndarray, products: int, points: int = 1000, relative_width: float = 0.01
    ) -> Density:
        """The density of the probes' quadratures; see :func:`estimate_density` for ``points``, ``relative_width``."""
        grid, width = _grid(nodes[weights > _NO_WEIGHT], points, relative_width)
        values, stderr = _averaged(grid, nodes, weights, width)
        return cls(grid, values, stderr, width, nodes, weights, products)

    def resolved(self) -> float:
        """Twice the spacing of the nodes next to 0 (median over the probes): nearer to 0 nothing is resolved."""
        spacings = []
        for nodes, weights in zip(self.nodes, self.weights, strict=True):
            kept = nodes[weights > _NO_WEIGHT]
            near = kept[np.argsort(np.abs(kept))][:_NEAREST]
            spacings.append((near.max() - near.min()) / max(1, len(near) - 1))
        largest = float(np.abs(self.nodes).max())
        # For a spectrum of one point or of several equal ones any small number will do.
        return max(2 * float(np.median(spacings)), 1e-6 * largest) or 1.0

    def on(self, axis: SymLog | None = None, points: int = 1000, width: float | None = None) -> Curve:
        """The density for drawing on an axis, smoothed there: from the quadrature, without a product.

        A kernel of one width in λ would draw the bulk on a logarithmic axis as one wide block; here its width is the
        same all along the axis, 0.1 decades.

        Args:
            axis: ``None`` is the linear one, on which this is the density itself, unless another width is asked for.
            points: grid points where it is smoothed again.
            width: σ of the kernel on the linear axis, for curves that are to be compared; this density's unless given.
        """
        if axis is None and width in (None, self.width):
            return Curve(self.grid, self.values, self.stderr, self.width)
        if axis is None:
            assert width is not None
            kept = self.nodes[self.weights > _NO_WEIGHT]
            grid = np.linspace(kept.min() - 5 * width, kept.max() + 5 * width, points)
            return Curve(grid, *_averaged(grid, self.nodes, self.weights, width), width)
        kept = axis.forward(self.nodes[self.weights > _NO_WEIGHT])
        grid = np.linspace(kept.min() - 5 * _DECADES, kept.max() + 5 * _DECADES, points)
        places = axis.forward(self.nodes)
        values, stderr = _averaged(grid, places, self.weights, _DECADES)
        return Curve(axis.inverse(grid), values, stderr, _DECADES)

    def moment(self, order: int) -> float:
        """(1/d) Σ λ_i^order, from the quadrature itself (no kernel, no grid)."""
        return float((self.weights * self.nodes**order).sum(axis=1).mean())

    def mass_below(self, t: float = 0.0) -> float:
        """The weight of the nodes below ``t``, from the quadrature itself.

        Of the eigenvalues next to ``t`` it says nothing: :meth:`shares` tells those below 0 from those near 0.
        """
        return float((self.weights * (self.nodes < t)).sum(axis=1).mean())

    def effective_rank(self, d: int) -> float:
        """(Σλ)²/Σλ², how many equal eigenvalues would give the same trace and Frobenius norm (d: the dimension)."""
        second = self.moment(2)
        return d * self.moment(1) ** 2 / second if second else 0.0

    def estimated_moment(self, order: int, d: int) -> Estimate:
        """:meth:`moment` with its standard error over the probes (d: the dimension); with more than ``order`` steps
        the quadrature adds no error to either."""
        return average(self.nodes, self.weights, d, lambda t: t**order)

    def estimated_rank(self, d: int) -> Estimate:
        """:meth:`effective_rank` with its standard error over the probes, to first order."""
        rank, first, second = self.effective_rank(d), self.moment(1), self.moment(2)
        if not rank:
            return Estimate(rank, 0.0, len(self.nodes))
        change = average(self.nodes, self.weights, d, lambda t: 2 * t / first - t**2 / second)
        return Estimate(rank, rank * change.stderr, len(self.nodes))

    def shares(self, d: int, epsilon: float = 2**-23, delta: float | None = None) -> Shares:
        """The shares of eigenvalues below −δ, within ±δ and above δ (:func:`analysis.hessian.spectrum.shares.shares`).

        Args:
            d: the dimension.
            epsilon: the relative rounding error of the products; unless given float32's.
            delta: δ; unless given the least one that the quadrature resolves.
        """
        return shares(self.nodes, self.weights, d, epsilon, delta)


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
            # After an invariant space the rest of the tridiagonal matrix is decoupled, with weights of 0.
            ritz = process.ritz()
            nodes[member], weights[member] = ritz.values, ritz.weights
    return Density.smoothed(nodes, weights, operator.products - before, points, relative_width)


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


def _averaged(grid: np.ndarray, nodes: np.ndarray, weights: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """The mean over the probes of their smoothed quadratures, and its standard error."""
    curves = np.stack([_smooth(grid, n, w, width) for n, w in zip(nodes, weights, strict=True)])
    return curves.mean(axis=0), curves.std(axis=0, ddof=1) / np.sqrt(len(curves))


def _smooth(grid: np.ndarray, nodes: np.ndarray, weights: np.ndarray, width: float) -> np.ndarray:
    z = (grid[:, None] - nodes) / width
    return (np.exp(-0.5 * z**2) @ weights) / (width * np.sqrt(2 * np.pi))
