"""What the clients' local models reached, for themselves and for everybody, and what aggregation made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from analysis.alignment.curvature import eigenspace
from analysis.alignment.federation import Federation
from analysis.alignment.options import Asked
from analysis.alignment.perturbations import ascent_scale, ascent_step
from analysis.alignment.plain import Plain
from analysis.hessian.spectrum.operators import Hessian, Operator
from analysis.hessian.spectrum.refinement import spent
from analysis.hessian.spectrum.trace import estimate_trace
from analysis.surface.barrier import barrier
from landscape import Landscape
from landscape.compute.randomness import numpy_generator

WHERE = ("received", "local", "aggregate")
"""The points at which a client's loss is measured: what it received, its own model, what was made of all."""
QUANTITIES = ("loss", "accuracy", "sharpness", "lambda_max", "trace")
"""What is measured there, in this order; and the errors: 0, 0, 0, error bound, standard error."""


@dataclass(frozen=True)
class LocalModels(Plain):
    """Losses, accuracies, one-step rises, largest eigenvalues and traces four ways: of {f_i, f} at {w, w_i}, and at w⁺.

    w is the model that the clients received, w_i client i's model after its local work, w⁺ what the server made of
    them.  The three points are those of :data:`WHERE`, the five quantities those of :data:`QUANTITIES`; the sharpness
    is f(w + ε) − f(w) with one ascent step ε of the loss itself.  What is not finite, or was not measured, is NaN.

    Attributes:
        own: of f_i, [n, 3, 5]: at w, at w_i, at w⁺.
        own_errors: an error bound of λ_max, a standard error of the trace, else 0, [n, 3, 5].
        everybody: of f, [n, 3, 5]: at w_i in the middle; at w and w⁺ every client's row is the same.
        everybody_errors: as ``own_errors``.
        to_aggregate: the barrier of f on the line from w_i to w⁺, [n]: how far f rises above the straight line between
            the ends (:func:`analysis.surface.barrier.barrier`), from below, at so many points as were asked for.
        between: the same between w_i and w_j, [n, n]; NaN for pairs that were not drawn.
        distances: ‖w_i − w‖ (NaN without w) and ‖w_i − w⁺‖, [n, 2].
        diverged: 1 for a client whose model or loss is not finite: it is in no mean, [n].
        products: Hessian-vector products spent, each over one client's data, of f over everybody's: [2].
    """

    letters: ClassVar[dict[str, str]] = {
        "own": "n35",
        "own_errors": "n35",
        "everybody": "n35",
        "everybody_errors": "n35",
        "to_aggregate": "n",
        "between": "nn",
        "distances": "n2",
        "diverged": "n",
        "products": "2",
    }

    own: np.ndarray
    own_errors: np.ndarray
    everybody: np.ndarray
    everybody_errors: np.ndarray
    to_aggregate: np.ndarray
    between: np.ndarray
    distances: np.ndarray
    diverged: np.ndarray
    products: np.ndarray


@dataclass
class _Loss:
    """One of the losses f_i or f, with what is measured of it at a point."""

    value: Callable[[Tensor], tuple[float, float]]
    gradient: Callable[[Tensor], Tensor]
    hessian: Callable[[Tensor], Operator]
    products: int = 0

    def measure(self, w: Tensor, asked: Asked, scale: Tensor, curvature: bool) -> tuple[np.ndarray, np.ndarray]:
        """The five quantities at w and their errors; NaN where the loss is not finite."""
        found, errors = np.full(5, np.nan), np.zeros(5)
        found[:2] = self.value(w)
        if not np.isfinite(found[0]):
            return np.full(5, np.nan), errors
        found[2] = self.value(w + ascent_step(self.gradient(w), scale, asked.rho))[0] - found[0]
        if curvature:
            operator = self.hessian(w)
            eigen = eigenspace(operator, 1, asked)
            trace = estimate_trace(operator, eigen.krylov, tolerance=asked.trace_tolerance, seed=asked.seed)
            found[3:], errors[3:] = (eigen.values[0], trace.value), (eigen.bounds[0], trace.stderr)
            self.products += spent(operator, eigen)
        return found, errors


def compare_local_models(
    federation: Federation,
    received: Tensor | None,
    local: Sequence[Tensor],
    aggregate: Tensor,
    asked: Asked,
    told: Callable[[int], None] = lambda done: None,
) -> LocalModels:
    """Measure the local models of the measured clients.

    λ_max and the trace are measured where ``asked.parts`` has ``curvature``: f at n local models costs n eigen-solves
    over everybody's data.

    Args:
        federation: f and its clients.
        received: w, [d]; ``None`` where it was not saved.
        local: w_i in the order of the measured clients, [d] each.
        aggregate: w⁺, [d].
        asked: the ascent step, tolerances, points and pairs.
        told: called with the number of clients done.
    """
    n, curvature, space = len(local), "curvature" in asked.parts, federation.whole.space
    everybody = _everybody(federation)
    own, own_errors, all_, all_errors = (np.full((n, 3, 5), np.nan) for _ in range(4))
    shared = {
        place: everybody.measure(w, asked, ascent_scale(asked, w, space), curvature)
        for place, w in ((0, received), (2, aggregate))
        if w is not None
    }
    products, diverged = 0, np.zeros(n)
    for i, (client, w_i) in enumerate(zip(federation.clients, local, strict=True)):
        loss = _of(client)
        points = {0: received, 1: w_i if bool(w_i.isfinite().all()) else None, 2: aggregate}
        for place, w in points.items():
            if w is not None:
                scale = ascent_scale(asked, w, space)
                own[i, place], own_errors[i, place] = loss.measure(w, asked, scale, curvature)
        for place, (values, errors) in shared.items():
            all_[i, place], all_errors[i, place] = values, errors
        if np.isfinite(own[i, 1, 0]):
            all_[i, 1], all_errors[i, 1] = everybody.measure(w_i, asked, ascent_scale(asked, w_i, space), curvature)
        diverged[i] = float(not (np.isfinite(own[i, 1, 0]) and np.isfinite(all_[i, 1, 0])))
        products += loss.products
        told(i + 1)
    sound = [i for i in range(n) if not diverged[i]]
    to_aggregate, between = np.full(n, np.nan), np.full((n, n), np.nan)
    for i in sound:
        to_aggregate[i] = _barrier(everybody, local[i], aggregate, asked)
    for i, j in _pairs(sound, asked):
        between[i, j] = between[j, i] = _barrier(everybody, local[i], local[j], asked)
    distances = [[_distance(w_i, received), _distance(w_i, aggregate)] for w_i in local]
    return LocalModels(
        own=own,
        own_errors=own_errors,
        everybody=all_,
        everybody_errors=all_errors,
        to_aggregate=to_aggregate,
        between=between,
        distances=np.where(diverged[:, None] > 0, np.nan, np.array(distances)),
        diverged=diverged,
        products=np.array([float(products), float(everybody.products)]),
    )


def _of(client: Landscape) -> _Loss:
    def value(w: Tensor) -> tuple[float, float]:
        found = client.evaluate(w)
        return found.loss, float("nan") if found.accuracy is None else found.accuracy

    return _Loss(value, client.gradient, lambda w: Hessian(client, w))


def _everybody(federation: Federation) -> _Loss:
    def value(w: Tensor) -> tuple[float, float]:
        found = [(share, part.evaluate(w)) for share, part in federation.together]
        accuracies = [float("nan") if one.accuracy is None else share * one.accuracy for share, one in found]
        return float(sum(share * one.loss for share, one in found)), float(sum(accuracies))

    return _Loss(value, federation.gradient, federation.hessian)


def _barrier(loss: _Loss, start: Tensor, end: Tensor, asked: Asked) -> float:
    steps = np.linspace(0.0, 1.0, asked.barrier_points)
    heights = np.array([loss.value(torch.lerp(start, end, float(t)))[0] for t in steps])
    found = barrier(steps, heights, 0.0, 1.0)
    return float("nan") if found is None else found.height


def _pairs(clients: Sequence[int], asked: Asked) -> list[tuple[int, int]]:
    """All pairs, or as many of them as are allowed, drawn at random."""
    every = list(combinations(clients, 2))
    if len(every) <= asked.barrier_pairs:
        return every
    drawn = numpy_generator(asked.seed, "barrier pairs").choice(len(every), asked.barrier_pairs, replace=False)
    return [every[k] for k in sorted(drawn)]


def _distance(a: Tensor, b: Tensor | None) -> float:
    return float("nan") if b is None else float(torch.linalg.vector_norm(a - b, dtype=torch.float64))
