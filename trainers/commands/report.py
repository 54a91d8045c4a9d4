"""The command ``python -m trainers report runs/*``: compare runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from landscape.errors import FedscapeError
from landscape.storage.files import write_json, write_text
from landscape.storage.outputs import PRODUCER, ForceFlag, Output, check_outputs
from landscape.terminal.command import read
from landscape.terminal.table import Table
from trainers.runs.records import RecordedRun, read_runs
from trainers.settings import optional
from trainers.tables.comparison import presented, report, warnings
from trainers.tables.pivot import pivot
from trainers.tables.selection import groups, run_paths, where

PROGRAM = "python -m trainers report"
_LISTED = ("value", "mean", "deviation", "n")
"""The first columns of a pivoted table's cells."""


@dataclass(frozen=True)
class Command:
    """Compare runs: accuracy, rounds and traffic to targets, drift, traffic and time.

    accuracy, best, last tenth: on the test data; of the last evaluated round, of the best one (which knows the test
    data), the mean over the evaluated rounds among the last tenth; train loss: the mean over the local steps of the
    last round, not that of the model they end in; drift: (1/n) Σ ‖w_i − w‖² of the last round; MB: per sampled client
    and round; GB: all traffic, both ways; seconds: mean over the rounds; client: mean ± deviation over the clients; of
    groups ± is the deviation over the seeds.  Where runs differ in client weights, aggregation, evaluated model,
    batches, local work or gradients a step, a column and a warning say so: they have other objectives or budgets.

    With --rows, --columns or --value the groups are a table of one number: mean ± deviation over the seeds, the best of
    each column in bold; rounds to a target have a mean where all seeds reached it, else it says how many did.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN [RUN ...]")]
    """run directories, or the list of a grid's that `fedscape sweep` writes (DIR/GRID.json)"""
    targets: Annotated[tuple[float, ...], optional("SHARE [SHARE ...]", "none")] = ()
    """test accuracies, as shares: the first round that reaches each, and the traffic until then"""
    group: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """one row for the runs that differ by their seed only: mean ± deviation over those that did not diverge"""
    rows: Annotated[tuple[str, ...], optional("NAME [NAME ...]", "algorithm")] = ()
    """with --group: options of training whose values are the rows, such as algorithm or rho"""
    columns: Annotated[tuple[str, ...], optional("NAME [NAME ...]", "none")] = ()
    """with --group: options whose values are the columns, such as partition; alpha is Dirichlet's, where no algorithm
    has one"""
    value: Annotated[str | None, optional("NAME", "test_accuracy")] = None
    """with --group: the number in each cell: a metric of metrics.jsonl (test_accuracy, test_loss, drift, ...),
    best_accuracy, last_tenth, gigabytes, rounds_to:SHARE or gigabytes_to:SHARE"""
    where: Annotated[tuple[str, ...], optional("NAME=VALUE [NAME=VALUE ...]", "all runs")] = ()
    """only the runs that were given this"""
    wide: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """on a terminal, too, one table; else columns that do not fit follow in a second one below"""
    csv: Annotated[Path | None, optional("FILE", "none")] = None
    """write all columns there, with all digits"""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """write all columns there, an object a row"""
    latex: Annotated[Path | None, optional("FILE", "none")] = None
    """write the printed table there, for LaTeX with booktabs"""
    markdown: Annotated[Path | None, optional("FILE", "none")] = None
    """write the printed table there, for Markdown"""
    force: ForceFlag = False

    @property
    def pivoted(self) -> bool:
        """Whether one number is asked for, by rows and columns.

        Raises:
            FedscapeError: it is, without ``--group``.
        """
        asked = [option for option in ("rows", "columns", "value") if getattr(self, option)]
        if asked and not self.group:
            raise FedscapeError(f"--{asked[0]} is an option of --group: give that too")
        if asked and self.targets:
            raise FedscapeError(f"--targets and --{asked[0]} do not go together: give --value rounds_to:SHARE")
        return bool(asked)

    def outputs(self) -> list[Output]:
        """All files that the command writes."""
        columns = _LISTED if self.pivoted else ("run", "algorithm", "status")
        found: list[tuple[str, Path | None, str, tuple[str, ...]]] = [
            ("--csv", self.csv, "csv", columns),
            ("--json", self.json, "json", columns),
            ("--latex", self.latex, "latex", ()),
            ("--markdown", self.markdown, "markdown", ()),
        ]
        return [Output(option, path, kind, signs) for option, path, kind, signs in found if path is not None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the runs, print the table, and write it to files if asked for."""
    given = sys.argv[1:] if arguments is None else arguments
    command = read(Command, PROGRAM, given)
    if not command.runs:
        raise FedscapeError(f"give at least one run directory (see {PROGRAM} --help)")
    outputs = command.outputs()
    inputs = [run / name for run in command.runs for name in ("config.json", "metrics.jsonl", "result.json")]
    check_outputs(outputs, [*command.runs, *inputs], force=command.force)
    paths, missing = run_paths(command.runs)
    runs = where(read_runs(paths), command.where)
    if missing:
        print(f"warning: {missing} runs of the grid are not begun", file=sys.stderr)
    table, shown, notes = _pivoted(command, runs) if command.pivoted else _listed(command, runs)
    print(shown if command.wide else shown.on_screen())
    for note in notes:
        print(note)
    for sentence in warnings(runs, groups(runs) if command.pivoted else None):
        print(f"warning: {sentence}", file=sys.stderr)
    if command.csv is not None:
        write_text(command.csv, table.csv())
    if command.json is not None:
        name = "cells" if command.pivoted else "runs"
        write_json(command.json, {name: [dict(zip(table.columns, row, strict=True)) for row in table.rows]})
    if command.latex is not None:
        write_text(command.latex, "".join(f"% {line}\n" for line in (PRODUCER, *notes)) + shown.latex())
    if command.markdown is not None:
        below = "".join(f"\n{note}  \n" for note in notes)
        write_text(command.markdown, f"<!-- {PRODUCER} -->\n\n{shown.markdown()}{below}")
    for output in outputs:
        print(f"table: {output.path}")
    return 0


def _listed(command: Command, runs: list[RecordedRun]) -> tuple[Table, Table, list[str]]:
    """All columns, those to be printed, and no notes."""
    table = report(runs, command.targets, group=command.group)
    return table, presented(table), []


def _pivoted(command: Command, runs: list[RecordedRun]) -> tuple[Table, Table, list[str]]:
    """The cells one by one, the table to be printed, and its notes."""
    found = pivot(runs, command.rows or ("algorithm",), command.columns, command.value or "test_accuracy")
    return found.listed(), found.table(), found.notes()
