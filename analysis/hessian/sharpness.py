"""Sharpness: how much the loss rises around a point, and how noisy its gradient is there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from landscape import FedscapeError, Landscape
from landscape.compute.randomness import torch_generator
from landscape.data.batches import Batches
from landscape.storage.display import Shown

Kind = Literal["sam", "adaptive", "m", "average"]

_SHORTEST = 1e-3
"""The ascent ends where a step must be shorter than this share of the radius to rise."""
_FLAT = 1e-3
"""A gradient is not followed where its rise over the radius is less than this share of the rise found there."""


@dataclass(frozen=True, repr=False)
class Sharpness(Shown):
    """A rise of the loss around a point.

    Attributes:
        kind: which definition: ``sam``, ``adaptive``, ``m`` or ``average``.
        value: the rise.
        stderr: its standard error; ``None`` where nothing was drawn.
        loss: L(w).
        radius: ρ of the ball, or of the sphere.
        samples: how many the loss is a mean over.
        steps: points tried uphill, at most (0 for ``average``).
        eta: η of ASAM's ball.
        m: samples per batch of the m-sharpness.
        draws: batches or pairs of directions averaged.
        seed: the seed of these draws.
    """

    kind: Kind
    value: float
    stderr: float | None
    loss: float
    radius: float
    samples: int
    steps: int
    eta: float | None = None
    m: int | None = None
    draws: int | None = None
    seed: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Numbers and text by name."""
        return asdict(self)


@dataclass(frozen=True, repr=False)
class GradientNoise(Shown):
    """The norm of the gradient, and the variance of a mini-batch's gradient.

    Attributes:
        norm: ‖∇L(w)‖, exact.
        trace: tr Cov of the mini-batch gradient, E‖g_B − ∇L‖².
        stderr: the standard error of ``trace``.
        samples: n.
        batch_size: b.
        draws: mini-batches drawn.
        seed: the seed of these draws.
    """

    norm: float
    trace: float
    stderr: float
    samples: int
    batch_size: int
    draws: int
    seed: int

    @property
    def per_sample(self) -> float | None:
        """The trace for b = 1: trace · b(n−1)/(n−b); ``None`` where a batch is all samples."""
        return None if self._to_one is None else self.trace * self._to_one

    @property
    def per_sample_stderr(self) -> float | None:
        """The standard error of ``per_sample``."""
        return None if self._to_one is None else self.stderr * self._to_one

    @property
    def _to_one(self) -> float | None:
        if self.batch_size == self.samples:
            return None
        return self.batch_size * (self.samples - 1) / (self.samples - self.batch_size)

    def to_dict(self) -> dict[str, Any]:
        """Numbers by name."""
        return {**asdict(self), "per_sample": self.per_sample, "per_sample_stderr": self.per_sample_stderr}


def sam_sharpness(landscape: Landscape, rho: float, w: Tensor | None = None, steps: int = 1) -> Sharpness:
    """max_{‖ε‖≤ρ} L(w+ε) − L(w) (Foret et al., ICLR 2021, section 2), from below.

    One step is SAM's own first-order answer, ε = ρ ∇L/‖∇L‖ (their eq. 2): exact for an isotropic bowl, perhaps
    negative where the ball is wider than the slope, and 0 where the gradient is 0.  More steps are projected
    gradient ascent from there: ε ← ρ ∇L(w+ε)/‖∇L(w+ε)‖, all the way to the sphere, which on a convex loss never
    lowers the loss (at a minimum it is power iteration, from a random direction, towards ρ²λ_max/2); where that
    lowers it, ε ← Π(ε + s ∇L/‖∇L‖) with s = ρ, ρ/2, ... until it rises.  Only rises are taken, so that the value
    is never below that of one step, nor below 0.

    Args:
        landscape: the loss.
        rho: ρ, the ball's radius.
        w: the point, [d]; the landscape's own unless given.
        steps: points tried uphill, at most.

    Raises:
        FedscapeError: a radius or number of steps that makes no sense, a point of another shape, a loss that is
            not finite at the point.
    """
    point = _point(landscape, w)
    loss = _height(landscape, point)
    rise = _rise(landscape, point, loss, torch.ones_like(point), rho, steps)
    return Sharpness("sam", rise, None, loss, rho, landscape.samples, steps)


def adaptive_sharpness(
    landscape: Landscape, rho: float, eta: float = 0.0, w: Tensor | None = None, steps: int = 1
) -> Sharpness:
    """max_{‖T⁻¹ε‖≤ρ} L(w+ε) − L(w) (Kwon et al., ICML 2021, Definition 2), from below.

    T is diagonal: |w| + η on weights and normalisation scales and 1 on biases, as the trainers' ASAM has it.  With
    η = 0 and no biases, weights re-scaled such that the function stays have the same value.  One step is ASAM's,
    ε = ρ T²∇L/‖T∇L‖ (eq. 9); more steps are those of :func:`sam_sharpness` in the coordinates
    T⁻¹ε, where the ball is round.

    Args:
        landscape, rho, w, steps: as in :func:`sam_sharpness`.
        eta: η; where it is 0, weights that are 0 stay 0.

    Raises:
        FedscapeError: as :func:`sam_sharpness`; η below 0.
    """
    if not 0 <= eta < float("inf"):
        raise FedscapeError(f"η is {eta}: it must be 0 or more")
    point = _point(landscape, w)
    loss = _height(landscape, point)
    adaptive = landscape.space.mask("weight", "scale", device=point.device)
    scale = torch.where(adaptive, point.abs() + eta, torch.ones_like(point))
    rise = _rise(landscape, point, loss, scale, rho, steps)
    return Sharpness("adaptive", rise, None, loss, rho, landscape.samples, steps, eta=eta)


def m_sharpness(
    landscape: Landscape,
    rho: float,
    m: int,
    w: Tensor | None = None,
    steps: int = 1,
    *,
    batches: int | None = None,
    seed: int = 0,
) -> Sharpness:
    """The mean of max_{‖ε‖≤ρ} L_B(w+ε) − L_B(w) over disjoint batches B of m samples, each with an ε of its own.

    Foret et al., ICLR 2021, section 4.1; Andriushchenko & Flammarion, ICML 2022.  The samples are
    dealt into batches at random; a last batch of fewer than m counts by its size.  m = n is
    :func:`sam_sharpness`.  The standard error is that of the mean over the batches; it is 0 where one batch
    holds all samples, and ``None`` where one that does not was measured.

    Args:
        landscape, rho, w, steps: as in :func:`sam_sharpness`.
        m: samples per batch, 1 to n.
        batches: measure only the first so many; all unless given.
        seed: deals the samples.

    Raises:
        FedscapeError: as :func:`sam_sharpness`; m or the number of batches makes no sense; m is below n and the loss is
            no mean over samples (:meth:`landscape.Landscape.require_samples`); the landscape is of batches with an
            objective, which are dealt whole, and m is no multiple of the one size they have.
    """
    n = landscape.samples
    _require(1 <= m <= n, f"batches of {m} samples are asked for: give a number from 1 to the {n} there are")
    units, size = _dealt_in(landscape, m)
    _require(batches is None or batches >= 1, f"{batches} batches are asked for: give at least 1")
    if m < n:
        landscape.require_samples()
    point = _point(landscape, w)
    loss = _height(landscape, point)
    dealt = torch.randperm(units, generator=torch_generator(seed, "m-sharpness")).split(m // size)[:batches]
    rises = []
    for indices in dealt:
        part = landscape.subset(indices)
        rises.append(_rise(part, point, part.value(point), torch.ones_like(point), rho, steps))
    shares = np.array([len(indices) for indices in dealt], dtype=float)
    shares /= shares.sum()
    value = float(shares @ rises)
    stderr: float | None = None
    if len(rises) > 1:
        spread = shares**2 @ (np.array(rises) - value) ** 2
        stderr = float(np.sqrt(spread * len(rises) / (len(rises) - 1)))
    elif m == n:
        stderr = 0.0
    return Sharpness("m", value, stderr, loss, rho, n, steps, m=m, draws=len(rises), seed=seed)


def average_sharpness(
    landscape: Landscape, radius: float, directions: int = 20, seed: int = 0, w: Tensor | None = None
) -> Sharpness:
    """E L(w+ε) − L(w), ε uniform on the sphere of that radius in R^d; radius²·tr ∇²L/(2d) to second order.

    Each direction is taken both ways, ½(L(w+ε) + L(w−ε)) − L(w): without bias, and the gradient drops out of
    the variance.  In high dimension a Gaussian ε with E‖ε‖² = radius² gives the same.

    Args:
        landscape: the loss.
        radius: ‖ε‖.
        directions: pairs ±ε drawn, at least 2: each costs two evaluations.
        seed: draws them.
        w: the point, [d]; the landscape's own unless given.

    Raises:
        FedscapeError: as :func:`sam_sharpness`; fewer than 2 directions.
    """
    _require(directions >= 2, f"{directions} directions give no standard error: at least 2 are needed")
    _check_radius(radius)
    point = _point(landscape, w)
    loss = _height(landscape, point)
    generator = torch_generator(seed, "average sharpness")
    rises = []
    for _ in range(directions):
        normal = torch.randn(landscape.dimension, generator=generator, dtype=torch.float64)
        step = (radius * normal / normal.norm()).to(point)
        rises.append((landscape.value(point + step) + landscape.value(point - step)) / 2 - loss)
    stderr = float(np.std(rises, ddof=1) / np.sqrt(directions))
    value, n = float(np.mean(rises)), landscape.samples
    return Sharpness("average", value, stderr, loss, radius, n, 0, draws=directions, seed=seed)


def gradient_noise(
    landscape: Landscape, batch_size: int, draws: int = 50, seed: int = 0, w: Tensor | None = None
) -> GradientNoise:
    """‖∇L(w)‖, and tr Cov(g_B) = E‖g_B − ∇L‖² of the gradient g_B of a random mini-batch.

    A mini-batch is b samples without replacement, as in an epoch of training, so that with the samples' own
    gradients g_i the trace is (n−b)/(b(n−1)) · (1/n) Σ‖g_i − ∇L‖².  It is estimated by the mean of ‖g_B − ∇L‖² over
    independent mini-batches: ∇L is exact, so the mean has no bias, and its standard error is the usual one.

    Args:
        landscape: the loss.
        batch_size: b, 1 to n.
        draws: mini-batches drawn, at least 2.
        seed: draws them.
        w: the point, [d]; the landscape's own unless given.

    Raises:
        FedscapeError: a batch size or number of draws that makes no sense, a point of another shape; b is below n, and
            the loss is no mean over samples (:meth:`landscape.Landscape.require_samples`); the landscape is of batches
            with an objective, which are drawn whole, and the batch size is no multiple of the one size they have.
    """
    n = landscape.samples
    _require(1 <= batch_size <= n, f"a batch size of {batch_size} is asked for: give a number from 1 to {n}")
    units, size = _dealt_in(landscape, batch_size)
    _require(draws >= 2, f"{draws} mini-batches give no standard error: at least 2 are needed")
    if batch_size < n:
        landscape.require_samples()
    point = _point(landscape, w)
    gradient = landscape.gradient(point).double()
    generator = torch_generator(seed, "gradient noise")
    squares = []
    for _ in range(draws):
        part = landscape.subset(torch.randperm(units, generator=generator)[: batch_size // size])
        apart = part.gradient(point).double() - gradient
        squares.append(torch.dot(apart, apart).item())
    stderr = float(np.std(squares, ddof=1) / np.sqrt(draws))
    return GradientNoise(gradient.norm().item(), float(np.mean(squares)), stderr, n, batch_size, draws, seed)


def _dealt_in(landscape: Landscape, count: int) -> tuple[int, int]:
    """How many units can be dealt, and the samples in each: samples, or the whole batches of an objective."""
    data = landscape.micro_batches.data
    if not isinstance(data, Batches):
        return len(data), 1
    sizes = sorted(set(data.sizes))
    _require(
        len(sizes) == 1 and count % sizes[0] == 0,
        f"{count} samples are asked for of batches with an objective, which are dealt whole and have "
        f"{', '.join(map(str, sizes[:3]))}{' and other' if len(sizes) > 3 else ''} samples: give batches of one size, "
        "and a multiple of it",
    )
    return len(data.sizes), sizes[0]


def _rise(landscape: Landscape, w: Tensor, loss: float, scale: Tensor, rho: float, steps: int) -> float:
    """The rise found over the ball ‖ε/scale‖ ≤ ρ, in the coordinates u = ε/scale; see :func:`sam_sharpness`."""
    _check_radius(rho)
    _require(steps >= 1, f"{steps} steps uphill are asked for: give at least 1")

    def rise(u: Tensor) -> float:
        found = landscape.value(w + scale * u) - loss
        return found if found == found else float("inf")  # a loss that is not a number counts as infinite

    def slope(u: Tensor) -> Tensor:
        return scale * landscape.gradient(w + scale * u)

    def uphill(u: Tensor) -> Tensor:
        return _unit(slope(u))

    u = torch.zeros_like(w)
    first = slope(u)
    direction = _unit(first)
    one = rise(rho * direction)
    if steps == 1:
        return one
    best, length = 0.0, float("inf")
    if rho * float(first.norm()) <= _FLAT * abs(one):
        # The gradient is 0 but for rounding, which may be orthogonal to the steepest second-order direction.
        generator = torch_generator(0, "ascent from a stationary point")
        direction = _unit(torch.randn(len(w), generator=generator, dtype=torch.float64).to(w))
    for _ in range(steps):
        candidate = rho * direction if length > rho else _into_ball(u + length * direction, rho)
        height = rise(candidate)
        if height == float("inf"):
            return height
        if height > best:
            u, best, length = candidate, height, float("inf")
            direction = uphill(u)
        elif length < _SHORTEST * rho:
            break
        else:
            length = rho if length > rho else length / 2
    return max(best, one)


def _unit(v: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(v, dtype=torch.float64)  # in float32 that of a gradient of 1e-25 is 0
    return (v / norm).to(v) if norm else v


def _into_ball(u: Tensor, rho: float) -> Tensor:
    return u * (rho / u.norm().clamp_min(rho))


def _point(landscape: Landscape, w: Tensor | None) -> Tensor:
    point = landscape.weights if w is None else w.detach().to(landscape.weights)
    if point.shape != landscape.weights.shape:
        raise FedscapeError(f"a point is one vector of {landscape.dimension} parameters, not {tuple(point.shape)}")
    return point


def _height(landscape: Landscape, point: Tensor) -> float:
    loss = landscape.value(point)
    _require(np.isfinite(loss), f"the loss at the point is {loss}: there is nothing to measure around it")
    return loss


def _check_radius(radius: float) -> None:
    _require(0 < radius < float("inf"), f"the radius is {radius}: it must be above 0 and finite")


def _require(condition: bool, rule: str) -> None:
    if not condition:
        raise FedscapeError(rule)
