"""The plane that the options ask for; its directions are read from a file, or kept in one."""

from __future__ import annotations

import os
from pathlib import Path

from analysis.surface.directions import Directions
from analysis.surface.models import Model, labels_of
from analysis.surface.options import Grid
from analysis.surface.planes import (
    Plane,
    hessian_plane,
    line_between,
    pca_plane,
    plane_along,
    profiles,
    profiles_along,
    random_plane,
    three_plane,
)
from landscape import FedscapeError, Landscape
from landscape.compute.distributed import rank_and_world
from landscape.terminal.progress import Progress

_MODELS = {"random": (1,), "hessian": (1,), "three": (3,), "line": (1, 2), "pca": ()}
"""How many models each plane goes through; empty: any number."""


def plane_of(
    grid: Grid, landscape: Landscape, models: list[Model], store: Path | None = None, *, progress: bool = False
) -> Plane:
    """The plane that ``grid`` asks for, through the models; directions that are made are kept where a file is named.

    Args:
        grid: which plane, and how random directions are drawn; a plane of the caller's own is returned as it is.
        landscape: around the first model, or the only one.
        models: as many as the plane needs; empty where there is only the landscape.
        store: the surface's file; the Hessian's directions are kept beside it unless another file is named.
        progress: show that of the Hessian's eigenvectors.

    Raises:
        FedscapeError: an unknown plane, another number of models than it needs, models that span no plane, a file of
            directions that cannot be used or written.
    """
    if isinstance(grid.plane, Plane):
        if len(models) > 1 or grid.directions is not None:
            raise FedscapeError("a plane of your own has its models and directions: leave out others and directions")
        return grid.plane
    _check(grid, models)
    weights, labels = [m.weights(landscape) for m in models], labels_of(models)
    if grid.plane == "three":
        return three_plane(weights, labels)
    if grid.plane == "pca":
        return pca_plane(weights, [f"round {m.checkpoint.round}" for m in models])
    if grid.plane == "line" and len(models) == 2:
        return line_between(weights, labels)
    return _around_one(grid, landscape, store, progress)


def _check(grid: Grid, models: list[Model]) -> None:
    """Refuse a plane that these models cannot have.

    Raises:
        FedscapeError: as :func:`plane_of`.
    """
    kind, count = str(grid.plane), max(len(models), 1)
    if kind not in _MODELS:
        raise FedscapeError(f"unknown plane '{kind}': give {', '.join(_MODELS)}")
    if _MODELS[kind] and count not in _MODELS[kind]:
        wanted = " or ".join(map(str, _MODELS[kind]))
        raise FedscapeError(f"{count} checkpoints are given: the plane '{kind}' goes through {wanted}")
    if grid.directions is not None and (kind in ("three", "pca") or (kind == "line" and count == 2)):
        raise FedscapeError(f"the plane '{kind}' has the directions of its models: leave out the file of directions")
    if kind == "pca" and not models:
        raise FedscapeError("the plane 'pca' is of a run's models: give checkpoints")


def _around_one(grid: Grid, landscape: Landscape, store: Path | None, progress: bool) -> Plane:
    """A plane or lines through one model: along the directions of a file where it is there, else along new ones."""
    own, file = grid.directions is None, None if grid.directions is None else Path(grid.directions)
    if own and grid.plane == "hessian" and store is not None:
        file = store.with_suffix(".directions.pt")
    if file is not None and os.path.exists(file):
        kept = Directions.load(file, landscape.space)
        if not own or kept.source == landscape.digest():
            return profiles_along(landscape, kept) if grid.plane == "line" else plane_along(landscape, kept)
    plane = _new(grid, landscape, progress)
    if file is not None and rank_and_world()[0] == 0:
        plane.kept(landscape).save(file, landscape.space)
    return plane


def _new(grid: Grid, landscape: Landscape, progress: bool) -> Plane:
    """A plane or lines along directions that are drawn, or found as eigenvectors."""
    if grid.plane == "line":
        return profiles(landscape, grid.seed, grid.seeds, normalisation=grid.normalisation, biases=grid.biases)
    if grid.plane == "random":
        return random_plane(
            landscape,
            grid.seed,
            normalisation=grid.normalisation,
            biases=grid.biases,
            orthogonal=not grid.as_drawn,
        )
    with Progress("Hessian", unit="HVPs", enabled=progress) as bar:
        return hessian_plane(landscape, grid.seed, report=lambda n, error: bar.update(n, error=error))
