"""The Hessian of a checkpoint: ``python -m analysis.hessian CKPT``."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro

from analysis.blocks import block_of
from analysis.clients import rounds_of
from analysis.density import estimate_density
from analysis.eigen import Eigenpairs, Which, extreme_eigenpairs
from analysis.extras import Extras, Measured, save_pictures
from analysis.operators import Fisher, GaussNewton, Hessian, Operator, Report, Shifted
from analysis.options import Effort, Output, Spectrum, Trust
from analysis.report import HessianReport, Matrix, check_ratios, comparison_table
from analysis.source import Source
from analysis.trace import estimate_trace
from analysis.verify import verify as check
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.activations import MAN
from landscape.checkpoint import run_files
from landscape.command import parse, run
from landscape.devices import TF32, TF32_EPSILON, cpu_threads, memory_size
from landscape.distributed import joined, rank_and_world
from landscape.files import atomic_write, make_directory, write_json, write_text
from landscape.progress import Progress

PROGRAM = "python -m analysis.hessian"

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
        which: of which end, as in :func:`analysis.eigen.extreme_eigenpairs`.
        matrix: ``hessian``, ``ggn`` (generalised Gauss-Newton), ``fisher`` (empirical) or ``mc-fisher``.
        weight_decay: c of the regulariser (c/2)‖w‖², whose Hessian c I is added.
        man: ζ of MAN's penalty on the activations, added to the loss (:class:`landscape.activations.MAN`); a
            ``Landscape`` has its own.
        block: the principal block of the parameters whose names match these globs, or lie in modules that do
            (:mod:`analysis.blocks`); the whole matrix unless given.
        trace: estimate the trace too.
        density: estimate the spectral density too.
        verify: check the Hessian-vector products first (:func:`analysis.verify.verify`).
        split, samples, clients, device, dtype, data_dir, model, data, batch_size, stream: as in
            :meth:`landscape.Landscape.from_checkpoint`.
        ratios: (i, j) of the ratios λ_i/λ_j to show beside λ1/λ5.
        tolerance: relative error wanted of each eigenvalue.
        trace_tolerance: standard error wanted of the trace, as a share of it.
        density_probes, density_steps: as in :func:`analysis.density.estimate_density`.
        seed: of all random vectors.
        max_basis: at most so many basis vectors are held (:func:`analysis.eigen.extreme_eigenpairs`).
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
            data_dir=data_dir, model=model, data=data, batch_size=batch_size, penalty=_penalty(man), stream=stream,
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


def _penalty(man: float | MAN) -> MAN | None:
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


@dataclass(frozen=True)
class Command:
    """Extreme eigenvalues, λ1/λ5, trace and spectral density of the loss's Hessian at one checkpoint or several.

    The Hessian is that of the mean loss over all samples of the split, exactly; the eigenvalues come with
    residuals and error bounds, the trace with its standard error.
    """

    checkpoints: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(metavar="CKPT [CKPT ...]", help_behavior_hint=""),
    ]
    """checkpoint files, such as a run's ckpt.pt, or state dicts from elsewhere (with --model and --data)"""
    rounds: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """measure every rounds/NNNNN.pt of the run each CKPT lies in (or is), and draw the curves"""
    replot: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """measure nothing: each CKPT is a file that --json or --out wrote, to tabulate and (with --out) draw again"""
    spectrum: Spectrum = field(default_factory=Spectrum)
    extras: Extras = field(default_factory=Extras)
    source: Source = field(default_factory=Source)
    effort: Effort = field(default_factory=Effort)
    trust: Trust = field(default_factory=Trust)
    output: Output = field(default_factory=Output)

    def check(self) -> None:
        """Refuse options that contradict one another.

        Raises:
            FedscapeError: they do.
        """
        spectrum, output = self.spectrum, self.output
        if not self.checkpoints:
            raise FedscapeError(f"give at least one checkpoint file (see {PROGRAM} --help)")
        ratios = spectrum.ratios
        if self.replot:
            if not spectrum.default or self.extras != Extras() or self.trust != Trust():
                raise FedscapeError(
                    "--replot measures nothing: of the options that say what is measured give --ratio only"
                )
            return
        check_ratios(ratios, spectrum.which, spectrum.top)
        if self.effort.graph_memory is not None:
            memory_size(self.effort.graph_memory)
        if (output.eigenvalue_axis, output.density_axis) != ("linear", "log") and not spectrum.density:
            raise FedscapeError("--eigenvalue-axis and --density-axis are of the density's picture: give --density too")
        if spectrum.ggn and spectrum.matrix not in ("hessian", "ggn"):
            raise FedscapeError(f"--ggn and --matrix {spectrum.matrix} ask for two matrices: give one of them")
        if spectrum.man and spectrum.kind != "hessian":
            raise FedscapeError(
                "--man adds a loss of the activations, and the Gauss-Newton and Fisher matrices are of a loss of the "
                "outputs: take the Hessian, or leave out --man"
            )
        if (spectrum.block or spectrum.weight_decay) and self.extras != Extras():
            raise FedscapeError(
                "--block and --weight-decay say of which matrix the spectrum is, and --layers, --sharpness and "
                "--per-client measure the loss in all parameters: ask for them in two commands"
            )
        if self.effort.state is not None and (len(self.checkpoints) > 1 or self.rounds):
            raise FedscapeError("--state keeps one checkpoint's iteration: give one checkpoint, and no --rounds")
        if not spectrum.plain and (self.trust.compare_pyhessian or self.trust.backend == "pyhessian"):
            raise FedscapeError(
                "PyHessian measures the largest eigenvalues of the loss's Hessian only: "
                "leave out --which, --matrix, --ggn, --weight-decay, --man and --block"
            )

    def pyhessian_options(self) -> dict[str, Any]:
        """What this command asks of PyHessian."""
        return {
            "trace": self.spectrum.trace,
            "density": self.spectrum.density,
            "tolerance": self.effort.tolerance,
            "density_probes": self.effort.probes,
            "density_steps": self.effort.steps,
            "split": self.source.split,
            "seed": self.effort.seed,
            "progress": not self.output.quiet,
        }

    def landscape(self, path: Path) -> tuple[Landscape, str]:
        """The landscape around one checkpoint, and what it is called."""
        landscape = Landscape.from_checkpoint(path, **vars(self.source))
        return landscape, landscape.title

    def measure(self, path: Path) -> HessianReport:
        """The report of one checkpoint."""
        spectrum, effort = self.spectrum, self.effort
        if self.trust.backend == "pyhessian":
            from analysis.pyhessian_backend import pyhessian_report

            landscape, title = self.landscape(path)
            report = pyhessian_report(landscape, spectrum.top, title=title, **self.pyhessian_options())
            return report.with_ratios(spectrum.ratios)
        return measure_hessian(
            path,
            spectrum.top,
            **vars(self.source),
            which=spectrum.which,
            matrix=spectrum.kind,
            weight_decay=spectrum.weight_decay,
            man=spectrum.man,
            block=spectrum.block,
            trace=spectrum.trace,
            density=spectrum.density,
            ratios=spectrum.ratios,
            verify=self.trust.verify,
            tolerance=effort.tolerance,
            trace_tolerance=effort.trace_tolerance,
            density_probes=effort.probes,
            density_steps=effort.steps,
            seed=effort.seed,
            max_basis=effort.max_basis,
            graph_memory=effort.graph_memory,
            state=effort.state,
            progress=not self.output.quiet,
        )

    def more(self, path: Path) -> Iterator[Measured]:
        """The other tables asked for, of one checkpoint."""
        penalty = _penalty(self.spectrum.man)
        return self.extras.measure(path, self.source, self.effort.seed, not self.output.quiet, penalty)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure, print, write."""
    given = sys.argv[1:] if arguments is None else arguments
    command = parse(lambda: tyro.cli(Command, prog=PROGRAM, args=given, config=(tyro.conf.OmitArgPrefixes,)), PROGRAM)
    command.check()
    with cpu_threads(command.effort.threads), joined(command.source.device) as device:
        here = replace(command, source=replace(command.source, device=str(device)))
        if rank_and_world()[0] == 0:
            return _carry_out(here)
        # The other ranks do their share of the same work; the first one speaks and writes.
        silent = replace(here, output=Output(quiet=True))
        with contextlib.redirect_stdout(io.StringIO()):
            return _carry_out(silent)


def _carry_out(command: Command) -> int:
    out = command.output.out
    if out is not None:
        make_directory(out)
    if command.replot:
        return _replot(command)
    paths = list(command.checkpoints)
    if command.rounds:
        paths = [file for path in paths for file in _rounds(path)]
    reports, numbers = [], []
    more: list[tuple[str, list[Measured]]] = []
    for path in paths:
        reports.append(command.measure(path))
        print(reports[-1], end="\n\n")
        numbers.append({"checkpoint": str(path), **reports[-1].to_dict()})
        if command.trust.compare_pyhessian:
            numbers[-1]["pyhessian"] = compare(command, path, reports[-1])
        more.append((reports[-1].title, []))
        for one in command.more(path):
            print(f"{one.title}\n{one.table}\n")
            numbers[-1][one.key] = one.numbers
            more[-1][1].append(one)
    write_numbers(command, reports, numbers, [command.output.json, out and out / "hessian.json"])
    if out is not None:
        write_arrays(out / "hessian.npz", reports)
        print(f"arrays: {out / 'hessian.npz'}")
        save_picture(command, out, paths, reports)
        for picture in save_pictures(more, out):
            print(f"plot: {picture}")
    return 0


def _rounds(path: Path) -> list[Path]:
    """The kept models of the run that a checkpoint lies in or that a directory is."""
    kept = run_files(path, "rounds")
    return rounds_of(kept[0].parent if kept else path)


def _replot(command: Command) -> int:
    """Tabulate and draw what was measured before; no product is spent."""
    numbers = [entry for path in command.checkpoints for entry in read_numbers(path)]
    reports = [HessianReport.from_dict(entry) for entry in numbers]
    reports = [report.with_ratios([*report.ratios, *command.spectrum.ratios]) for report in reports]
    for entry, report in zip(numbers, reports, strict=True):
        print(report, end="\n\n")
        entry.update(report.to_dict())
    write_numbers(command, reports, numbers, [command.output.json])
    if command.output.out is not None:
        save_picture(command, command.output.out, [Path(entry["checkpoint"]) for entry in numbers], reports)
    return 0


def read_numbers(path: Path) -> list[dict[str, Any]]:
    """What a JSON file of this command says of each checkpoint, fit for :meth:`HessianReport.from_dict`.

    Raises:
        FedscapeError: it cannot be read or is none.
    """
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FedscapeError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise FedscapeError(f"{path} is no JSON file: give one that --json or --out wrote ({error})") from error
    try:
        entries = [{"checkpoint": str(path), **entry} for entry in contents.get("checkpoints", [contents])]
        for entry in entries:
            HessianReport.from_dict(entry)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FedscapeError(f"{path} holds no Hessian report: give a file that --json or --out wrote") from error
    return entries


def write_numbers(
    command: Command, reports: Sequence[HessianReport], numbers: list[dict[str, Any]], files: Sequence[Path | None]
) -> None:
    """Print the comparison of several reports; write all numbers to the JSON files, and the table where asked for.

    Raises:
        FedscapeError: a file cannot be written.
    """
    table = comparison_table(reports)
    if len(reports) > 1:
        print(table)
    contents = numbers[0] if len(numbers) == 1 else {"checkpoints": numbers}
    for file in files:
        if file is not None:
            write_json(file, contents)
            print(f"numbers: {file}")
    if command.output.csv is not None:
        write_text(command.output.csv, table.csv())
        print(f"table: {command.output.csv}")


def compare(command: Command, path: Path, ours: HessianReport) -> dict[str, Any]:
    """Ask PyHessian the same, print both side by side and why they differ; its numbers."""
    from analysis.pyhessian_backend import compare_with_pyhessian

    landscape, title = command.landscape(path)
    options = command.pyhessian_options()
    found = compare_with_pyhessian(landscape, command.spectrum.top, ours=ours, title=title, **options)
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


def save_picture(command: Command, out: Path, paths: Sequence[Path], reports: Sequence[HessianReport]) -> None:
    """Draw ``hessian.png``: the spectra on common axes, or with ``--rounds`` their curves over each run's rounds.

    Raises:
        FedscapeError: it cannot be written, or the curves' checkpoints are no rounds/NNNNN.pt.
    """
    from analysis.spectrum_plots import plot_rounds, plot_spectra
    from landscape.pictures import save_figure

    picture = out / "hessian.png"
    if command.rounds:
        runs: dict[str, list[tuple[int, HessianReport]]] = {}
        for file, report in zip(paths, reports, strict=True):
            if not file.stem.isdigit():
                raise FedscapeError(f"{file} is none of a run's rounds/NNNNN.pt: leave out --rounds")
            runs.setdefault(file.parent.parent.name, []).append((int(file.stem), report))
        figure = plot_rounds(runs)
    else:
        figure = plot_spectra(reports, None, command.output.eigenvalue_axis, command.output.density_axis)
    save_figure(figure, picture)
    print(f"plot: {picture}")


def command_line() -> int:
    """The console script."""
    return run(main)


if __name__ == "__main__":
    sys.exit(command_line())
