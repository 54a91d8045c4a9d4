"""The Hessian of a checkpoint: ``python -m analysis.hessian CKPT``."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tyro

from analysis.hessian.clients import rounds_of
from analysis.hessian.command import PROGRAM, Command
from analysis.hessian.options import Output
from analysis.hessian.report import HessianReport
from analysis.hessian.supplements import Measured, save_pictures
from analysis.hessian.writing import read_numbers, save_picture, write_arrays, write_numbers
from landscape.checkpoints.checkpoint import run_files
from landscape.compute.devices import cpu_threads
from landscape.compute.distributed import joined, rank_and_world
from landscape.storage.files import make_directory
from landscape.terminal.command import parse, run


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


def compare(command: Command, path: Path, ours: HessianReport) -> dict[str, Any]:
    """Ask PyHessian the same, print both side by side and why they differ; its numbers."""
    from analysis.hessian.pyhessian import compare_with_pyhessian

    landscape, title = command.landscape(path)
    options = command.pyhessian_options()
    found = compare_with_pyhessian(landscape, command.spectrum.top, ours=ours, title=title, **options)
    print(f"{found}\n\n{found.explain()}\n")
    return {**found.theirs.to_dict(), "explanation": found.explain()}


def command_line() -> int:
    """The console script."""
    return run(main)


if __name__ == "__main__":
    sys.exit(command_line())
