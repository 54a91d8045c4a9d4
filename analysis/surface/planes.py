"""Planes and lines in parameter space, and the coordinates of models in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from analysis.hessian.spectrum.eigen import largest_eigenpairs
from analysis.hessian.spectrum.operators import Hessian, Report
from analysis.surface.directions import FILTER, Directions, random_directions
from analysis.surface.marked_points import Mark
from landscape import FedscapeError, Landscape
from landscape.storage.digests import tensor_digest

EIGENVECTORS = "eigenvectors"

MARGIN = 0.2
"""How far a grid reaches beyond the models, as a share of their extent, unless given."""

BLOCK = 2**20
"""How many numbers, of all models together, are in float64 at once: 8 MiB, in about three arrays."""


@dataclass(frozen=True, eq=False)
class Plane:
    """The points ``origin + x · directions[0] + y · directions[1]``.

    Attributes:
        origin: the point at x = y = 0, [d].
        directions: [2, d]; neither orthogonal nor of unit length unless they were made so.
        normalisation: how the directions were scaled or made.
        seed: of their random numbers.
        kind: ``random``, ``hessian``, ``three`` or ``pca``; of :class:`Lines` ``line`` or ``profile``.
        labels: of the two axes, with their units.
        marks: the models in it.
        trajectory: the coordinates of the models along a run, [t, 2].
        explained: shares of the models' variance along the two directions.
        values: the eigenvalues, where the directions are eigenvectors of the Hessian.
    """

    origin: Tensor
    directions: Tensor
    normalisation: str
    seed: int
    kind: str = "random"
    labels: tuple[str, str] = ("step along direction 1", "step along direction 2")
    marks: tuple[Mark, ...] = (Mark("checkpoint", 0.0, 0.0),)
    trajectory: np.ndarray | None = None
    explained: tuple[float, float] | None = None
    values: tuple[float, ...] | None = None

    def point(self, x: float, y: float, out: Tensor | None = None) -> Tensor:
        """The point at (x, y), [d]; written to ``out`` where one is given."""
        first, second = self.directions
        return torch.add(self.origin, first, alpha=x, out=out).add_(second, alpha=y)

    def project(self, w: Tensor) -> tuple[float, float]:
        """The coordinates of the plane's point nearest to ``w`` ([d]), whatever the directions' lengths and angle.

        Least squares: with D = ``directions``, (D Dᵀ) (x, y)ᵀ = D (w − origin).
        """
        directions, step = self.directions.double(), w.to(self.origin).double() - self.origin.double()
        x, y = torch.linalg.solve(directions @ directions.T, directions @ step).tolist()
        return x, y

    def grid(self, points: tuple[int, int], span: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The coordinates [nx], [ny] of a uniform grid.

        Around one model it reaches ``span`` (1 unless given) to each side.  Around several models and a trajectory
        it reaches ``span`` (0.2 unless given) of their extent beyond them.
        """
        if self.kind in ("random", "hessian"):
            x, y = (uniform(n, 1.0 if span is None else span) for n in points)
            return x, y
        places = np.array([(mark.x, mark.y) for mark in self.marks])
        if self.trajectory is not None:
            places = np.concatenate([places, self.trajectory])
        low, high = places.min(axis=0), places.max(axis=0)
        # Where the models lie nearly on a line, the grid is a strip whose width is a tenth of its length.
        beyond = (MARGIN if span is None else span) * np.maximum(high - low, 0.1 * (high - low).max())
        low, high = low - beyond, high + beyond
        x, y = (np.linspace(a, b, n) for a, b, n in zip(low, high, points, strict=True))
        return x, y

    def shares(self, x: float, y: float) -> np.ndarray:
        """Weights of the marked models that sum to 1 and whose weighted mean is the point at (x, y), [3].

        These are its barycentric coordinates in the triangle of three models.
        """
        corners = np.array([[1.0, mark.x, mark.y] for mark in self.marks]).T
        return np.linalg.solve(corners, [1.0, x, y])

    @property
    def cosine(self) -> float:
        """The cosine of the angle between the directions."""
        first, second = self.directions.double()
        return (first @ second / (first.norm() * second.norm())).item()

    def kept(self, landscape: Landscape) -> Directions:
        """Its directions as they are saved, with a fingerprint of the landscape they were made on."""
        return Directions(self.directions, self.normalisation, self.seed, self.labels, landscape.digest())

    def digest(self) -> str:
        """A SHA-256 over origin and directions."""
        return tensor_digest(self.origin, self.directions)


class Lines(Plane):
    """The lines ``origin + x · directions[k]``, with k in place of y; ``directions`` is [k, d]."""

    def point(self, x: float, y: float, out: Tensor | None = None) -> Tensor:
        """The point at x on line y, [d]; written to ``out`` where one is given."""
        return torch.add(self.origin, self.directions[int(y)], alpha=x, out=out)

    def grid(self, points: tuple[int, int], span: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The coordinates along the lines, [nx], and the lines' numbers.

        A profile reaches ``span`` (1) to each side; a line between two models about ``span`` (0.2) of its length
        beyond them, so that both models, 0 and 1, are points of the grid.
        """
        lines = np.arange(float(len(self.directions)))
        if self.kind == "profile":
            return uniform(points[0], 1.0 if span is None else span), lines
        last, beyond = points[0] - 1, MARGIN if span is None else span
        outside = min(round(beyond * last / (1 + 2 * beyond)), (last - 1) // 2)
        return (np.arange(points[0]) - outside) / (last - 2 * outside), lines

    def shares(self, x: float, y: float) -> np.ndarray:
        """Weights of the two models whose weighted mean is the point at x, [2]."""
        return np.array([1 - x, x])

    @property
    def cosine(self) -> float:
        """Not a number: lines need no angle between them."""
        return float("nan")


def uniform(points: int, span: float) -> np.ndarray:
    """Points uniform on [−span, span], exactly symmetric, with an exact 0 in the middle of an odd number."""
    return np.arange(1 - points, points, 2) / (points - 1) * span


def random_plane(
    landscape: Landscape,
    seed: int = 0,
    *,
    normalisation: str = FILTER,
    biases: bool = False,
    orthogonal: bool = True,
) -> Plane:
    """The plane through ``landscape.weights`` along two random directions (:func:`random_directions`).

    Raises:
        FedscapeError: the weights are not finite, an unknown normalisation, or nothing in them to scale by.
    """
    w = _finite(landscape.weights)
    directions = random_directions(
        w, landscape.space, seed, normalisation=normalisation, biases=biases, orthogonal=orthogonal
    )
    return Plane(w, directions, _recipe(normalisation, biases, orthogonal), seed, labels=_steps(normalisation))


def profiles(
    landscape: Landscape, seed: int = 0, count: int = 1, *, normalisation: str = FILTER, biases: bool = False
) -> Lines:
    """Lines through ``landscape.weights`` along random directions, which are not orthogonalised.

    Raises:
        FedscapeError: as :func:`random_plane`, or no line is asked for.
    """
    if count < 1:
        raise FedscapeError(f"{count} profiles are asked for: give at least 1")
    w = _finite(landscape.weights)
    directions = random_directions(
        w, landscape.space, seed, count, normalisation=normalisation, biases=biases, orthogonal=False
    )
    labels = (_steps(normalisation)[0].replace(" 1", ""), "direction's number")
    return Lines(w, directions, _recipe(normalisation, biases, True), seed, "profile", labels)


def _recipe(normalisation: str, biases: bool, orthogonal: bool) -> str:
    return normalisation + (", biases too" if biases else "") + ("" if orthogonal else ", as drawn")


def _steps(normalisation: str) -> tuple[str, str]:
    scaled = "" if normalisation == "none" else f" ({normalisation}-normalised)"
    return f"step along direction 1{scaled}", f"step along direction 2{scaled}"


def hessian_plane(
    landscape: Landscape, seed: int = 0, *, tolerance: float = 1e-3, report: Report | None = None
) -> Plane:
    """The plane along the unit eigenvectors of the Hessian's two largest eigenvalues.

    The sign of an eigenvector is arbitrary: here its largest entry is positive.

    Raises:
        FedscapeError: the weights or the Hessian are not finite, or there is only one parameter.
    """
    w = _finite(landscape.weights)
    found = largest_eigenpairs(Hessian(landscape), 2, tolerance=tolerance, seed=seed, report=report)
    assert found.vectors is not None
    vectors = found.vectors[:2].to(w)
    largest = vectors.gather(1, vectors.abs().argmax(dim=1, keepdim=True))
    first, second = (float(value) for value in found.values)
    labels = (f"distance along eigenvector 1 (λ = {first:.4g})", f"distance along eigenvector 2 (λ = {second:.4g})")
    return Plane(w, vectors * largest.sign(), EIGENVECTORS, seed, "hessian", labels, values=(first, second))


def plane_along(landscape: Landscape, directions: Directions) -> Plane:
    """The plane through ``landscape.weights`` along two directions, which may be of another checkpoint.

    Raises:
        FedscapeError: the weights are not finite, or there are not two directions.
    """
    if len(directions.vectors) != 2:
        raise FedscapeError(f"{len(directions.vectors)} directions are given: a plane needs two")
    w = _finite(landscape.weights)
    kind = "hessian" if directions.recipe == EIGENVECTORS else "random"
    return Plane(w, directions.vectors.to(w), directions.recipe, directions.seed, kind, directions.labels)


def profiles_along(landscape: Landscape, directions: Directions) -> Lines:
    """Lines through ``landscape.weights`` along directions from a file, such as those of a plane.

    Raises:
        FedscapeError: the weights are not finite.
    """
    w = _finite(landscape.weights)
    labels = (directions.labels[0].partition(" (λ")[0].replace(" 1", ""), "direction's number")
    return Lines(w, directions.vectors.to(w), directions.recipe, directions.seed, "profile", labels)


def three_plane(models: Sequence[Tensor], labels: Sequence[str]) -> Plane:
    """The plane through three models (Garipov et al., NeurIPS 2018, appendix A.1), at distances in parameter space.

        u = (w₂ − w₁)/‖w₂ − w₁‖,   v = v′/‖v′‖ with v′ = (w₃ − w₁) − ⟨w₃ − w₁, u⟩ u.

    Args:
        models: three points, [d]; the first is the origin.
        labels: of the three.

    Raises:
        FedscapeError: there are not three, they are not finite, or they lie on one line.
    """
    if len(models) != 3:
        raise FedscapeError(f"{len(models)} models are given: a plane goes through three")
    origin = _finite(models[0])
    first, second = (_finite(model).double() - origin.double() for model in models[1:])
    length = first.norm()
    u = first / length
    v = second - (second @ u) * u
    v -= (v @ u) * u  # once more, against the rounding that nearly parallel vectors leave
    height = v.norm()
    if length == 0 or height <= 1e-6 * second.norm():
        raise FedscapeError("the three models lie on one line (or are the same): there is no plane through them")
    places = ((0.0, 0.0), (float(length), 0.0), (float(second @ u), float(height)))
    marks = tuple(Mark(label, *place) for label, place in zip(labels, places, strict=True))
    axes = (f"distance from {labels[0]} towards {labels[1]}", f"distance towards {labels[2]}")
    return Plane(origin, torch.stack([u, v / height]).to(origin), "Gram–Schmidt", 0, "three", axes, marks)


def pca_plane(models: Sequence[Tensor], labels: Sequence[str]) -> Plane:
    """The plane through the last of a run's models along which they varied most (Li et al., 2018, section 7).

    The directions are the first two principal components of the models, of unit length.  The trajectory is the
    projection of the models, so that movement outside of the plane is not seen (``explained`` says how much lies in
    it).  Sums are in float64, over some of the parameters at a time: the memory is that of the models and the plane.

    Args:
        models: t ≥ 3 points, [d], in order.
        labels: of the models; the first and the last are marked.

    Raises:
        FedscapeError: there are fewer than three, they are not finite, or they lie on one line.
    """
    if len(models) < 3:
        raise FedscapeError(f"{len(models)} models are given: principal components need at least 3")
    for model in models:
        _require_finite(model)
    origin, (squares, vectors) = models[-1].clone(), _components(models)
    if squares[1] <= 1e-12 * squares[0]:
        raise FedscapeError("the models lie on one line (or are the same): there is no plane of principal components")
    directions, trajectory = _along(models, vectors[:, :2] / squares[:2].sqrt())
    shares = squares[:2] / squares.clamp_min(0).sum()
    explained = (float(shares[0]), float(shares[1]))
    axes = tuple(f"distance along component {k + 1} ({share:.1%} of variance)" for k, share in enumerate(explained))
    marks = tuple(Mark(labels[k], *trajectory[k].tolist()) for k in (0, -1))
    return Plane(
        origin, directions, "principal components", 0, "pca", (axes[0], axes[1]), marks, trajectory.numpy(), explained
    )


def _blocks(models: Sequence[Tensor]) -> Iterator[tuple[slice, Tensor]]:
    """Some parameters at a time: which, and there the models minus the last model, [t, b] in float64."""
    width = max(1, BLOCK // len(models))
    for start in range(0, len(models[-1]), width):
        part = slice(start, start + width)
        yield part, torch.stack([model[part].double() for model in models]) - models[-1][part].double()


def _components(models: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Squared singular values of the centred models, [t], the largest first, and their left vectors, [t, t].

    They are the eigenvectors of the models' Gram matrix, [t, t], which is small where d is large.
    """
    products = torch.zeros(len(models), len(models), dtype=torch.float64, device=models[-1].device)
    for _, steps in _blocks(models):
        centred = steps - steps.mean(dim=0)
        products += centred @ centred.T
    squares, vectors = torch.linalg.eigh(products)
    return squares.flip(0), vectors.flip(1)


def _along(models: Sequence[Tensor], weights: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of the centred models with ``weights`` ([t, 2]), [2, d], and the models' coordinates, [t, 2].

    The coordinates are least squares, as :meth:`Plane.project` has them; those of the first model are not negative.
    """
    directions = models[-1].new_empty(2, len(models[-1]))
    lengths, products = (weights.new_zeros(2, count) for count in (2, len(models)))
    for part, steps in _blocks(models):
        directions[:, part] = weights.T @ (steps - steps.mean(dim=0))
        rounded = directions[:, part].double()
        lengths += rounded @ rounded.T
        products += rounded @ steps.T
    signs = torch.where(products[:, :1] < 0, -1.0, 1.0).to(products)
    directions *= signs.to(directions)
    return directions, torch.linalg.solve(lengths * signs * signs.T, products * signs).T.cpu()


def line_between(models: Sequence[Tensor], labels: Sequence[str]) -> Lines:
    """The line w₁ + x (w₂ − w₁) through two models, [d] each.

    Raises:
        FedscapeError: there are not two, they are not finite, or they are the same.
    """
    if len(models) != 2:
        raise FedscapeError(f"{len(models)} models are given: a line goes through two")
    origin, end = (_finite(model) for model in models)
    direction = end - origin
    if not direction.any():
        raise FedscapeError("the two models are the same: there is no line through them")
    marks = (Mark(labels[0], 0.0, 0.0), Mark(labels[1], 1.0, 0.0))
    axes = (f"position between {labels[0]} (0) and {labels[1]} (1)", "line")
    return Lines(origin, direction[None], "difference", 0, "line", axes, marks)


def _require_finite(w: Tensor) -> None:
    if not w.isfinite().all():
        raise FedscapeError("the model's parameters are not all finite: there is no surface around them")


def _finite(w: Tensor) -> Tensor:
    _require_finite(w)
    return w.clone()
