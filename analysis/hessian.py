"""The Hessian of a checkpoint: ``python -m analysis.hessian CKPT``."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro

from analysis.clients import rounds_of
from analysis.density import estimate_density
from analysis.directions import tensor_digest
from analysis.eigen import Which, extreme_eigenpairs
from analysis.extras import Extras
from analysis.operators import Fisher, GaussNewton, Hessian, Operator, Report, Shifted
from analysis.report import HessianReport, comparison_table
from analysis.source import Source, option
from analysis.trace import estimate_trace
from analysis.verify import verify as check
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.command import parse, run
from landscape.distributed import joined, rank_and_world
from landscape.files import atomic_write, make_directory, write_json, write_text
from landscape.foreign import open_checkpoint
from landscape.progress import Progress

PROGRAM = "python -m analysis.hessian"

Matrix = Literal["hessian", "ggn", "fisher", "mc-fisher"]
_MATRICES: dict[str, Callable[[Landscape, int], Operator]] = {
    "hessian": lambda landscape, seed: Hessian(landscape),
    "ggn": lambda landscape, seed: GaussNewton(landscape),
    "fisher": lambda landscape, seed: Fisher(landscape),
    "mc-fisher": lambda landscape, seed: Fisher(landscape, kind="mc", seed=seed),
}


def measure_hessian(
    subject: Landscape | Checkpoint | str | Path,
    top: int = 5,
    *,
    which: Which = "largest",
    matrix: Matrix = "hessian",
    weight_decay: float = 0.0,
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
    tolerance: float = 1e-3,
    trace_tolerance: float = 0.02,
    density_probes: int = 8,
    density_steps: int = 40,
    seed: int = 0,
    max_basis: int | None = None,
    state: str | Path | None = None,
    progress: bool = False,
) -> HessianReport:
    """Measure the spectrum of the Hessian at a checkpoint.

    Args:
        subject: a checkpoint's file, a checkpoint, or a ``Landscape`` (then the data, the device and the type
            are the landscape's own, and ``split`` is only what they are called).
        top: how many eigenvalues.
        which: of which end, as in :func:`analysis.eigen.extreme_eigenpairs`.
        matrix: ``hessian``, ``ggn`` (generalised Gauss-Newton), ``fisher`` (empirical) or ``mc-fisher``.
        weight_decay: c of the regulariser (c/2)‖w‖², whose Hessian c I is added.
        trace: estimate the trace too.
        density: estimate the spectral density too.
        verify: check the Hessian-vector products first (:func:`analysis.verify.verify`).
        split, samples, clients, device, dtype, data_dir, model, data, batch_size: as in
            :meth:`landscape.Landscape.from_checkpoint`.
        tolerance: relative error wanted of each eigenvalue.
        trace_tolerance: standard error wanted of the trace, as a share of it.
        density_probes, density_steps: as in :func:`analysis.density.estimate_density`.
        seed: of all random vectors.
        max_basis: at most so many basis vectors are held (:func:`analysis.eigen.extreme_eigenpairs`).
        state: a file to keep the eigenvalue iteration in; after a kill the same call continues there.
        progress: show progress on stderr.

    Raises:
        FedscapeError: a checkpoint or data that cannot be loaded, a loss that is not finite there, products
            that fail the check.

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
        checkpoint = open_checkpoint(subject, model, data, data_dir)
        landscape = Landscape.from_checkpoint(
            checkpoint, split, clients, samples, device, dtype,
            data_dir=data_dir, model=model, data=data, batch_size=batch_size,
        )  # fmt: skip
        title = checkpoint.title
    start = time.perf_counter()
    here = landscape.evaluate()
    if not np.isfinite(here.loss):
        raise FedscapeError(f"the loss at {title} is {here.loss}: there is nothing to measure around it")
    if verify:
        with Progress("self-check", enabled=progress):
            check(landscape, seed).require()
    operator = _operator(landscape, matrix, weight_decay, seed)
    named = {
        "largest": f"top {top}",
        "smallest": f"lowest {top}",
        "magnitude": f"top {top} |λ|",
        "both": f"{top} + {top}",
    }
    with _Reporting(f"{named.get(which, top)} eigenvalues", progress) as report:
        eigen = extreme_eigenpairs(
            operator,
            top,
            which=which,
            tolerance=tolerance,
            seed=seed,
            max_basis=max_basis,
            state=None if state is None else Path(state),
            fingerprint=f"{tensor_digest(landscape.weights, *vars(landscape.data).values())} {matrix} {weight_decay}",
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
        operator.products,
        time.perf_counter() - start,
        which,
        matrix,
        weight_decay,
    )


def _operator(landscape: Landscape, matrix: Matrix, weight_decay: float, seed: int) -> Operator:
    """The matrix that is measured.

    Raises:
        FedscapeError: there is no such matrix.
    """
    if matrix not in _MATRICES:
        raise FedscapeError(f"unknown matrix '{matrix}': give {', '.join(_MATRICES)}")
    operator = _MATRICES[matrix](landscape, seed)
    return Shifted(operator, weight_decay) if weight_decay else operator


class _Reporting(Progress):
    """A progress bar of Hessian-vector products, called by the spectral methods."""

    def __init__(self, description: str, enabled: bool, total: int | None = None) -> None:
        super().__init__(description, total, unit="HVPs", enabled=enabled)

    def __enter__(self) -> Report:  # type: ignore[override]
        super().__enter__()
        return lambda products, error: self.update(products, relative_error=error)


@dataclass(frozen=True)
class Command:
    """Extreme eigenvalues, λ1/λ5, trace and spectral density of the loss's Hessian at one checkpoint or several.

    The Hessian is that of the mean loss over all samples of the split, exactly; the eigenvalues come with
    residuals and error bounds, the trace with its standard error.
    """

    checkpoints: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="CKPT [CKPT ...]")]
    """checkpoint files, such as a run's ckpt.pt, or state dicts from elsewhere (with --model and --data)"""
    top: int = 5
    """how many eigenvalues"""
    which: Which = "largest"
    """of which end of the spectrum: largest, smallest, magnitude (largest |λ|) or both"""
    ggn: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """the generalised Gauss-Newton matrix in the Hessian's place; short for --matrix ggn"""
    matrix: Matrix = "hessian"
    """hessian, ggn (generalised Gauss-Newton), fisher (empirical) or mc-fisher (labels drawn from the model)"""
    weight_decay: float = 0.0
    """c of a regulariser (c/2)‖w‖² to add to the loss"""
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
    max_basis: Annotated[int | None, option("N", "what fits in 256 MB, at least top + 24")] = None
    """at most so many Lanczos vectors in memory; fewer mean more products"""
    state: Annotated[Path | None, option("FILE", "none")] = None
    """keep the eigenvalue iteration there: after a kill the same command continues (one checkpoint at a time)"""
    verify: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """check the products first (symmetry, linearity, float64 finite difference); go no further if they are wrong"""
    backend: Literal["fedscape", "pyhessian"] = "fedscape"
    """pyhessian: let PyHessian's own code answer, as the papers did (eigenvalues, trace, density)"""
    compare_pyhessian: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """let PyHessian answer too, and print both side by side with the differences explained"""
    json: Annotated[Path | None, option("FILE", "none")] = None
    """write all numbers there"""
    csv: Annotated[Path | None, option("FILE", "none")] = None
    """write the comparison table there, a row a checkpoint"""
    out: Annotated[Path | None, option("DIR", "none")] = None
    """write hessian.png, hessian.json and hessian.npz there"""
    rounds: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """measure every rounds/NNNNN.pt of the run each CKPT lies in (or is), and draw the curves"""
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """no progress bar"""
    extras: Extras = field(default_factory=Extras)
    source: Source = field(default_factory=Source)

    def check(self) -> None:
        """Refuse options that contradict one another.

        Raises:
            FedscapeError: they do.
        """
        if not self.checkpoints:
            raise FedscapeError(f"give at least one checkpoint file (see {PROGRAM} --help)")
        if self.ggn and self.matrix not in ("hessian", "ggn"):
            raise FedscapeError(f"--ggn and --matrix {self.matrix} ask for two matrices: give one of them")
        if self.state is not None and (len(self.checkpoints) > 1 or self.rounds):
            raise FedscapeError("--state keeps one checkpoint's iteration: give one checkpoint, and no --rounds")
        special = self.ggn or self.matrix != "hessian" or self.which != "largest" or self.weight_decay != 0
        if special and (self.compare_pyhessian or self.backend == "pyhessian"):
            raise FedscapeError(
                "PyHessian measures the largest eigenvalues of the loss's Hessian only: "
                "leave out --which, --matrix, --ggn and --weight-decay"
            )

    def pyhessian_options(self) -> dict[str, Any]:
        """What this command asks of PyHessian."""
        return {
            "trace": self.trace,
            "density": self.density,
            "tolerance": self.tolerance,
            "density_probes": self.probes,
            "density_steps": self.steps,
            "split": self.source.split,
            "seed": self.seed,
            "progress": not self.quiet,
        }

    def landscape(self, path: Path) -> tuple[Landscape, str]:
        """The landscape around one checkpoint, and what it is called."""
        source = self.source
        checkpoint = open_checkpoint(path, source.model, source.data, source.data_dir)
        return Landscape.from_checkpoint(checkpoint, **vars(source)), checkpoint.title

    def measure(self, path: Path) -> HessianReport:
        """The report of one checkpoint."""
        if self.backend == "pyhessian":
            from analysis.pyhessian_backend import pyhessian_report

            landscape, title = self.landscape(path)
            return pyhessian_report(landscape, self.top, title=title, **self.pyhessian_options())
        return measure_hessian(
            path,
            self.top,
            **vars(self.source),
            which=self.which,
            matrix="ggn" if self.ggn else self.matrix,
            weight_decay=self.weight_decay,
            trace=self.trace,
            density=self.density,
            verify=self.verify,
            tolerance=self.tolerance,
            trace_tolerance=self.trace_tolerance,
            density_probes=self.probes,
            density_steps=self.steps,
            seed=self.seed,
            max_basis=self.max_basis,
            state=self.state,
            progress=not self.quiet,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure, print, write."""
    given = sys.argv[1:] if arguments is None else arguments
    command = parse(lambda: tyro.cli(Command, prog=PROGRAM, args=given, config=(tyro.conf.OmitArgPrefixes,)), PROGRAM)
    command.check()
    with joined(command.source.device) as device:
        here = replace(command, source=replace(command.source, device=str(device)))
        if rank_and_world()[0] == 0:
            return _carry_out(here)
        # The other ranks do their share of the same work; the first one speaks and writes.
        silent = replace(here, quiet=True, out=None, json=None, csv=None)
        with contextlib.redirect_stdout(io.StringIO()):
            return _carry_out(silent)


def _carry_out(command: Command) -> int:
    if command.out is not None:
        make_directory(command.out)
    paths = list(command.checkpoints)
    if command.rounds:
        paths = [file for path in paths for file in rounds_of(path if path.is_dir() else path.parent)]
    reports, numbers = [], []
    for path in paths:
        reports.append(command.measure(path))
        print(reports[-1], end="\n\n")
        numbers.append({"checkpoint": str(path), **reports[-1].to_dict()})
        if command.compare_pyhessian:
            numbers[-1]["pyhessian"] = compare(command, path, reports[-1])
        for more in command.extras.measure(path, command.source, command.seed, not command.quiet):
            print(f"{more.title}\n{more.table}\n")
            numbers[-1][more.key] = more.numbers
    table = comparison_table(reports)
    if len(reports) > 1:
        print(table)
    contents = numbers[0] if len(numbers) == 1 else {"checkpoints": numbers}
    for file in [command.json, command.out and command.out / "hessian.json"]:
        if file is not None:
            write_json(file, contents)
            print(f"numbers: {file}")
    if command.csv is not None:
        write_text(command.csv, table.csv())
        print(f"table: {command.csv}")
    if command.out is not None:
        write_arrays(command.out / "hessian.npz", reports)
        picture = command.out / "hessian.png"
        if command.rounds:
            save_curves(paths, reports, picture)
        else:
            save_spectra(reports, picture)
        print(f"arrays: {command.out / 'hessian.npz'}\nplot: {picture}")
    return 0


def compare(command: Command, path: Path, ours: HessianReport) -> dict[str, Any]:
    """Ask PyHessian the same, print both side by side and why they differ; its numbers."""
    from analysis.pyhessian_backend import compare_with_pyhessian

    landscape, title = command.landscape(path)
    found = compare_with_pyhessian(landscape, command.top, ours=ours, title=title, **command.pyhessian_options())
    print(f"{found}\n\n{found.explain()}\n")
    return {**found.theirs.to_dict(), "explanation": found.explain()}


def write_arrays(path: Path, reports: Sequence[HessianReport]) -> None:
    """Write the reports' arrays as ``.npz``: ``0_eigenvalues``, ``0_residuals``, ``0_density_grid``, ...

    Raises:
        FedscapeError: it cannot be written.
    """
    arrays: dict[str, Any] = {}
    for i, report in enumerate(reports):
        arrays |= {f"{i}_eigenvalues": report.eigen.values, f"{i}_residuals": report.eigen.residuals}
        if report.density is not None:
            for name in ("grid", "values", "stderr", "nodes", "weights"):
                arrays[f"{i}_density_{name}"] = getattr(report.density, name)
    with atomic_write(path) as file:
        np.savez(file, **arrays)


def save_curves(paths: Sequence[Path], reports: Sequence[HessianReport], path: Path) -> None:
    """Draw the first eigenvalue, the trace and the loss of each run over its rounds."""
    from analysis.pictures import save_figure
    from analysis.spectrum_plots import plot_rounds

    runs: dict[str, list[tuple[int, HessianReport]]] = {}
    for file, report in zip(paths, reports, strict=True):
        runs.setdefault(file.parent.parent.name, []).append((int(file.stem), report))
    save_figure(plot_rounds(runs), path)


def save_spectra(reports: Sequence[HessianReport], path: Path) -> None:
    """Draw all reports on common axes."""
    from analysis.pictures import save_figure
    from analysis.spectrum_plots import plot_spectra

    save_figure(plot_spectra(reports), path)


def command_line() -> int:
    """The console script."""
    return run(main)


if __name__ == "__main__":
    sys.exit(command_line())
