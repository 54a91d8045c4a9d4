"""The Hessian of a checkpoint: ``python -m analysis.hessian CKPT``."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from analysis.hessian.clients import local_clients, rounds_of
from analysis.hessian.command import PROGRAM, Command
from analysis.hessian.comparison import comparison_table, told_apart
from analysis.hessian.measure import measure_hessian
from analysis.hessian.options import Effort, Output
from analysis.hessian.pyhessian import compare_with_pyhessian, pyhessian_report
from analysis.hessian.report import HessianReport
from analysis.hessian.supplements import Supplement, client_rounds, measure_supplements
from analysis.hessian.writing import (
    read_numbers,
    save_rounds,
    save_spectra,
    save_supplements,
    write_arrays,
    write_numbers,
)
from landscape import FedscapeError, Landscape
from landscape.checkpoints.checkpoint import run_files
from landscape.checkpoints.foreign import file_and_client, open_checkpoint
from landscape.compute.devices import cpu_threads
from landscape.compute.distributed import joined, rank_and_world
from landscape.profiling import told
from landscape.storage.files import write_text
from landscape.terminal.command import read, run

CONFIG = (tyro.conf.OmitArgPrefixes,)


@dataclass(frozen=True)
class _Result:
    """What was measured of one checkpoint, and the numbers of it for the JSON file."""

    report: HessianReport
    numbers: dict[str, Any]
    supplements: list[Supplement]


def kinds() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """What the options are made of, by program, with tyro's configuration."""
    return {PROGRAM: (Command, CONFIG)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure, print, write."""
    given = sys.argv[1:] if arguments is None else arguments
    command = read(Command, PROGRAM, given, CONFIG)
    command.check()
    command.check_outputs()
    with cpu_threads(command.effort.threads), joined(command.source.device) as device:
        here = replace(command, source=replace(command.source, device=str(device)))
        if rank_and_world()[0] == 0:
            with told("product", command.output.profile):
                return _carry_out(here)
        # The other ranks do their share of the same work; only the first one prints and writes.
        silent = replace(here, output=Output(quiet=True))
        with contextlib.redirect_stdout(io.StringIO()):
            return _carry_out(silent)


def _carry_out(command: Command) -> int:
    out = command.output.out
    if command.replot:
        return _replot(command)
    paths = list(command.checkpoints)
    if command.rounds:
        paths = [file for path in paths for file in _rounds(path)]
    left_out = _without_clients(command, paths)
    results = [_measured(command, path, left_out.get(path)) for path in paths]
    reports = told_apart([result.report for result in results], [str(path) for path in paths])
    curves = []
    if command.rounds and command.extras.per_client:
        points = [(path, result.report, result.supplements) for path, result in zip(paths, results, strict=True)]
        curves = client_rounds(points, left_out)
        print(*(curve.on_screen() for curve in curves), sep="\n\n", end="\n\n")
    entries = [result.numbers for result in results]
    _write(command, reports, entries, [command.output.json, out and out / "hessian.json"])
    if out is not None:
        write_arrays(out / "hessian.npz", reports)
        print(f"arrays: {out / 'hessian.npz'}")
        _draw(command, out / "hessian.png", paths, reports)
        tables = [(report.title, result.supplements) for report, result in zip(reports, results, strict=True)]
        for picture in save_supplements(out, tables, curves, command.style):
            print(f"plot: {picture}")
    return 0


def _replot(command: Command) -> int:
    """Tabulate and draw what was measured before; no product is spent."""
    entries = [entry for path in command.checkpoints for entry in read_numbers(path)]
    reports = [HessianReport.from_dict(entry) for entry in entries]
    reports = [report.with_ratios([*report.ratios, *command.spectrum.pairs]) for report in reports]
    for entry, report in zip(entries, reports, strict=True):
        print(report, end="\n\n")
        entry.update(report.to_dict())
    reports = told_apart(reports, [entry["checkpoint"] for entry in entries])
    _write(command, reports, entries, [command.output.json])
    if command.output.out is not None:
        picture = command.output.out / "hessian.png"
        _draw(command, picture, [Path(entry["checkpoint"]) for entry in entries], reports)
    return 0


def _rounds(path: Path) -> list[Path]:
    """The kept models of the run that a checkpoint lies in or that a directory is."""
    kept = run_files(path, "rounds")
    return rounds_of(kept[0].parent if kept else path)


def _without_clients(command: Command, paths: Sequence[Path]) -> dict[Path, str]:
    """With ``--rounds --local``, the checkpoints that carry no local model of the clients asked for, and why.

    Raises:
        FedscapeError: none of them carries one.
    """
    if not (command.rounds and command.extras.local):
        return {}
    source = command.source
    opened = ((path, open_checkpoint(path, **source.naming)) for path in paths)
    left_out = {path: why for path, found in opened if (why := local_clients(found, source.clients)[1])}
    if len(left_out) == len(paths):
        raise FedscapeError(
            f"no round can be measured with --local: the last is left out because {left_out[paths[-1]]}"
        )
    return left_out


def _measured(command: Command, path: Path, left_out: str | None = None) -> _Result:
    """Measure one checkpoint and print its tables; without those of clients for the reason given."""
    report = _report(command, path)
    print(report, end="\n\n")
    numbers = {"checkpoint": str(path), **report.to_dict(), **_whose(command, path)}
    if command.source.samples == "auto":  # what comes next is of the same samples
        same = replace(command.source, samples=report.samples if report.sampling else None)
        command = replace(command, source=same)
    extras = command.extras
    if left_out is not None:
        extras = replace(extras, per_client=False, local=False)
        numbers["clients_left_out"] = left_out
        print(f"no clients at round {int(path.stem)}: {left_out}\n")
    if command.trust.compare_pyhessian:
        numbers["pyhessian"] = _compared(command, path, report)
    supplements, seed, quiet = [], command.effort.seed, command.output.quiet
    for one in measure_supplements(
        extras,
        path,
        command.source,
        seed,
        not quiet,
        penalty=command.spectrum.penalty,
        sampled=command.rounds,
        refine=command.effort.refine,
    ):
        print(f"{one.title}\n{one.table.on_screen()}\n")
        numbers[one.key] = one.numbers
        supplements.append(one)
    return _Result(report, numbers, supplements)


def _whose(command: Command, path: Path) -> dict[str, Any]:
    """For the JSON file: whose local model was measured, and on whose data, where it is not the global model on all."""
    client, clients = file_and_client(path)[1], command.source.clients
    model = {} if client is None else {"local_model_of_client": client}
    return model if clients is None else {**model, "data_of_clients": list(clients)}


def _report(command: Command, path: Path) -> HessianReport:
    """The spectrum at one checkpoint, by our methods or by PyHessian's."""
    spectrum = command.spectrum
    if command.trust.backend == "pyhessian":
        landscape = Landscape.from_checkpoint(path, **vars(command.source))
        report = pyhessian_report(landscape, spectrum.top, title=landscape.title, **_pyhessian_options(command))
        return report.with_ratios(spectrum.pairs)
    return measure_hessian(
        path,
        spectrum=spectrum,
        source=command.source,
        effort=command.effort,
        verify=command.trust.verify,
        progress=not command.output.quiet,
    )


def _compared(command: Command, path: Path, ours: HessianReport) -> dict[str, Any]:
    """Ask PyHessian the same, print both side by side and why they differ; its numbers."""
    landscape = Landscape.from_checkpoint(path, **vars(command.source))
    options = _pyhessian_options(command)
    found = compare_with_pyhessian(landscape, command.spectrum.top, ours=ours, title=landscape.title, **options)
    print(f"{found}\n\n{found.explain()}\n")
    return {**found.theirs.to_dict(), "explanation": found.explain()}


def _pyhessian_options(command: Command) -> dict[str, Any]:
    """What is asked of PyHessian; of probes and steps as many as it takes by itself, unless ours are changed."""
    effort, ours = command.effort, Effort()
    given = {
        name: getattr(effort, name)
        for name in ("density_probes", "density_steps")
        if getattr(effort, name) != getattr(ours, name)
    }
    return {
        **given,
        "trace": command.spectrum.trace,
        "density": command.spectrum.density,
        "tolerance": command.effort.tolerance,
        "split": command.source.split,
        "seed": command.effort.seed,
        "progress": not command.output.quiet,
    }


def _write(
    command: Command, reports: Sequence[HessianReport], entries: list[dict[str, Any]], files: Sequence[Path | None]
) -> None:
    """Print the comparison of several reports; write all numbers to the JSON files, and the table where asked for."""
    if len(reports) > 1:
        print(comparison_table(reports, [entry["checkpoint"] for entry in entries]).on_screen())
    for file in files:
        if file is not None:
            write_numbers(file, entries)
            print(f"numbers: {file}")
    if command.output.csv is not None:
        write_text(command.output.csv, comparison_table(reports).csv())
        print(f"table: {command.output.csv}")


def _draw(command: Command, picture: Path, paths: Sequence[Path], reports: Sequence[HessianReport]) -> None:
    """Draw the spectra, or with ``--rounds`` their curves."""
    if command.rounds:
        save_rounds(picture, paths, reports, command.style)
    else:
        save_spectra(picture, reports, command.output.eigenvalue_axis, command.output.density_axis, command.style)
    print(f"plot: {picture}")


def command_line(arguments: Sequence[str] | None = None) -> int:
    """The console script."""
    return run(lambda: main(arguments))


if __name__ == "__main__":
    sys.exit(command_line())
