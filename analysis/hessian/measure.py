"""The spectrum of the Hessian at a checkpoint or around a landscape, in one call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.arguments import grouped
from analysis.hessian.checks.differences import GradientDifferences, compared_steps, require_agreement
from analysis.hessian.checks.verify import verify as check
from analysis.hessian.density.estimate import Density, estimate_density
from analysis.hessian.growth import Question, measure_on
from analysis.hessian.options import Effort, GraphMemory, Spectrum
from analysis.hessian.report import HessianReport
from analysis.hessian.spectrum.blocks import block_of
from analysis.hessian.spectrum.eigen import Eigenpairs, extreme_eigenpairs
from analysis.hessian.spectrum.operators import Fisher, GaussNewton, Hessian, Operator, Report, Shifted
from analysis.hessian.spectrum.refinement import refined, spent
from analysis.hessian.spectrum.symmetry import require_symmetric
from analysis.hessian.spectrum.trace import Trace, estimate_trace
from analysis.source import HessianSource, Source
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.compute.cost import threads_for
from landscape.compute.devices import TF32, TF32_EPSILON, cpu_threads
from landscape.terminal.progress import Progress

_OF_A_STEP = 4 * 64
"""Operations by coordinate of a Lanczos step: products with a basis of 64 vectors and with its transpose."""
_MATRICES: dict[str, Callable[[Landscape, int, GraphMemory], Operator]] = {
    "hessian": lambda landscape, seed, memory: Hessian(landscape, graph_memory=memory),
    "ggn": lambda landscape, seed, memory: GaussNewton(landscape),
    "fisher": lambda landscape, seed, memory: Fisher(landscape),
    "mc-fisher": lambda landscape, seed, memory: Fisher(landscape, kind="mc", seed=seed),
}


def measure_hessian(
    subject: Landscape | Checkpoint | str | Path,
    top: int | None = None,
    *,
    spectrum: Spectrum | None = None,
    source: Source | None = None,
    effort: Effort | None = None,
    verify: bool = False,
    progress: bool = False,
    **options: Any,
) -> HessianReport:
    """Measure the spectrum of the Hessian at a checkpoint.

    Args:
        subject: a checkpoint's file (``FILE@ID``: client ID's local model), a checkpoint, or a ``Landscape`` (then
            the data, the device and the type are the landscape's own, ``split`` is only what the data are called,
            ``samples`` is as ever, and all other options of ``source`` and ``man`` stay out).
        top: how many eigenvalues, 5 unless given.
        spectrum: what is measured: the options from ``which`` to ``block`` in one value, and ``top``.
        source: where: those from ``split`` to ``stream``.
        effort: how precisely: those from ``tolerance`` to ``threads``.
        verify: check the products first (:func:`analysis.hessian.checks.verify.verify`), and refuse those that turn
            out asymmetric on the way (:mod:`analysis.hessian.spectrum.symmetry`; without it a warning says so); of
            ``product="fd"`` that a step a quarter as long gives the same eigenvalues.
        progress: show progress on stderr.
        options: any option of the three groups by its name, which goes before the group's:

            * ``which``: of which end of the spectrum, as in
              :func:`analysis.hessian.spectrum.eigen.extreme_eigenpairs`.
            * ``ratios``: (i, j), or a text ``"i/j"``, of the ratios λ_i/λ_j to show beside λ1/λ5.
            * ``trace``: estimate the trace too (``True`` unless given).
            * ``density``: estimate the spectral density too.
            * ``matrix``: ``hessian``, ``ggn`` (generalised Gauss-Newton), ``fisher`` (empirical) or ``mc-fisher``;
              ``ggn=True`` is short for the second.
            * ``product``: ``autograd``, or ``fd``: products by float64 differences of gradients
              (:class:`analysis.hessian.checks.differences.GradientDifferences`), whatever the ``dtype``.
            * ``weight_decay``: c of the regulariser (c/2)‖w‖², whose Hessian c I is added.
            * ``man``: ζ of MAN's penalty on the activations, added to the loss, or the penalty itself
              (:class:`landscape.activations.MAN`); a ``Landscape`` has its own.
            * ``block``: the principal block of the parameters whose names match these globs, or lie in modules that do
              (:mod:`analysis.hessian.spectrum.blocks`); the whole matrix unless given.
            * ``split``, ``samples``, ``clients``, ``device``, ``dtype``, ``data_dir``, ``model``, ``data``,
              ``batch_size``, ``stream``: as in :meth:`landscape.Landscape.from_checkpoint`.
              ``samples`` may also be ``auto``; both it and a number of samples end with intervals of what all samples
              would give (:class:`analysis.hessian.sampling.Sampling`).
            * ``tolerance``: relative error wanted of each eigenvalue, 1e-3 unless given.
            * ``trace_tolerance``: standard error wanted of the trace, as a share of it, 0.02 unless given.
            * ``trace_probes``: random probes of the trace at most, 100 unless given.
            * ``density_tolerance``, ``density_probes``, ``density_steps``: ``tolerance``, ``probes`` and ``steps`` of
              :func:`analysis.hessian.density.estimate.estimate_density`.
            * ``sampling_tolerance``: of ``samples="auto"``: half-width wanted of the intervals of eigenvalues and
              trace, as a share of the value, 0.1 unless given (:func:`analysis.hessian.growth.measure_on`).
            * ``seed``: of all random vectors.
            * ``max_basis``: Lanczos vectors held at most
              (:func:`analysis.hessian.spectrum.eigen.extreme_eigenpairs`).
            * ``refine``: end eigenvalues in float32 with one product each in float64 (``True`` unless given;
              :func:`analysis.hessian.spectrum.refinement.refined`); the trace goes on from the float32 vectors.
            * ``graph_memory``: of the Hessian's products, as in :meth:`landscape.Landscape.hessian`.
            * ``state``: a file to keep the eigenvalue iteration in; after a kill the same call continues there.
            * ``threads``: CPU threads; unless given, one where a micro-batch and a Lanczos step are small work
              (:func:`landscape.compute.cost.threads_for`), and else as many as PyTorch has.

    Raises:
        FedscapeError: a checkpoint or data that cannot be loaded, a loss that is not finite there, products
            that fail the check; ratios of more eigenvalues than are measured; a block without parameters; a weight
            decay or ζ below 0, a penalty of a model without activations or of another matrix than the Hessian.
        TypeError: an option that there is not.

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
    named = options if top is None else {"top": top, **options}
    groups = spectrum or Spectrum(), source or HessianSource(), effort or Effort()
    what, where, how = grouped("measure_hessian", named, groups)
    what.check()

    def measure(part: Landscape) -> HessianReport:
        with threads_for(max(part.micro_batches.flops, _OF_A_STEP * part.dimension)):
            return _measure(part, what, where.split, how, verify, progress)

    def matrix(part: Landscape) -> Operator:
        return _operator(_block(part, what), what, how)

    with cpu_threads(how.threads):
        whole = _landscape_of(subject, what, where)
        return measure_on(whole, where.samples, Question(measure, matrix, what, how, progress))


def _landscape_of(subject: Landscape | Checkpoint | str | Path, spectrum: Spectrum, source: Source) -> Landscape:
    """The objective around the subject, of all samples and parameters and without the weight decay.

    Raises:
        FedscapeError: the subject cannot be loaded, or is a landscape and a penalty is asked for.
    """
    if isinstance(subject, Landscape):
        if spectrum.man:
            raise FedscapeError("a Landscape has its own penalty: make it with penalty=MAN(...), and leave out man")
        landscape = subject
    else:
        options = {**vars(source), "samples": None}
        landscape = Landscape.from_checkpoint(subject, **options, penalty=spectrum.penalty)
    return landscape.to("float64") if spectrum.product == "fd" else landscape


def _block(whole: Landscape, spectrum: Spectrum) -> Landscape:
    """The loss as a function of the parameters whose block is measured."""
    return block_of(whole, spectrum.block) if spectrum.block else whole


def _measure(
    whole: Landscape, spectrum: Spectrum, split: str, effort: Effort, verify: bool, progress: bool
) -> HessianReport:
    """The report of a landscape."""
    start = time.perf_counter()
    here = whole.evaluate()
    if not np.isfinite(here.loss):
        raise FedscapeError(f"the loss at {whole.title} is {here.loss}: there is nothing to measure around it")
    landscape = _block(whole, spectrum)
    if verify and spectrum.product == "autograd":
        with Progress("self-check", enabled=progress):
            check(landscape, effort.seed, effort.graph_memory).require()
    operator = _operator(landscape, spectrum, effort)
    eigen = _eigenpairs(operator, spectrum, effort, whole.digest(), progress)
    if effort.refine:
        eigen = refined(operator, eigen, tolerance=effort.tolerance, seed=effort.seed)
    eigen = compared_steps(operator, eigen, tolerance=effort.tolerance)
    if verify:
        require_symmetric(eigen.asymmetry, operator)
        require_agreement(eigen.steps)
    trace = _trace(operator, eigen, effort, progress) if spectrum.trace else None
    density = _density(operator, eigen, effort, progress) if spectrum.density else None
    return HessianReport(
        title=_title(whole, spectrum, landscape.dimension),
        eigen=_with_rounding(eigen, landscape.precision),
        trace=trace,
        density=density,
        loss=here.loss,
        accuracy=here.accuracy,
        split=split,
        samples=landscape.samples,
        parameters=landscape.dimension,
        dtype=landscape.precision,
        device=str(landscape.device),
        hvps=spent(operator, eigen),
        seconds=time.perf_counter() - start,
        which=spectrum.which,
        matrix=spectrum.kind,
        product=spectrum.product,
        weight_decay=spectrum.weight_decay,
        man=0.0 if whole.penalty is None else whole.penalty.weight,
        block=tuple(spectrum.block),
    ).with_ratios(spectrum.pairs)


def _operator(landscape: Landscape, spectrum: Spectrum, effort: Effort) -> Operator:
    """The matrix that is measured.

    Raises:
        FedscapeError: there is no such matrix.
    """
    if spectrum.kind not in _MATRICES:
        raise FedscapeError(f"unknown matrix '{spectrum.kind}': give {', '.join(_MATRICES)}")
    if spectrum.product == "fd":
        operator: Operator = GradientDifferences(landscape)
    else:
        operator = _MATRICES[spectrum.kind](landscape, effort.seed, effort.graph_memory)
    return Shifted(operator, spectrum.weight_decay) if spectrum.weight_decay else operator


def _eigenpairs(operator: Operator, spectrum: Spectrum, effort: Effort, digest: str, progress: bool) -> Eigenpairs:
    """The eigenvalues asked for; ``digest`` is that of the whole landscape."""
    which, top = spectrum.which, spectrum.top
    matrix = f"{spectrum.kind} {spectrum.product} {spectrum.weight_decay} {' '.join(spectrum.block)}"
    named = {"largest": f"top {top}", "smallest": f"lowest {top}", "magnitude": f"top {top} |λ|"}
    with _Reporting(f"{named.get(which, f'{top} + {top}')} eigenvalues", progress) as report:
        return extreme_eigenpairs(
            operator,
            top,
            which=which,
            tolerance=effort.tolerance,
            seed=effort.seed,
            max_basis=effort.max_basis,
            state=effort.state,
            fingerprint=f"{digest} {matrix}",
            report=report,
        )


def _trace(operator: Operator, eigen: Eigenpairs, effort: Effort, progress: bool) -> Trace:
    """The trace, of which the Krylov space of the eigenvalues holds the large part."""
    with _Reporting("trace", progress) as report:
        return estimate_trace(
            operator,
            eigen.krylov,
            tolerance=effort.trace_tolerance,
            max_probes=effort.trace_probes,
            seed=effort.seed,
            report=report,
        )


def _density(operator: Operator, eigen: Eigenpairs, effort: Effort, progress: bool) -> Density:
    """The spectral density, in which the eigenvalues that are known already are held apart."""
    with _Reporting("density", progress) as report:
        return estimate_density(
            operator,
            eigen.krylov,
            tolerance=effort.density_tolerance,
            probes=effort.density_probes,
            steps=effort.density_steps,
            seed=effort.seed,
            report=report,
        )


def _title(whole: Landscape, spectrum: Spectrum, parameters: int) -> str:
    """The objective, and which block of its matrix."""
    objective = [whole.title, *([str(whole.penalty)] if whole.penalty else [])]
    objective += [f"{spectrum.weight_decay:g} ‖w‖²/2"] if spectrum.weight_decay else []
    block = f", block {' '.join(spectrum.block)} ({parameters:,} of {whole.dimension:,} parameters)"
    return " + ".join(objective) + (block if spectrum.block else "")


def _with_rounding(eigen: Eigenpairs, precision: str) -> Eigenpairs:
    """Where nothing refined them, residuals and bounds are no less than TF32's rounding of the products, of which the
    iteration knows nothing."""
    if precision != TF32 or eigen.refinement is not None:
        return eigen
    rounding = TF32_EPSILON * np.abs(eigen.values).max()
    return replace(eigen, residuals=np.maximum(eigen.residuals, rounding), bounds=np.maximum(eigen.bounds, rounding))


class _Reporting(Progress):
    """A progress bar of Hessian-vector products, called by the spectral methods."""

    def __init__(self, description: str, enabled: bool, total: int | None = None) -> None:
        super().__init__(description, total, unit="HVPs", enabled=enabled)

    def __enter__(self) -> Report:  # type: ignore[override]
        super().__enter__()
        return lambda products, error: self.update(products, relative_error=error)
