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
from trainers.runs.comparison import presented, report, warnings
from trainers.runs.records import read_runs
from trainers.settings import optional

PROGRAM = "python -m trainers report"


@dataclass(frozen=True)
class Command:
    """Compare runs: accuracy, rounds and traffic to targets, drift, traffic and time.

    accuracy, best, last tenth: on the test data; of the last evaluated round, of the best one (which knows the test
    data), the mean over the evaluated rounds among the last tenth; train loss: the mean over the local steps of the
    last round, not that of the model they end in; drift: (1/n) Σ ‖w_i − w‖² of the last round; MB: per sampled client
    and round; GB: all traffic, both ways; seconds: mean over the rounds; client: mean ± deviation over the clients; of
    groups ± is the deviation over the seeds.  Where runs differ in client weights, aggregation, evaluated model,
    batches, local work or gradients a step, a column and a warning say so: they have other objectives or budgets.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN [RUN ...]")]
    """run directories"""
    targets: Annotated[tuple[float, ...], optional("SHARE [SHARE ...]", "none")] = ()
    """test accuracies, as shares: the first round that reaches each, and the traffic until then"""
    group: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """one row for the runs that differ by their seed only: mean ± deviation over those that did not diverge"""
    wide: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """on a terminal, too, one table; else columns that do not fit follow in a second one below"""
    csv: Annotated[Path | None, optional("FILE", "none")] = None
    """write all columns there, with all digits"""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """write all columns there, an object a row"""
    latex: Annotated[Path | None, optional("FILE", "none")] = None
    """write the printed table there, for LaTeX with booktabs"""
    force: ForceFlag = False

    def outputs(self) -> list[Output]:
        """All files that the command writes."""
        columns = ("run", "algorithm", "status")
        found = [
            ("--csv", self.csv, "csv", columns),
            ("--json", self.json, "json", columns),
            ("--latex", self.latex, "latex", ()),
        ]
        return [Output(option, path, kind, signs) for option, path, kind, signs in found if path is not None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the runs, print the table, and write it to files if asked for."""
    given = sys.argv[1:] if arguments is None else arguments
    command = read(Command, PROGRAM, given)
    if not command.runs:
        raise FedscapeError(f"give at least one run directory (see {PROGRAM} --help)")
    inputs = [run / name for run in command.runs for name in ("config.json", "metrics.jsonl", "result.json")]
    check_outputs(command.outputs(), inputs, force=command.force)
    runs = read_runs(command.runs)
    table = report(runs, command.targets, group=command.group)
    shown = presented(table)
    print(shown if command.wide else shown.on_screen())
    for sentence in warnings(runs):
        print(f"warning: {sentence}", file=sys.stderr)
    if command.csv is not None:
        write_text(command.csv, table.csv())
    if command.json is not None:
        write_json(command.json, {"runs": [dict(zip(table.columns, row, strict=True)) for row in table.rows]})
    if command.latex is not None:
        write_text(command.latex, f"% {PRODUCER}\n{shown.latex()}")
    for file in (command.csv, command.json, command.latex):
        if file is not None:
            print(f"table: {file}")
    return 0
