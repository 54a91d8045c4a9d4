"""The eigenvalue spectral density by stochastic Lanczos quadrature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.hessian.density.axes import SymLog
from analysis.hessian.density.probes import Probes, Quadratures
from analysis.hessian.density.quadrature import Quadrature
from analysis.hessian.density.shares import Shares, resolved_delta, shares
from analysis.hessian.spectrum.lanczos import Lanczos
from analysis.hessian.spectrum.moments import Estimate
from analysis.hessian.spectrum.operators import Operator, Report
from landscape import FedscapeError
from landscape.compute.devices import one_blas_thread
from landscape.storage.display import Shown
from landscape.storage.style import PictureStyle, StyleName

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BASIS_BYTES = 2_000_000_000
_FIRST = 4
"""Probes that decide how many steps are taken."""
_LEAST, _EVERY = 12, 2
"""Steps before the first look at the band, and between looks."""
_COARSE = 250
"""Grid points of these looks."""
_DECADES = 0.1
"""σ of the kernel on a symmetric logarithmic axis."""


@dataclass(frozen=True)
class Curve:
    """A smoothed density for drawing.

    Attributes:
        grid: eigenvalues, [g], equidistant on the axis the curve is for.
        values: the density per unit of that axis, [g]: areas in the picture are shares of the eigenvalues.
        stderr: its standard error over the probes, [g].
        quadrature: the estimated error of the quadrature in it, [g].
        band: half of the width of its 95 % band, [g]: ``stderr`` at 95 %, and ``quadrature``.
        width: σ of the kernel, in units of that axis.
    """

    grid: np.ndarray
    values: np.ndarray
    stderr: np.ndarray
    quadrature: np.ndarray
    band: np.ndarray
    width: float


@dataclass(frozen=True, repr=False)
class Density(Shown):
    """φ(t) = (1/d) Σ_i δ(t − λ_i), smoothed by a Gaussian kernel; it integrates to 1.

    Attributes:
        grid: t, [g], ascending and equidistant.
        values: φ on the grid, [g], per unit of eigenvalue.
        stderr: standard error of ``values`` over the probes, [g].
        width: σ of the kernel.
        nodes, weights: the quadrature of each probe, [probes, steps]; weights of a probe sum to the share of the
            eigenvalues that are not atoms.
        products: products spent (HVPs).
        atoms: eigenvalues known by themselves, [a]; each is a share 1/d.
        dimension: d; ``None`` where the probes are not uniform on the sphere, or this is not known.
        quadrature: the estimated error of the quadrature in ``values``, [g]; empty where it was not estimated.
        tolerance: the area of the band asked for; ``None`` where none was.
        converged: whether it was reached; ``None`` where none was asked for.
    """

    grid: np.ndarray
    values: np.ndarray
    stderr: np.ndarray
    width: float
    nodes: np.ndarray
    weights: np.ndarray
    products: int
    atoms: np.ndarray = field(default_factory=lambda: np.zeros(0))
    dimension: int | None = None
    quadrature: np.ndarray = field(default_factory=lambda: np.zeros(0))
    tolerance: float | None = None
    converged: bool | None = None

    @classmethod
    def read(cls, found: dict[str, Any]) -> Density:
        """The density of a report's JSON file; earlier files lack some of its fields."""
        given = {name: found[name] for name in cls.__dataclass_fields__ if name in found}
        values: dict[str, Any] = {
            name: np.array(v, dtype=float) if isinstance(v, list) else v for name, v in given.items()
        }
        return cls(**values)

    @classmethod
    def smoothed(
        cls,
        nodes: np.ndarray,
        weights: np.ndarray,
        products: int,
        points: int = 1000,
        relative_width: float = 0.01,
        *,
        atoms: np.ndarray | None = None,
        dimension: int | None = None,
        tolerance: float | None = None,
    ) -> Density:
        """The density of the probes' quadratures; see :func:`estimate_density` for ``points``, ``relative_width``."""
        known = np.zeros(0) if atoms is None else atoms
        rule = Quadrature(nodes, weights, known, dimension)
        grid, width = _grid(rule.places, points, relative_width)
        curve = _curve(rule, grid, grid, width)
        met = None if tolerance is None else bool(_area(curve.band, grid) <= tolerance)
        return cls(
            grid, curve.values, curve.stderr, width, nodes, weights, products, known, dimension,
            curve.quadrature, tolerance, met,
        )  # fmt: skip

    def _facts(self) -> dict[str, str]:
        probes, steps = self.nodes.shape
        places = self.rule.places
        facts = {"eigenvalues from": f"{places.min():.4g} to {places.max():.4g}", "mean": f"{self.moment(1):.4g}"}
        short = ", NOT CONVERGED" if self.shortfall else ""
        facts["95 % band"] = f"± {self.area:.2g} of the curve's area{short}"
        return {**facts, "random probes": f"{probes} of {steps} steps"}

    def _picture(self) -> Figure:
        return self.plot()

    def plot(self, path: str | Path | None = None, style: PictureStyle | StyleName = "screen") -> Figure:
        """The density with its 95 % band, on a logarithmic axis of density; written to ``path`` where one is given.

        Args:
            path: the picture's file.
            style: ``paper`` for a paper (:class:`landscape.storage.style.PictureStyle`).

        Raises:
            FedscapeError: the file cannot be written or has a format that Matplotlib does not write.
        """
        from analysis.hessian.density.plots import plot_density
        from landscape.storage.pictures import draw_picture

        return draw_picture(lambda: plot_density(self), path, style)

    @property
    def rule(self) -> Quadrature:
        """Atoms and quadratures, for means over the eigenvalues."""
        return Quadrature(self.nodes, self.weights, self.atoms, self.dimension)

    @property
    def band(self) -> np.ndarray:
        """Half of the width of the 95 % band, [g]: the error over the probes at 95 %, and the quadrature's."""
        error = self.quadrature if len(self.quadrature) else 0.0
        return self.rule.quantile * self.stderr + error

    @property
    def area(self) -> float:
        """The area between the curve and an end of its 95 % band; the curve's own is 1."""
        return _area(self.band, self.grid)

    @property
    def shortfall(self) -> str:
        """What is said of a band that is wider than asked for; else nothing."""
        if self.converged is not False or self.tolerance is None:
            return ""
        probes, steps = self.nodes.shape
        return (
            f"NOT CONVERGED: the 95 % band is {self.area:.2g} of the curve's area, asked for {self.tolerance:g}, after "
            f"{probes} probes of {steps} steps (--probes, --steps)"
        )

    def resolved(self) -> float:
        """Nearer to 0 than this the quadrature tells nothing apart (δ of :meth:`shares`); 1 of zeros alone."""
        return resolved_delta(self.rule, 2**-23) if np.abs(self.rule.places).max() else 1.0

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
            error = self.quadrature if len(self.quadrature) else np.zeros_like(self.values)
            return Curve(self.grid, self.values, self.stderr, error, self.band, self.width)
        if axis is None:
            assert width is not None
            kept = self.rule.places
            grid = np.linspace(kept.min() - 5 * width, kept.max() + 5 * width, points)
            return _curve(self.rule, grid, grid, width)
        places = axis.forward(self.rule.places)
        grid = np.linspace(places.min() - 5 * _DECADES, places.max() + 5 * _DECADES, points)
        return _curve(self.rule, axis.inverse(grid), grid, _DECADES, axis)

    def moment(self, order: int) -> float:
        """(1/d) Σ λ_i^order, from the quadrature itself (no kernel, no grid)."""
        return self.rule.mean(lambda t: t**order).value

    def mass_below(self, t: float = 0.0) -> float:
        """The weight of the nodes and atoms below ``t``, from the quadrature itself.

        Of the eigenvalues next to ``t`` it says nothing: :meth:`shares` tells those below 0 from those near 0.
        """
        return self.rule.mean(lambda places: (places < t).astype(float)).value

    def effective_rank(self, d: int) -> float:
        """(Σλ)²/Σλ², how many equal eigenvalues would give the same trace and Frobenius norm (d: the dimension)."""
        second = self.moment(2)
        return d * self.moment(1) ** 2 / second if second else 0.0

    def estimated_moment(self, order: int, d: int) -> Estimate:
        """:meth:`moment` with its standard error over the probes (d: the dimension); with more than ``order`` steps
        the quadrature adds no error to either."""
        return self._of(d).mean(lambda t: t**order)

    def estimated_rank(self, d: int) -> Estimate:
        """:meth:`effective_rank` with its standard error over the probes, to first order."""
        rank, first, second = self.effective_rank(d), self.moment(1), self.moment(2)
        if not rank:
            return Estimate(rank, 0.0, len(self.nodes))
        change = self._of(d).mean(lambda t: 2 * t / first - t**2 / second)
        return Estimate(rank, rank * change.stderr, len(self.nodes))

    def shares(self, d: int, epsilon: float = 2**-23, delta: float | None = None, floor: float = 0.0) -> Shares:
        """The shares of eigenvalues below −δ, within ±δ and above δ (:func:`analysis.hessian.density.shares.shares`).

        Args:
            d: the dimension.
            epsilon: the relative rounding error of the products; unless given float32's.
            delta: δ; unless given the least one that the quadrature resolves.
            floor: δ is no less.
        """
        return shares(self._of(d), epsilon, delta, floor)

    def _of(self, d: int) -> Quadrature:
        return Quadrature(self.nodes, self.weights, self.atoms, d)


@one_blas_thread()
def estimate_density(
    operator: Operator,
    krylov: Lanczos | None = None,
    *,
    tolerance: float = 0.02,
    probes: int = 16,
    steps: int = 100,
    points: int = 1000,
    relative_width: float = 0.01,
    seed: int = 0,
    report: Report | None = None,
) -> Density:
    """Stochastic Lanczos quadrature (Ubaru, Chen & Saad, SIMAX 2017; Ghorbani et al., ICML 2019).

    Each probe is a random direction; Lanczos steps with full re-orthogonalisation turn it into a quadrature whose
    moments up to order 2·steps − 1 are exact for that direction.  Eigenvalues that a Krylov process of the same
    operator has found before are held apart, with the weight 1/d that each has, and the probes are drawn in the space
    that their eigenvectors leave: no step is spent on them, and they add no variance.

    Four probes take steps until the quadrature's own error (:meth:`Quadrature.error`) is below half of the tolerance,
    and other probes follow with as many steps until the whole 95 % band is within it.

    Args:
        operator: a symmetric operator.
        krylov: a Lanczos process of this operator; nothing in it changes.
        tolerance: stop when the area between the curve and an end of its 95 % band is below this share of the area
            under the curve; 0: take all probes and steps.
        probes: random directions at most; more of them narrow the error, as 1/√probes.
        steps: Lanczos steps a probe at most.
        points: grid points.
        relative_width: the kernel's σ as a share of the spectrum's range, so that scaling the loss scales
            the picture and changes nothing else.
        seed: draws the probes.
        report: called with the products spent.

    Raises:
        FedscapeError: fewer than 2 probes, 1 step or 2 points, a width that is not above 0, or a tolerance below 0.
    """
    if probes < 2 or steps < 1 or points < 2 or not relative_width > 0 or not tolerance >= 0:
        raise FedscapeError(
            "the density needs at least 2 probes, 1 step, 2 grid points, a width above 0 and a tolerance of 0 or more"
        )
    before = operator.products
    drawn = Probes(operator, krylov, relative_width, seed)
    most = min(steps, drawn.dimension)
    together = max(1, _BASIS_BYTES // (most * operator.shape[0] * operator.dtype.itemsize))

    def smoothed(nodes: np.ndarray, weights: np.ndarray, points: int = _COARSE) -> Density:
        return Density.smoothed(
            nodes, weights, operator.products - before, points, relative_width, atoms=drawn.atoms,
            dimension=operator.shape[0], tolerance=tolerance or None,
        )  # fmt: skip

    def enough(taken: int, found: Callable[[], Quadratures]) -> bool:
        if report is not None:
            report(operator.products - before, None)
        if tolerance == 0 or settled or taken < _LEAST or taken % _EVERY:
            return False
        density = smoothed(*found())
        return _area(density.quadrature, density.grid) <= tolerance / 2

    settled = False
    nodes, weights = drawn.quadratures(range(min(_FIRST, probes, together)), most, enough)
    settled = True
    while len(nodes) < probes:
        count, needed = len(nodes), probes
        if tolerance:
            found = smoothed(nodes, weights)
            if found.converged:
                break
            quadrature = _area(found.quadrature, found.grid)
            if quadrature < tolerance:  # the rest of the area falls as 1/√probes
                needed = int(np.ceil(count * ((found.area - quadrature) / (tolerance - quadrature)) ** 2))
        last = min(probes, count + together, max(count + 1, needed))
        more = drawn.quadratures(range(count, last), nodes.shape[1], enough)
        nodes, weights = np.concatenate([nodes, more[0]]), np.concatenate([weights, more[1]])
    return smoothed(nodes, weights, points)


def _grid(nodes: np.ndarray, points: int, relative_width: float) -> tuple[np.ndarray, float]:
    low, high = float(nodes.min()), float(nodes.max())
    # A spectrum that is one point up to rounding gets a width of its own size.
    spread = max(high - low, 1e-3 * max(abs(high), abs(low))) or 1.0
    width = relative_width * spread
    margin = 5 * width
    return np.linspace(low - margin, high + margin, points), width


def _curve(rule: Quadrature, grid: np.ndarray, places: np.ndarray, width: float, axis: SymLog | None = None) -> Curve:
    """The density smoothed at ``places`` of an axis, which are the eigenvalues ``grid``."""

    def kernels(values: np.ndarray) -> np.ndarray:
        z = (places[:, None] - (values if axis is None else axis.forward(values))) / width
        return np.exp(-0.5 * z**2) / (width * np.sqrt(2 * np.pi))

    values, stderr = rule.means(kernels)
    error = rule.error(kernels)
    return Curve(grid, values, stderr, error, rule.quantile * stderr + error, width)


def _area(values: np.ndarray, grid: np.ndarray) -> float:
    """The area under values on an equidistant grid."""
    return float(values.sum() * (grid[1] - grid[0]))
