"""How the Hessians of the clients lie to one another and to that of the federation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from analysis.alignment.federation import Federation
from analysis.alignment.gradients import products_of
from analysis.alignment.options import Asked
from analysis.alignment.plain import Plain
from analysis.alignment.ranks import divided, rank_graph_memory
from analysis.hessian.spectrum.eigen import Eigenpairs, eigenpairs_together, largest_eigenpairs
from analysis.hessian.spectrum.operators import Hessian, Operator
from analysis.hessian.spectrum.refinement import refined_where_needed, spent
from landscape import FedscapeError, Landscape
from landscape.compute.randomness import torch_generator

_AT_ONCE = 32
"""Clients whose products are computed side by side, at most."""


@dataclass(frozen=True)
class Curvature(Plain):
    """The top-K eigenspaces of n clients' Hessians H_i and of H = ∇²f at one point, and E‖(H_i − H)v‖².

    U_i are the eigenvectors of the K largest eigenvalues of H_i as columns, U those of H, λ_k its eigenvalues.

    Attributes:
        values, bounds: eigenvalues of H_i, descending, and their error bounds, [n, K].
        converged: 1 where a bound is within the tolerance, [n, K].
        global_values, global_bounds, global_converged: the same of H, [K].
        space_errors: sin of the largest angle between the space found and U_i's, at most, [n]; 1: nothing is known,
            because the K-th and the next eigenvalue are not told apart (:func:`space_error`).
        global_space_error: of U.
        overlaps: ‖U_iᵀU_j‖²_F / K, [n, n]: 1 for the same space, 0 for orthogonal ones, K/d in the mean for random
            ones.
        overlap_errors: what they are off at most by the eigenvectors' errors, [n, n].
        angles: principal angles between the spaces of clients i and j in degrees, ascending, [n, n, K].
        with_global: ‖U_iᵀU‖²_F / K, [n].
        with_global_errors: as ``overlap_errors``, [n].
        global_angles: principal angles between U_i and U in degrees, ascending, [n, K].
        carried: Σ_k λ_k‖U_iᵀu_k‖² / Σ_k λ_k, the share of the federation's top-K curvature that lies in client i's
            space, [n]; NaN unless all λ_k > 0.
        carried_errors: what it is off at most, to first order, [n].
        heterogeneity: E‖(H_i − H)v‖² / E‖Hv‖² = ‖H_i − H‖²_F / ‖H‖²_F, [n], from Gaussian v, the same for all.
        heterogeneity_errors: their standard errors over v, [n].
        mean_heterogeneity: Σ p̃_i of it.
        mean_heterogeneity_error: its standard error over v.
        products: Hessian-vector products spent, each over one client's data, of f over everybody's: [2].
    """

    letters: ClassVar[dict[str, str]] = {
        "values": "nk",
        "bounds": "nk",
        "converged": "nk",
        "global_values": "k",
        "global_bounds": "k",
        "global_converged": "k",
        "space_errors": "n",
        "overlaps": "nn",
        "overlap_errors": "nn",
        "angles": "nnk",
        "with_global": "n",
        "with_global_errors": "n",
        "global_angles": "nk",
        "carried": "n",
        "carried_errors": "n",
        "heterogeneity": "n",
        "heterogeneity_errors": "n",
        "products": "2",
    }

    values: np.ndarray
    bounds: np.ndarray
    converged: np.ndarray
    global_values: np.ndarray
    global_bounds: np.ndarray
    global_converged: np.ndarray
    space_errors: np.ndarray
    global_space_error: float
    overlaps: np.ndarray
    overlap_errors: np.ndarray
    angles: np.ndarray
    with_global: np.ndarray
    with_global_errors: np.ndarray
    global_angles: np.ndarray
    carried: np.ndarray
    carried_errors: np.ndarray
    heterogeneity: np.ndarray
    heterogeneity_errors: np.ndarray
    mean_heterogeneity: float
    mean_heterogeneity_error: float
    products: np.ndarray


def eigenspace(operator: Operator, top: int, asked: Asked) -> Eigenpairs:
    """The ``top`` largest eigenvalues with their vectors; of products in float32, held against float64."""
    found = largest_eigenpairs(operator, top, tolerance=asked.tolerance, seed=asked.seed)
    return refined_where_needed(operator, found, tolerance=asked.tolerance, seed=asked.seed)


def eigenspaces(
    clients: Sequence[Landscape], w: Tensor, asked: Asked, memory: int | None = None
) -> Iterator[tuple[Operator, Eigenpairs]]:
    """Each client's Hessian at w and its :func:`eigenspace`; of small dense nets some clients' products at once.

    Starts, steps and stops are those of one client alone, and so are the numbers but for the rounding of products.
    Products side by side took an eighth of the time of those one by one (20 clients with 72 samples of
    ``digits_mlp``), and the eigen-solves half.

    Args:
        clients: subsets of one landscape's data.
        w: the point, [d].
        asked: K, tolerance, seed.
        memory: for the graphs of one client, as in :meth:`landscape.Landscape.hessian`.
    """
    for first in range(0, len(clients), _AT_ONCE):
        block = clients[first : first + _AT_ONCE]
        side_by_side = block[0].hessians_with(block[1:], w)
        if side_by_side is None:
            for client in block:
                alone = Hessian(client, w, graph_memory=memory)  # its graphs go before those of the next one come
                yield alone, eigenspace(alone, asked.top, asked)
            continue
        operators = [Hessian(client, w, graph_memory=memory) for client in block]
        found = eigenpairs_together(operators, side_by_side, asked.top, tolerance=asked.tolerance, seed=asked.seed)
        for operator, eigen in zip(operators, found, strict=True):
            yield operator, refined_where_needed(operator, eigen, tolerance=asked.tolerance, seed=asked.seed)


def space_error(eigen: Eigenpairs) -> float:
    """sin of the largest angle between the span of the vectors found and the wanted eigenspace, at most.

    ‖R‖_F/δ, R the residual vectors side by side and δ the distance of the wanted Ritz values to the other eigenvalues
    (Davis & Kahan, SINUM 1970, the sin Θ theorem), for which the other Ritz values stand with their residuals: what is
    hidden from the iteration is in no bound.  Never above 1.
    """
    assert eigen.krylov is not None
    ritz = eigen.krylov.ritz()
    values, residuals = np.asarray(ritz.values), np.asarray(ritz.residuals)
    order = np.argsort(values)[::-1][len(eigen.values) :]
    if len(order) == 0:
        return 0.0
    gap = float(eigen.values.min() - (values[order] + residuals[order]).max())
    norm = float(np.sqrt(np.sum(eigen.residuals**2)))
    return min(1.0, norm / gap) if gap > 0 else 1.0


def subspace_cosines(a: Tensor, b: Tensor) -> np.ndarray:
    """cos of the principal angles between the spans of orthonormal rows [k, d] and [k, d], descending, [k].

    Example:
        >>> import torch
        >>> from analysis.alignment.curvature import subspace_cosines
        >>> subspace_cosines(torch.eye(3)[:2], torch.eye(3)[1:]).tolist()
        [1.0, 0.0]
    """
    return np.clip(np.linalg.svd(products_of(a, b), compute_uv=False), 0.0, 1.0)


def compare_curvature(
    federation: Federation, w: Tensor, asked: Asked, told: Callable[[int], None] = lambda done: None
) -> Curvature:
    """Eigenspaces and heterogeneity at w; all clients' K eigenvectors are in memory at once, n·K·d numbers.

    The ranks of ``torchrun`` divide the samples for ∇²f and the clients for the ∇²f_i.

    Args:
        federation: f and its clients.
        w: the point, [d].
        asked: K, probes, tolerance, seed.
        told: called with the number of clients done.

    Raises:
        FedscapeError: K is more than d.
    """
    if asked.top > len(w):
        raise FedscapeError(f"{asked.top} eigenvalues of {len(w)} are asked for: give --top {len(w)} or less")
    probes = _probes(len(w), asked).to(w)
    whole = federation.hessian(w)
    together = eigenspace(whole, asked.top, asked)
    global_products = spent(whole, together) + asked.probes
    averaged = whole.matmat(probes)
    memory, k = rank_graph_memory(w.device), asked.top

    def of_clients(own: range) -> Iterator[list[Tensor]]:
        for operator, eigen in eigenspaces([federation.clients[i] for i in own], w, asked, memory):
            difference = operator.matmat(probes) - averaged
            apart = difference.double().square().sum(dim=0)
            counts = np.array([space_error(eigen), spent(operator, eigen)])
            assert eigen.vectors is not None
            numbers = np.concatenate([eigen.values, eigen.bounds, eigen.converged, counts])
            yield [torch.from_numpy(numbers), apart, eigen.vectors]

    n, double = len(federation.clients), averaged.new_empty(0, dtype=torch.float64)
    shapes = [(3 * k + 2,), (asked.probes,), (k, len(w))]
    parts = divided(n, of_clients, shapes, [double, double, averaged], told)
    numbers, apart = (np.array([part[place].cpu().numpy() for part in parts]) for place in (0, 1))
    errors, products = numbers[:, -2], numbers[:, -1].sum()
    spaces = [part[2] for part in parts]
    size = averaged.double().square().sum(dim=0).cpu().numpy()
    assert together.vectors is not None
    heterogeneity, over_probes = _ratios(apart, size)
    mean, mean_error = _ratios((federation.shares @ apart)[None], size)
    return Curvature(
        values=numbers[:, :k],
        bounds=numbers[:, k : 2 * k],
        converged=numbers[:, 2 * k : 3 * k],
        global_values=together.values,
        global_bounds=together.bounds,
        global_converged=together.converged.astype(float),
        space_errors=errors,
        global_space_error=space_error(together),
        **compare_spaces(spaces, together.vectors, together.values, errors, space_error(together)),
        heterogeneity=heterogeneity,
        heterogeneity_errors=over_probes,
        mean_heterogeneity=float(mean[0]),
        mean_heterogeneity_error=float(mean_error[0]),
        products=np.array([products, float(global_products)]),
    )


def compare_spaces(
    spaces: list[Tensor], together: Tensor, values: np.ndarray, errors: np.ndarray, error: float
) -> dict[str, np.ndarray]:
    """Overlaps and angles of orthonormal rows [K, d], by the names that :class:`Curvature` gives them.

    With s the sines of :func:`space_error`, an overlap is off by at most s_i + s_j, because
    |tr((P − P̂)Q)| ≤ ‖P − P̂‖₂ tr Q for projections; the share carried by s_i + 2s, s that of the federation.

    Args:
        spaces: U_iᵀ of n clients.
        together: Uᵀ.
        values: λ_k, [K].
        errors, error: s_i, [n], and s.
    """
    n, top = len(spaces), len(values)
    cosines = np.empty((n, n, top))
    towards, carried = np.empty((n, top)), np.full(n, np.nan)
    for i, space in enumerate(spaces):
        cosines[i, i] = 1.0
        for j in range(i):
            cosines[i, j] = cosines[j, i] = subspace_cosines(space, spaces[j])
        projected = products_of(space, together)
        towards[i] = np.clip(np.linalg.svd(projected, compute_uv=False), 0.0, 1.0)
        if (values > 0).all():
            carried[i] = float(np.sum(projected**2, axis=0) @ values / values.sum())
    both = np.minimum(1.0, errors[:, None] + errors[None])
    both[np.arange(n), np.arange(n)] = 0.0
    return {
        "overlaps": np.mean(cosines**2, axis=2),
        "overlap_errors": both,
        "angles": np.degrees(np.arccos(cosines)),
        "with_global": np.mean(towards**2, axis=1),
        "with_global_errors": np.minimum(1.0, errors + error),
        "global_angles": np.degrees(np.arccos(towards)),
        "carried": carried,
        "carried_errors": np.minimum(1.0, errors + 2 * error),
    }


def _probes(dimension: int, asked: Asked) -> Tensor:
    generator = torch_generator(asked.seed, "alignment probes")
    return torch.randn(dimension, asked.probes, generator=generator, dtype=torch.float64)


def _ratios(apart: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ratios of means over the probes, [n], and their standard errors to first order.

    Args:
        apart: ‖(H_i − H)v‖², [n, m].
        size: ‖Hv‖², [m]; NaN comes where all are 0.
    """
    below = size.mean()
    if below == 0:
        return np.full(len(apart), np.nan), np.full(len(apart), np.nan)
    ratio = apart.mean(axis=1) / below
    rest = (apart - ratio[:, None] * size[None]) / below
    return ratio, np.sqrt(rest.var(axis=1, ddof=1) / len(size))
