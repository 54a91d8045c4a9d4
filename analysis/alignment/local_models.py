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
from analysis.alignment.ranks import divided, rank_graph_memory
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


@dataclass(frozen=True)
class _Loss:
    """One of the losses f_i or f, with what is measured of it at a point."""

    value: Callable[[Tensor], tuple[float, float]]
    gradient: Callable[[Tensor], Tensor]
    hessian: Callable[[Tensor], Operator]

    def measure(self, w: Tensor, asked: Asked, scale: Tensor) -> np.ndarray:
        """The five quantities at w, their errors, and the products spent, [11]; NaN where the loss is not finite."""
        found, errors, products = np.full(5, np.nan), np.zeros(5), 0
        loss, accuracy = self.value(w)
        if np.isfinite(loss):
            rise = self.value(w + ascent_step(self.gradient(w), scale, asked.rho))[0] - loss
            found[:3] = loss, accuracy, rise
            if "curvature" in asked.parts:
                operator = self.hessian(w)
                eigen = eigenspace(operator, 1, asked)
                trace = estimate_trace(
                    operator,
                    eigen.krylov,
                    tolerance=asked.trace_tolerance,
                    max_probes=asked.trace_probes,
                    seed=asked.seed,
                )
                found[3:], errors[3:] = (eigen.values[0], trace.value), (eigen.bounds[0], trace.stderr)
                products = spent(operator, eigen)
        return np.concatenate([found, errors, [products]])


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
    over everybody's data.  The ranks of ``torchrun`` divide the losses and points among them.

    Args:
        federation: f and its clients.
        received: w, [d]; ``None`` where it was not saved.
        local: w_i in the order of the measured clients, [d] each.
        aggregate: w⁺, [d].
        asked: the ascent step, tolerances, points and pairs.
        told: called with the number of clients done.
    """
    n, everybody = len(local), _everybody(federation, rank_graph_memory(aggregate.device))
    own, all_, products = _four_ways(federation, everybody, received, local, aggregate, asked, told)
    diverged = 1.0 - (np.isfinite(own[:, 1, 0]) & np.isfinite(all_[:, 1, 0]))
    sound = [i for i in range(n) if not diverged[i]]
    lines = [(i, n) for i in sound] + _pairs(sound, asked)
    heights = _barriers(everybody, lines, [*local, aggregate], [*all_[:, 1, 0], all_[0, 2, 0]], asked)
    to_aggregate, between = np.full(n, np.nan), np.full((n, n), np.nan)
    for (i, j), height in zip(lines, heights, strict=True):
        if j == n:
            to_aggregate[i] = height
        else:
            between[i, j] = between[j, i] = height
    distances = [[_distance(w_i, received), _distance(w_i, aggregate)] for w_i in local]
    return LocalModels(
        own=own[..., :5],
        own_errors=own[..., 5:10],
        everybody=all_[..., :5],
        everybody_errors=all_[..., 5:10],
        to_aggregate=to_aggregate,
        between=between,
        distances=np.where(diverged[:, None] > 0, np.nan, np.array(distances)),
        diverged=diverged,
        products=products,
    )


def _four_ways(
    federation: Federation,
    everybody: _Loss,
    received: Tensor | None,
    local: Sequence[Tensor],
    aggregate: Tensor,
    asked: Asked,
    told: Callable[[int], None],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What :meth:`_Loss.measure` gives of f_i and of f at the three places, [n, 3, 11] each; the products, [2]."""
    n, memory = len(local), rank_graph_memory(aggregate.device)
    each = [_of(client, memory) for client in federation.clients]
    there = [w_i if bool(w_i.isfinite().all()) else None for w_i in local]
    at = [[received, w_i, aggregate] for w_i in there]
    # The rows of clients from here, a loss, a place and the model there: those of f, which take longest, first.
    shared = [(range(n), everybody, place, w) for place, w in ((0, received), (2, aggregate))]
    by_client = [([i], everybody, 1, w_i) for i, w_i in enumerate(there)]
    of_clients = [([i], each[i], place, w) for i in range(n) for place, w in enumerate(at[i])]
    tasks = [(rows, loss, place, w) for rows, loss, place, w in [*shared, *by_client, *of_clients] if w is not None]

    def measured(k: int) -> list[Tensor]:
        _, loss, _, w = tasks[k]
        return [torch.from_numpy(loss.measure(w, asked, ascent_scale(asked, w, federation.whole.space)))]

    number = aggregate.new_empty(0, dtype=torch.float64)
    found = divided(
        len(tasks), lambda mine: map(measured, mine), [(11,)], [number], lambda done: told(done * n // len(tasks))
    )
    own, all_, products = np.full((n, 3, 11), np.nan), np.full((n, 3, 11), np.nan), np.zeros(2)
    for (rows, loss, place, _), (numbers,) in zip(tasks, found, strict=True):
        (all_ if loss is everybody else own)[list(rows), place] = numbers.cpu().numpy()
        products[int(loss is everybody)] += float(numbers[10])
    return own, all_, products


def _of(client: Landscape, memory: int | None) -> _Loss:
    def value(w: Tensor) -> tuple[float, float]:
        found = client.evaluate(w)
        return found.loss, float("nan") if found.accuracy is None else found.accuracy

    return _Loss(value, client.gradient, lambda w: Hessian(client, w, graph_memory=memory))


def _everybody(federation: Federation, memory: int | None) -> _Loss:
    def value(w: Tensor) -> tuple[float, float]:
        found = [(share, part.evaluate(w)) for share, part in federation.together]
        accuracies = [float("nan") if one.accuracy is None else share * one.accuracy for share, one in found]
        return float(sum(share * one.loss for share, one in found)), float(sum(accuracies))

    return _Loss(value, federation.gradient, lambda w: federation.hessian(w, graph_memory=memory))


def _barriers(
    loss: _Loss, lines: Sequence[tuple[int, int]], models: Sequence[Tensor], values: Sequence[float], asked: Asked
) -> list[float]:
    """The barrier on the line between each pair of models, at which the loss has these values."""
    steps = np.linspace(0.0, 1.0, asked.barrier_points)

    def on_line(k: int) -> list[Tensor]:
        i, j = lines[k]
        between = [loss.value(torch.lerp(models[i], models[j], float(t)))[0] for t in steps[1:-1]]
        found = barrier(steps, np.array([values[i], *between, values[j]]), 0.0, 1.0)
        return [torch.tensor([float("nan") if found is None else found.height])]

    number = models[0].new_empty(0, dtype=torch.float64)
    return [float(height) for (height,) in divided(len(lines), lambda mine: map(on_line, mine), [(1,)], [number])]


def _pairs(clients: Sequence[int], asked: Asked) -> list[tuple[int, int]]:
    """All pairs, or as many of them as are allowed, drawn at random."""
    every = list(combinations(clients, 2))
    if len(every) <= asked.barrier_pairs:
        return every
    drawn = numpy_generator(asked.seed, "barrier pairs").choice(len(every), asked.barrier_pairs, replace=False)
    return [every[k] for k in sorted(drawn)]


def _distance(a: Tensor, b: Tensor | None) -> float:
    return float("nan") if b is None else float(torch.linalg.vector_norm(a - b, dtype=torch.float64))
