"""The spectrum of the Hessian at a checkpoint or around a landscape, in one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from analysis.hessian.report import HessianReport, Matrix, check_ratios
from analysis.hessian.spectrum.blocks import block_of
from analysis.hessian.spectrum.density import estimate_density
from analysis.hessian.spectrum.eigen import Eigenpairs, extreme_eigenpairs
from analysis.hessian.spectrum.operators import Fisher, GaussNewton, Hessian, Operator, Report, Shifted
from analysis.hessian.spectrum.trace import estimate_trace
from analysis.hessian.spectrum.verify import verify as check
from analysis.hessian.spectrum.wanted import Which
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.activations import MAN
from landscape.compute.devices import TF32, TF32_EPSILON
from landscape.terminal.progress import Progress

GraphMemory = int | str | None
_MATRICES: dict[str, Callable[[Landscape, int, GraphMemory], Operator]] = {
    "hessian": lambda landscape, seed, memory: Hessian(landscape, graph_memory=memory),
    "ggn": lambda landscape, seed, memory: GaussNewton(landscape),
    "fisher": lambda landscape, seed, memory: Fisher(landscape),
    "mc-fisher": lambda landscape, seed, memory: Fisher(landscape, kind="mc", seed=seed),
}


def measure_hessian(
    subject: Landscape | Checkpoint | str | Path,
    top: int = 5,
    *,
    which: Which = "largest",
    matrix: Matrix = "hessian",
    weight_decay: float = 0.0,
    man: float | MAN = 0.0,
    block: Sequence[str] = (),
    trace: bool = True,
    density: bool = False,
    verify: bool = False,
    split: str = "train",
    samples: int | None = None,
    clients: Sequence[int] | None = None,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype | None = None,
    data_dir: str | Path | None = None,
    model: str | None = None,
    data: str | None = None,
    batch_size: int | None = None,
    stream: bool | None = None,
    ratios: Sequence[tuple[int, int]] = (),
    tolerance: float = 1e-3,
    trace_tolerance: float = 0.02,
    density_probes: int = 8,
    density_steps: int = 40,
    seed: int = 0,
    max_basis: int | None = None,
    graph_memory: GraphMemory = None,
    state: str | Path | None = None,
    progress: bool = False,
) -> HessianReport:
    """Measure the spectrum of the Hessian at a checkpoint.

    Args:
        subject: a checkpoint's file, a checkpoint, or a ``Landscape`` (then the data, the device and the type
            are the landscape's own, and ``split`` is only what they are called).
        top: how many eigenvalues.
        which: of which end, as in :func:`analysis.hessian.spectrum.eigen.extreme_eigenpairs`.
        matrix: ``hessian``, ``ggn`` (generalised Gauss-Newton), ``fisher`` (empirical) or ``mc-fisher``.
        weight_decay: c of the regulariser (c/2)‖w‖², whose Hessian c I is added.
        man: ζ of MAN's penalty on the activations, added to the loss (:class:`landscape.activations.MAN`); a
            ``Landscape`` has its own.
        block: the principal block of the parameters whose names match these globs, or lie in modules that do
            (:mod:`analysis.hessian.spectrum.blocks`); the whole matrix unless given.
        trace: estimate the trace too.
        density: estimate the spectral density too.
        verify: check the Hessian-vector products first (:func:`analysis.hessian.spectrum.verify.verify`).
        split, samples, clients, device, dtype, data_dir, model, data, batch_size, stream: as in
            :meth:`landscape.Landscape.from_checkpoint`.
        ratios: (i, j) of the ratios λ_i/λ_j to show beside λ1/λ5.
        tolerance: relative error wanted of each eigenvalue.
        trace_tolerance: standard error wanted of the trace, as a share of it.
        density_probes, density_steps: as in :func:`analysis.hessian.spectrum.density.estimate_density`.
        seed: of all random vectors.
        max_basis: at most so many basis vectors are held (:func:`analysis.hessian.spectrum.eigen.extreme_eigenpairs`).
        graph_memory: of the Hessian's products, as in :meth:`landscape.Landscape.hessian`.
        state: a file to keep the eigenvalue iteration in; after a kill the same call continues there.
        progress: show progress on stderr.

    Raises:
        FedscapeError: a checkpoint or data that cannot be loaded, a loss that is not finite there, products
            that fail the check; ratios of more eigenvalues than are measured; a block without parameters; a weight
            decay or ζ below 0, a penalty of a model without activations or of another matrix than the Hessian.

    Example:
        >>> import torch
        >>> from analysis import measure_hessian
        >>> from landscape import Landscape
        >>> line = torch.nn.Linear(3, 1, bias=False)
        >>> bowl = Landscape(line, (torch.eye(3), torch.ones(3, 1)), torch.nn.functional.mse_loss, device="cpu")
        >>> report = measure_hessian(bowl, top=1)
        >>> round(report.trace.value, 4)
        2.0
    """
    check_ratios(ratios, which, top)
    if not 0 <= weight_decay < np.inf:
        raise FedscapeError(f"the weight decay is {weight_decay}: it must be 0 or more")
    if isinstance(subject, Landscape):
        if man:
            raise FedscapeError("a Landscape has its own penalty: make it with penalty=MAN(...), and leave out man")
        whole = subject
    else:
        whole = Landscape.from_checkpoint(
            subject, split, clients, samples, device, dtype,
            data_dir=data_dir, model=model, data=data, batch_size=batch_size, penalty=penalty_of(man), stream=stream,
        )  # fmt: skip
    start = time.perf_counter()
    here = whole.evaluate()
    if not np.isfinite(here.loss):
        raise FedscapeError(f"the loss at {whole.title} is {here.loss}: there is nothing to measure around it")
    landscape = block_of(whole, block) if block else whole
    if verify:
        with Progress("self-check", enabled=progress):
            check(landscape, seed, graph_memory).require()
    operator = _operator(landscape, matrix, weight_decay, seed, graph_memory)
    with _Reporting(_eigenvalues(which, top), progress) as report:
        eigen = extreme_eigenpairs(
            operator,
            top,
            which=which,
            tolerance=tolerance,
            seed=seed,
            max_basis=max_basis,
            state=None if state is None else Path(state),
            fingerprint=f"{whole.digest()} {matrix} {weight_decay} {' '.join(block)}",
            report=report,
        )
    trace_ = density_ = None
    if trace:
        with _Reporting("trace", progress) as report:
            trace_ = estimate_trace(operator, eigen.krylov, tolerance=trace_tolerance, seed=seed, report=report)
    if density:
        total = density_probes * min(density_steps, landscape.dimension)
        with _Reporting("density", progress, total) as report:
            density_ = estimate_density(operator, probes=density_probes, steps=density_steps, seed=seed, report=report)
    return HessianReport(
        title=_title(whole, weight_decay, block, landscape.dimension),
        eigen=_with_rounding(eigen, landscape.precision),
        trace=trace_,
        density=density_,
        loss=here.loss,
        accuracy=here.accuracy,
        split=split,
        samples=landscape.samples,
        parameters=landscape.dimension,
        dtype=landscape.precision,
        device=str(landscape.device),
        hvps=operator.products,
        seconds=time.perf_counter() - start,
        which=which,
        matrix=matrix,
        weight_decay=weight_decay,
        man=0.0 if whole.penalty is None else whole.penalty.weight,
        block=tuple(block),
    ).with_ratios(ratios)


def _title(whole: Landscape, weight_decay: float, block: Sequence[str], parameters: int) -> str:
    """The objective, and which block of its matrix."""
    objective = [whole.title, *([str(whole.penalty)] if whole.penalty else [])]
    objective += [f"{weight_decay:g} ‖w‖²/2"] if weight_decay else []
    where = f", block {' '.join(block)} ({parameters:,} of {whole.dimension:,} parameters)" if block else ""
    return " + ".join(objective) + where


def _eigenvalues(which: str, top: int) -> str:
    named = {"largest": f"top {top}", "smallest": f"lowest {top}", "magnitude": f"top {top} |λ|"}
    return f"{named.get(which, f'{top} + {top}')} eigenvalues"


def _with_rounding(eigen: Eigenpairs, precision: str) -> Eigenpairs:
    """Residuals and bounds are no less than TF32's rounding of the products, of which the iteration knows nothing."""
    if precision != TF32:
        return eigen
    rounding = TF32_EPSILON * np.abs(eigen.values).max()
    return replace(eigen, residuals=np.maximum(eigen.residuals, rounding), bounds=np.maximum(eigen.bounds, rounding))


def penalty_of(man: float | MAN) -> MAN | None:
    if isinstance(man, MAN):
        return man
    return MAN(man) if man else None


def _operator(
    landscape: Landscape, matrix: Matrix, weight_decay: float, seed: int, graph_memory: GraphMemory
) -> Operator:
    """The matrix that is measured.

    Raises:
        FedscapeError: there is no such matrix.
    """
    if matrix not in _MATRICES:
        raise FedscapeError(f"unknown matrix '{matrix}': give {', '.join(_MATRICES)}")
    operator = _MATRICES[matrix](landscape, seed, graph_memory)
    return Shifted(operator, weight_decay) if weight_decay else operator


class _Reporting(Progress):
    """A progress bar of Hessian-vector products, called by the spectral methods."""

    def __init__(self, description: str, enabled: bool, total: int | None = None) -> None:
        super().__init__(description, total, unit="HVPs", enabled=enabled)

    def __enter__(self) -> Report:  # type: ignore[override]
        super().__enter__()
        return lambda products, error: self.update(products, relative_error=error)
