"""Run PyHessian's own code on a landscape."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor, nn

from analysis.hessian.density.estimate import Density
from analysis.hessian.pyhessian.adapter import Adapter, torch_eig
from analysis.hessian.pyhessian.report import PyHessianReport
from analysis.hessian.spectrum.eigen import Eigenpairs
from analysis.hessian.spectrum.trace import Trace
from landscape import FedscapeError, Landscape


def pyhessian_report(
    landscape: Landscape,
    top: int = 5,
    *,
    trace: bool = True,
    density: bool = False,
    tolerance: float = 1e-3,
    max_iterations: int = 100,
    density_probes: int = 8,
    density_steps: int = 40,
    split: str = "train",
    title: str | None = None,
    seed: int = 0,
    progress: bool = False,
) -> PyHessianReport:
    """Eigenvalues, trace and density at a landscape's own point, by PyHessian's code.

    PyHessian gets a copy of the model at ``landscape.weights``, the landscape's micro-batches as its data loader,
    our arithmetic (full float32) and seeded random numbers; the landscape, its model and torch's generators stay
    as they are.  Its ``density`` calls ``torch.eig``, which torch no longer has; it gets a symmetric solver
    instead.

    Args:
        landscape: the function.
        top: how many eigenvalues, the largest by magnitude.
        trace, density: whether to estimate those too.
        tolerance: PyHessian's ``tol``: it stops when two successive values differ by less than this share.
        max_iterations: PyHessian's ``maxIter``: of each eigenvalue, and samples of the trace.
        density_probes, density_steps: PyHessian's ``n_v`` and ``iter``.
        split, title: names of the data and of the point.
        seed: of all random vectors.
        progress: show progress on stderr.

    Raises:
        FedscapeError: numbers that make no sense, a loss that is not finite, a parameter without gradient or a penalty
            on the activations (PyHessian cannot take those), or PyHessian fails.

    Example:
        >>> import torch
        >>> from analysis.hessian.pyhessian import pyhessian_report
        >>> from landscape import Landscape
        >>> line = torch.nn.Linear(3, 1, bias=False)
        >>> bowl = Landscape(line, (torch.eye(3), torch.ones(3, 1)), torch.nn.functional.mse_loss, device="cpu")
        >>> report = pyhessian_report(bowl, top=1)
        >>> round(float(report.eigen.values[0]), 4), round(report.trace.value, 4)
        (0.6667, 2.0)
    """
    _check(landscape, top, tolerance, max_iterations)
    if density and (density_probes < 2 or density_steps < 1):
        raise FedscapeError("the density needs at least 2 probes and 1 step")
    title = title or repr(landscape)
    here = landscape.evaluate()
    if not np.isfinite(here.loss):
        raise FedscapeError(f"the loss at {title} is {here.loss}: there is nothing to measure around it")
    start, samples, density_ = time.perf_counter(), [], None
    with Adapter(landscape, progress) as theirs:
        with theirs.doing(f"PyHessian: top {top} eigenvalues", seed, "eigenvalues"):
            values, vectors = theirs.hessian.eigenvalues(maxIter=max_iterations, tol=tolerance, top_n=top)
        iterations, eigen_hvps = _iterations(theirs.quotients, tolerance, max_iterations), theirs.products
        if trace:
            with theirs.doing("PyHessian: trace", seed, "trace"):
                samples = theirs.hessian.trace(maxIter=max_iterations, tol=tolerance)
        if density:
            density_ = _density(theirs, density_probes, min(density_steps, landscape.dimension), seed)
    seconds = time.perf_counter() - start
    eigen = _eigenpairs(landscape, values, vectors, tolerance, eigen_hvps)
    return PyHessianReport(
        title=f"PyHessian: {title}",
        eigen=eigen,
        trace=_trace(samples) if trace else None,
        density=density_,
        loss=here.loss,
        accuracy=here.accuracy,
        split=split,
        samples=len(landscape.data),
        parameters=landscape.dimension,
        dtype=str(landscape.dtype).removeprefix("torch."),
        device=str(landscape.device),
        hvps=theirs.products,
        seconds=seconds,
        which="largest" if (eigen.values >= 0).all() else "magnitude",
        iterations=iterations,
        trace_samples=tuple(map(float, samples)),
        tolerance=tolerance,
        max_iterations=max_iterations,
        residual_hvps=top,
        residual_seconds=time.perf_counter() - start - seconds,
    )


def _check(landscape: Landscape, top: int, tolerance: float, max_iterations: int) -> None:
    """Refuse what PyHessian cannot measure.

    Raises:
        FedscapeError: the number of eigenvalues or a stopping rule makes no sense, or the loss has a penalty.
    """
    if not 1 <= top <= landscape.dimension:
        raise FedscapeError(
            f"{top} eigenvalues are asked for: give a number from 1 to the {landscape.dimension} parameters there are"
        )
    if landscape.penalty is not None:
        raise FedscapeError("PyHessian measures a loss of the outputs, and this one has a penalty on the activations")
    if max_iterations < 2 or not tolerance > 0:
        raise FedscapeError("PyHessian's stopping rules need at least 2 iterations and a tolerance above 0")


def _eigenpairs(
    landscape: Landscape, values: list[float], vectors: list[list[Tensor]], tolerance: float, products: int
) -> Eigenpairs:
    """PyHessian's eigenpairs with their residuals, which cost one of our products each."""
    rows = torch.stack([torch.cat([part.reshape(-1) for part in vector]) for vector in vectors])
    rows = nn.functional.normalize(rows.to(landscape.weights), dim=1)
    shares = torch.tensor(values, dtype=rows.dtype, device=rows.device)[:, None]
    residuals = (landscape.hvp(None, rows) - shares * rows).norm(dim=1).cpu().numpy().astype(np.float64)
    found = np.array(values, dtype=np.float64)
    converged = residuals <= tolerance * np.abs(found)
    return Eigenpairs(found, residuals, residuals.copy(), converged, products, vectors=rows)


def _iterations(quotients: list[float], tolerance: float, limit: int) -> tuple[int, ...]:
    """Power iterations per eigenvalue: PyHessian's stopping rule applied again to the quotients it saw."""
    counts, previous, count = [], 0.0, 0
    for quotient in quotients:
        count += 1
        if (count > 1 and abs(previous - quotient) / (abs(previous) + 1e-6) < tolerance) or count == limit:
            counts.append(count)
            count = 0
        previous = quotient
    return tuple(counts)


def _trace(samples: list[float]) -> Trace:
    n = len(samples)
    stderr = float(np.std(samples, ddof=1) / np.sqrt(n)) if n > 1 else float("inf")
    return Trace(value=float(np.mean(samples)), stderr=stderr, probes=n, products=n, deflated=0)


def _density(theirs: Adapter, probes: int, steps: int, seed: int) -> Density:
    """PyHessian's quadratures, smoothed as ours; beyond as many steps as dimensions its Lanczos goes on in rounding."""
    before = theirs.products
    with theirs.doing("PyHessian: density", seed, "density"), torch_eig(theirs.source):
        nodes, weights = theirs.hessian.density(iter=steps, n_v=probes)
    return Density.smoothed(
        np.array(nodes).astype(np.float64), np.array(weights).astype(np.float64), theirs.products - before
    )
