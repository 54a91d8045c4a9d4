"""The largest eigenvalues of a landscape's Hessian by each method: values, products, seconds."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from torch import nn

from analysis import Hessian, largest_eigenpairs, to_scipy
from analysis.hessian.pyhessian import pyhessian_report
from landscape import Landscape
from landscape.compute.randomness import torch_generator

TOLERANCE = 1e-3
_PYHESSIAN = (1e-3, 1e-4, 1e-5)
"""Its stopping rule: the first is its default, smaller ones follow until all values are right."""


@dataclass(frozen=True)
class Answer:
    """What a method found, and what that took.

    Attributes:
        values: descending, [k].
        products: Hessian-vector products; of PyHessian without those of our residuals.
        seconds: of CPU time; of wall-clock time on other devices.
        searched: of our products, those that looked for copies of multiple eigenvalues, which no other method does.
        apart: seconds without that search, where there was one.
    """

    values: np.ndarray
    products: int
    seconds: float
    searched: int = 0
    apart: float | None = None


def clock(around: Landscape) -> float:
    """CPU seconds of this process, on which other work on the machine counts less; of a GPU the time there is."""
    if around.device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def ours(around: Landscape, k: int, seed: int) -> Answer:
    """Fedscape's."""
    start, hessian, steps = clock(around), Hessian(around), [0.0][:0]

    def note(_products: int, _error: float | None) -> None:
        steps.append(clock(around))

    found = largest_eigenpairs(hessian, k, tolerance=TOLERANCE, seed=seed, report=note)
    spent = clock(around) - start
    search = steps[-1] - steps[-1 - found.searched]
    return Answer(found.values, found.products, spent, found.searched, spent - search)


def scipy(around: Landscape, k: int, seed: int, tolerance: float = TOLERANCE) -> Answer:
    """SciPy's eigsh on the same products, from the same start."""
    start, hessian = clock(around), Hessian(around)
    first = torch.randn(around.dimension, generator=torch_generator(seed, "lanczos"), dtype=torch.float64).numpy()
    operator = to_scipy(hessian)
    first = first.astype(operator.dtype)
    try:
        values = eigsh(operator, k=k, which="LA", tol=tolerance, v0=first, return_eigenvectors=False)
    except ArpackNoConvergence:
        values = np.full(k, np.nan)
    return Answer(np.sort(values)[::-1], hessian.products, clock(around) - start)


def pyhessian(around: Landscape, k: int, truth: np.ndarray) -> Iterator[tuple[str, Answer]]:
    """PyHessian's, with smaller and smaller tolerances until all values are right."""
    if importlib.util.find_spec("pyhessian") is None:
        return
    for tolerance in _PYHESSIAN:
        start = clock(around)
        report = pyhessian_report(around, k, trace=False, tolerance=tolerance, max_iterations=1000)
        spent = (clock(around) - start) * report.hvps / (report.hvps + report.residual_hvps)
        values = np.sort(report.eigen.values)[::-1]
        yield f"PyHessian, tol {tolerance:g}", Answer(values, report.hvps, spent)
        if relative_error(values, truth) <= TOLERANCE:
            return


def eigenthings(around: Landscape, k: int, truth: np.ndarray) -> Iterator[tuple[str, Answer]]:
    """hessian-eigenthings' Lanczos: its default of 2k steps, which has no stopping rule, then 4k and 8k of them unless
    all values are right.  It re-orthogonalises up to 50 steps."""
    if importlib.util.find_spec("hessian_eigenthings") is None:
        return
    from hessian_eigenthings import HessianOperator, lanczos, supervised_loss

    module, data = around.model(), around.data.batch(slice(None), around.dtype)
    steps = 2 * k
    while steps <= min(8 * k, around.dimension):
        start = clock(around)
        operator = HessianOperator(module, [data], supervised_loss(nn.functional.cross_entropy))
        found = lanczos(operator, k=k, max_iter=steps, tol=TOLERANCE, which="LA", seed=0)
        values = np.sort(found.eigenvalues.cpu().numpy())[::-1]
        yield f"hessian-eigenthings, {steps} steps", Answer(values, found.iterations, clock(around) - start)
        if relative_error(values, truth) <= TOLERANCE:
            return
        steps *= 2


def relative_error(values: np.ndarray, truth: np.ndarray) -> float:
    """The largest of all values; NaN where the method gave none."""
    return float(np.abs(values / truth - 1).max())
