"""The plane that is asked for by name, with directions from a file or kept in one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from analysis.surface.directions import Directions
from analysis.surface.models import Model, labels_of
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

PlaneKind = Literal["random", "hessian", "three", "pca", "line"]


def plane_of(
    kind: PlaneKind,
    landscape: Landscape,
    models: list[Model],
    seed: int,
    seeds: int,
    orthogonal: bool,
    how: dict[str, Any],
    directions: str | Path | None,
    store: str | Path | None,
    progress: bool,
) -> Plane:
    """The plane of a kind through the models; directions that are made are kept where a file is named.

    Args:
        kind: which.
        landscape: around the first model, or the only one.
        models: as many as the kind needs; none where there is only the landscape.
        seed, seeds, orthogonal, how: of random directions (``how``: normalisation and biases).
        directions: the file that keeps them.
        store: the surface's file, beside which the Hessian's directions are kept unless a file is named.
        progress: show that of the Hessian's eigenvectors.

    Raises:
        FedscapeError: an unknown kind, another number of models than it needs, models that make no plane, a file of
            directions that cannot be used or written.
    """
    counts = {"random": (1,), "hessian": (1,), "three": (3,), "line": (1, 2), "pca": ()}
    if kind not in counts:
        raise FedscapeError(f"unknown plane '{kind}': give {', '.join(counts)}")
    count = max(len(models), 1)
    if counts[kind] and count not in counts[kind]:
        wanted = " or ".join(map(str, counts[kind]))
        raise FedscapeError(f"{count} checkpoints are given: the plane '{kind}' goes through {wanted}")
    if directions is not None and (kind in ("three", "pca") or (kind == "line" and count == 2)):
        raise FedscapeError(f"the plane '{kind}' has the directions of its models: leave out the file of directions")
    if kind == "pca" and not models:
        raise FedscapeError("the plane 'pca' is of a run's models: give checkpoints")
    weights, labels = [m.weights(landscape) for m in models], labels_of(models)
    if kind == "three":
        return three_plane(weights, labels)
    if kind == "pca":
        return pca_plane(weights, [f"round {m.checkpoint.round}" for m in models])
    if kind == "line" and count == 2:
        return line_between(weights, labels)
    own = directions is None
    if own and kind == "hessian" and store is not None:
        directions = Path(store).with_suffix(".directions.pt")
    if directions is not None and os.path.exists(directions):
        kept = Directions.load(directions, landscape.space)
        if not own or kept.source == landscape.digest():
            return profiles_along(landscape, kept) if kind == "line" else plane_along(landscape, kept)
    plane: Plane
    if kind == "line":
        plane = profiles(landscape, seed, seeds, **how)
    elif kind == "random":
        plane = random_plane(landscape, seed, orthogonal=orthogonal, **how)
    else:
        with Progress("Hessian", unit="HVPs", enabled=progress) as bar:
            plane = hessian_plane(landscape, seed, report=lambda n, error: bar.update(n, error=error))
    if directions is not None and rank_and_world()[0] == 0:
        plane.kept(landscape).save(directions, landscape.space)
    return plane
