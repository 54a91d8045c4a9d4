"""Directions in parameter space, and the planes they span."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from landscape import FedscapeError, Landscape, ParameterSpace
from landscape.digests import tensor_digest
from landscape.randomness import torch_generator

FILTER = "filter"
"""The normalisation of Li et al.: each filter of a direction is as long as the same filter of the point."""


def filter_normalised(w: Tensor, space: ParameterSpace, random: torch.Generator | int) -> Tensor:
    """A random direction whose filters are as long as those of ``w`` (Li et al., NeurIPS 2018, section 4).

        d_f ← d_f / ‖d_f‖ · ‖w_f‖   for each filter f, with d ~ N(0, I);

    biases and the scales of normalisation layers are zero.  A filter of zeros in ``w`` is zero in the
    direction.

    Args:
        w: the point, [d].
        space: its layout.
        random: a generator of the CPU's, or a seed.  Draws and norms are taken on the CPU in float64, so
            every device and dtype has the same direction up to the rounding to the type of ``w``.

    Returns:
        The direction [d], with the dtype and on the device of ``w``.
    """
    space.check(w)
    generator = random if isinstance(random, torch.Generator) else torch_generator(random, "direction", 0)
    point = w.detach().to("cpu", torch.float64)
    draw = torch.randn(space.dimension, generator=generator, dtype=torch.float64)
    direction = torch.zeros_like(draw)
    for vectors in zip(space.filters(point), space.filters(draw), space.filters(direction), strict=True):
        of_point, of_draw, ours = (filters for _, filters in vectors)
        lengths = of_draw.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
        ours.copy_(of_draw / lengths * of_point.norm(dim=1, keepdim=True))
    return direction.to(w)


@dataclass(frozen=True, eq=False)
class Plane:
    """The points ``origin + x · directions[0] + y · directions[1]``.

    Attributes:
        origin: the point at x = y = 0, [d].
        directions: [2, d]; not orthogonal unless they were made so.
        normalisation: how the directions were scaled.
        seed: of what is random in them.
    """

    origin: Tensor
    directions: Tensor
    normalisation: str
    seed: int

    def point(self, x: float, y: float, out: Tensor | None = None) -> Tensor:
        """The point at (x, y), [d]; written to ``out`` where one is given."""
        first, second = self.directions
        return torch.add(self.origin, first, alpha=x, out=out).add_(second, alpha=y)

    @property
    def cosine(self) -> float:
        """The cosine of the angle between the directions."""
        first, second = self.directions.double()
        return (first @ second / (first.norm() * second.norm())).item()

    def digest(self) -> str:
        """A SHA-256 over origin and directions."""
        return tensor_digest(self.origin, self.directions)


def random_plane(landscape: Landscape, seed: int = 0) -> Plane:
    """The plane through ``landscape.weights`` along two filter-normalised random directions.

    The directions stay as drawn, as in the paper: they are nearly orthogonal where d is large
    (``Plane.cosine`` says how nearly), and not made so.

    Raises:
        FedscapeError: the weights are not finite, or no weight matrix has a filter that is not zero.
    """
    w = landscape.weights.clone()
    if not w.isfinite().all():
        raise FedscapeError("the model's parameters are not all finite: there is no surface around them")
    directions = [filter_normalised(w, landscape.space, torch_generator(seed, "direction", k)) for k in range(2)]
    if not all(direction.any() for direction in directions):
        raise FedscapeError(
            "every weight matrix of the model is zero or there is none: filter-normalised directions "
            "have no length, so there is no plane"
        )
    return Plane(w, torch.stack(directions), FILTER, seed)
