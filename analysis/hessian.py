"""The Hessian of a checkpoint: ``python -m analysis.hessian CKPT``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro

from analysis.density import estimate_density
from analysis.eigen import largest_eigenpairs
from analysis.operators import Hessian, Report
from analysis.report import HessianReport
from analysis.source import Source, option
from analysis.trace import estimate_trace
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.command import parse, run
from landscape.files import make_directory, write_json
from landscape.progress import Progress

PROGRAM = "python -m analysis.hessian"


def measure_hessian(
    subject: Landscape | Checkpoint | str | Path,
    top: int = 5,
    *,
    trace: bool = True,
    density: bool = False,
    split: str = "train",
    samples: int | None = None,
    clients: Sequence[int] | None = None,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype | None = None,
    data_dir: str | Path | None = None,
    model: str | None = None,
    data: str | None = None,
    batch_size: int | None = None,
    tolerance: float = 1e-3,
    trace_tolerance: float = 0.02,
    density_probes: int = 8,
    density_steps: int = 40,
    seed: int = 0,
    progress: bool = False,
) -> HessianReport:
    """Measure the spectrum of the Hessian at a checkpoint.

    Args:
        subject: a checkpoint's file, a checkpoint, or a ``Landscape`` (then the data, the device and the type
            are the landscape's own, and ``split`` is only what they are called).
        top: how many of the largest eigenvalues.
        trace: estimate the trace too.
        density: estimate the spectral density too.
        split, samples, clients, device, dtype, data_dir, model, data, batch_size: as in
            :meth:`landscape.Landscape.from_checkpoint`.
        tolerance: relative error wanted of each eigenvalue.
        trace_tolerance: standard error wanted of the trace, as a share of it.
        density_probes, density_steps: as in :func:`analysis.density.estimate_density`.
        seed: of all random vectors.
        progress: show progress on stderr.

    Raises:
        FedscapeError: a checkpoint or data that cannot be loaded, a loss that is not finite there.

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
    if isinstance(subject, Landscape):
        landscape, title = subject, repr(subject)
    else:
        checkpoint = subject if isinstance(subject, Checkpoint) else Checkpoint.load(subject)
        landscape = Landscape.from_checkpoint(
            checkpoint, split, clients, samples, device, dtype,
            data_dir=data_dir, model=model, data=data, batch_size=batch_size,
        )  # fmt: skip
        title = checkpoint.title
    start = time.perf_counter()
    here = landscape.evaluate()
    if not np.isfinite(here.loss):
        raise FedscapeError(f"the loss at {title} is {here.loss}: there is nothing to measure around it")
    hessian = Hessian(landscape)
    with _Reporting(f"top {top} eigenvalues", progress) as report:
        eigen = largest_eigenpairs(hessian, top, tolerance=tolerance, seed=seed, report=report)
    trace_ = density_ = None
    if trace:
        with _Reporting("trace", progress) as report:
            trace_ = estimate_trace(hessian, eigen.krylov, tolerance=trace_tolerance, seed=seed, report=report)
    if density:
        total = density_probes * min(density_steps, landscape.dimension)
        with _Reporting("density", progress, total) as report:
            density_ = estimate_density(hessian, probes=density_probes, steps=density_steps, seed=seed, report=report)
    return HessianReport(
        title,
        eigen,
        trace_,
        density_,
        here.loss,
        here.accuracy,
        split,
        len(landscape.data),
        landscape.dimension,
        str(landscape.dtype).removeprefix("torch."),
        str(landscape.device),
        hessian.products,
        time.perf_counter() - start,
    )


class _Reporting(Progress):
    """A progress bar of Hessian-vector products, called by the spectral methods."""

    def __init__(self, description: str, enabled: bool, total: int | None = None) -> None:
        super().__init__(description, total, unit="HVPs", enabled=enabled)

    def __enter__(self) -> Report:  # type: ignore[override]
        super().__enter__()
        return lambda products, error: self.update(products, relative_error=error)


@dataclass(frozen=True)
class Command:
    """Largest eigenvalues, λ1/λ5, trace and spectral density of the loss's Hessian at a checkpoint.

    The Hessian is that of the mean loss over all samples of the split, exactly; the eigenvalues come with
    residuals and error bounds, the trace with its standard error.
    """

    checkpoint: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="CKPT")]
    """checkpoint file, such as a run's ckpt.pt"""
    top: int = 5
    """how many of the largest eigenvalues"""
    trace: bool = True
    """estimate the trace"""
    density: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """estimate the spectral density"""
    tolerance: float = 1e-3
    """relative error wanted of each eigenvalue"""
    trace_tolerance: float = 0.02
    """standard error wanted of the trace, as a share of it"""
    probes: int = 8
    """random probes of the density: more narrow its error"""
    steps: int = 40
    """Lanczos steps of each probe of the density"""
    seed: int = 0
    """of all random vectors"""
    json: Annotated[Path | None, option("FILE", "none")] = None
    """write all numbers there"""
    out: Annotated[Path | None, option("DIR", "none")] = None
    """write hessian.png and hessian.json there"""
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """no progress bar"""
    source: Source = field(default_factory=Source)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure, print, write."""
    given = sys.argv[1:] if arguments is None else arguments
    command = parse(lambda: tyro.cli(Command, prog=PROGRAM, args=given, config=(tyro.conf.OmitArgPrefixes,)), PROGRAM)
    if command.out is not None:
        make_directory(command.out)
    report = measure_hessian(
        command.checkpoint,
        command.top,
        **vars(command.source),
        trace=command.trace,
        density=command.density,
        tolerance=command.tolerance,
        trace_tolerance=command.trace_tolerance,
        density_probes=command.probes,
        density_steps=command.steps,
        seed=command.seed,
        progress=not command.quiet,
    )
    print(report)
    for file in [command.json, command.out and command.out / "hessian.json"]:
        if file is not None:
            write_json(file, {"checkpoint": str(command.checkpoint), **report.to_dict()})
            print(f"numbers: {file}")
    if command.out is not None:
        report.plot(command.out / "hessian.png")
        print(f"plot: {command.out / 'hessian.png'}")
    return 0


def command_line() -> int:
    """The console script."""
    return run(main)


if __name__ == "__main__":
    sys.exit(command_line())
