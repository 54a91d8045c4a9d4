"""What runs came to, side by side: ``python -m trainers report runs/*``."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from landscape.errors import FedscapeError
from landscape.storage.files import write_json, write_text
from landscape.terminal.command import parse
from landscape.terminal.table import Table

PROGRAM = "python -m trainers report"

Record = dict[str, Any]
Cell = str | float | None
Status = Literal["finished", "diverged", "unfinished"]

SAME_RESULT = ("seed", "device", "data_dir", "save_every", "save_clients", "client_store")
"""Settings in which runs of one group may differ: they do not say what is trained, or for how long."""

_LAST_SHARE = 0.1
_DEVIATION = " ±"


@dataclass(frozen=True)
class RecordedRun:
    """A run as its directory tells it.

    Attributes:
        path: the run directory.
        config: the contents of ``config.json``.
        metrics: the objects of ``metrics.jsonl``, one a round.
        result: the contents of ``result.json``; empty where there is none.
    """

    path: Path
    config: dict[str, Any]
    metrics: list[Record]
    result: dict[str, Any]

    @property
    def algorithm(self) -> str:
        """The algorithm and its parts, as in ``scaffold + asam + man``."""
        parts = []
        for name, value in (self.config.get("parts") or {}).items():
            if value:
                parts.append(str(value.get("name", name)) if isinstance(value, dict) else name)
        return " + ".join([str(self.config["algorithm"]["name"]), *parts])

    @property
    def seed(self) -> Any:
        """The run's seed."""
        return self.config["settings"].get("seed")

    @property
    def rounds(self) -> int:
        """The rounds recorded."""
        return self.metrics[-1]["round"] if self.metrics else 0

    @property
    def planned(self) -> int | None:
        """The rounds asked for."""
        rounds = self.config["settings"].get("rounds")
        return rounds if isinstance(rounds, int) else None

    @property
    def status(self) -> Status:
        """``diverged`` as ``result.json`` says; ``finished`` where all rounds asked for are recorded."""
        if self.result.get("status") == "diverged":
            return "diverged"
        if self.planned is None:
            return "finished" if self.result.get("status") == "finished" else "unfinished"
        return "finished" if self.rounds >= self.planned else "unfinished"

    @property
    def told(self) -> str:
        """The status in words."""
        if self.status == "diverged":
            return f"diverged in round {self.result.get('round', self.rounds + 1)}"
        if self.status == "unfinished":
            return "unfinished" if self.planned is None else f"unfinished, {self.rounds} of {self.planned}"
        return self.status

    def values(self, name: str) -> list[float]:
        """A number of each round that has it."""
        return [record[name] for record in self.metrics if record.get(name) is not None]

    def last(self, name: str) -> float | None:
        """A number as it was recorded last."""
        values = self.values(name)
        return values[-1] if values else None

    def mean(self, name: str) -> float | None:
        """The mean over the rounds that have it."""
        values = self.values(name)
        return statistics.fmean(values) if values else None

    def last_accuracy(self) -> float | None:
        """Mean test accuracy over the evaluated rounds among the last tenth; none where fewer than two are."""
        after = self.rounds * (1 - _LAST_SHARE)
        values = [r["test_accuracy"] for r in self.metrics if r["round"] > after and r.get("test_accuracy") is not None]
        return statistics.fmean(values) if len(values) >= 2 else None

    def reaching(self, target: float) -> int | None:
        """The first evaluated round whose test accuracy is at least ``target``."""
        for record in self.metrics:
            accuracy = record.get("test_accuracy")
            if accuracy is not None and accuracy >= target:
                return int(record["round"])
        return None

    def gigabytes(self, until: int | None = None) -> float | None:
        """All that was sent, both ways, in GB (10⁹ bytes), up to and with a round."""
        sent = [
            record[name]
            for record in self.metrics
            for name in ("bytes_down", "bytes_up")
            if record.get(name) is not None and (until is None or record["round"] <= until)
        ]
        return sum(sent) / 1e9 if sent else None

    def megabytes(self, name: str) -> float | None:
        """MB (10⁶ bytes) sent by or to a sampled client in a round, on average."""
        with_both = [r for r in self.metrics if r.get(name) is not None and r.get("clients")]
        clients = sum(len(record["clients"]) for record in with_both)
        return sum(record[name] for record in with_both) / clients / 1e6 if clients else None

    @cached_property
    def configuration(self) -> str:
        """What the run is but for its seed and what changes no result: equal for runs that repeat one another."""
        settings = {name: value for name, value in self.config["settings"].items() if name not in SAME_RESULT}
        parts = self.config.get("parts") or {}
        return json.dumps([self.config["algorithm"], parts, settings], sort_keys=True)


def read_runs(paths: Iterable[str | Path]) -> list[RecordedRun]:
    """Read run directories.

    Raises:
        FedscapeError: one is no run directory, or a file of it is damaged.
    """
    return [_read(Path(path)) for path in paths]


def report(runs: Sequence[RecordedRun], targets: Sequence[float] = (), *, group: bool = False) -> Table:
    """The comparison table: a row a run, or with ``group`` a row for the runs that differ by their seed only.

    Every number has all its digits; an unknown one is ``None``.  A column named ``X ±`` is the standard deviation of
    ``X`` over the clients, as it was recorded; where runs are grouped, over the seeds (that of a sample: divided by
    their number less one).  Rounds to a target never reached are ``>R`` after R rounds.

    Args:
        runs: as :func:`read_runs` gives them.
        targets: test accuracies, as shares, for rounds and traffic to the first round that reaches them.
        group: mean and deviation over the runs of one configuration that did not diverge.

    Raises:
        FedscapeError: a target that is no share, or no runs.
    """
    if not runs:
        raise FedscapeError("give at least one run directory")
    for target in targets:
        if not 0 < target <= 1:
            raise FedscapeError(f"the target {target} is no accuracy: give a share above 0 and up to 1, such as 0.8")
    columns = _columns(targets)
    if group:
        return _grouped(runs, columns)
    names = [run.path.resolve().name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in runs]
    rows = [
        (name, run.algorithm, run.told, *(column(run) for column in columns.values()))
        for name, run in zip(names, runs, strict=True)
    ]
    return Table(("run", "algorithm", "status", *columns), tuple(rows))


def presented(table: Table) -> Table:
    """The table for reading: no empty columns, and deviations beside their means."""
    filled = {name for i, name in enumerate(table.columns) if i == 0 or any(row[i] is not None for row in table.rows)}
    kept = [(i, name) for i, name in enumerate(table.columns) if name in filled and not name.endswith(_DEVIATION)]
    rows = []
    for row in table.rows:
        by_name = dict(zip(table.columns, row, strict=True))
        rows.append(tuple(_with_deviation(by_name[name], by_name.get(name + _DEVIATION)) for _, name in kept))
    return Table(tuple(name for _, name in kept), tuple(rows))


def _with_deviation(value: Cell, deviation: Cell) -> Cell:
    if isinstance(value, float) and isinstance(deviation, float):
        if deviation == 0:
            return f"{value:.4g} ± 0"
        digits = max(0, 1 - math.floor(math.log10(deviation)))
        return f"{value:.{digits}f} ± {deviation:.{digits}f}" if digits <= 6 else f"{value:.2g} ± {deviation:.1g}"
    # A count is no measurement: all its digits.
    return str(value) if isinstance(value, int) else value


def _columns(targets: Sequence[float]) -> dict[str, Callable[[RecordedRun], Cell]]:
    def percent(value: float | None) -> float | None:
        return None if value is None else 100 * value

    def rounds_to(target: float) -> Callable[[RecordedRun], Cell]:
        def column(run: RecordedRun) -> Cell:
            reached = run.reaching(target)
            return f">{run.rounds}" if reached is None else reached

        return column

    def traffic_to(target: float) -> Callable[[RecordedRun], Cell]:
        def column(run: RecordedRun) -> Cell:
            reached = run.reaching(target)
            return None if reached is None else run.gigabytes(reached)

        return column

    columns: dict[str, Callable[[RecordedRun], Cell]] = {
        "rounds": lambda run: run.rounds,
        "accuracy %": lambda run: percent(run.last("test_accuracy")),
        "best %": lambda run: percent(max(run.values("test_accuracy"), default=None)),
        "last tenth %": lambda run: percent(run.last_accuracy()),
        "mIoU %": lambda run: percent(run.last("test_miou")),
        "test loss": lambda run: run.last("test_loss"),
        "train loss": lambda run: run.last("train_loss"),
        "SWA %": lambda run: percent(run.last("swa_test_accuracy")),
        "SWA mIoU %": lambda run: percent(run.last("swa_test_miou")),
    }
    for target in targets:
        columns[f"rounds to {100 * target:g} %"] = rounds_to(target)
        columns[f"GB to {100 * target:g} %"] = traffic_to(target)
    return columns | {
        "drift": lambda run: run.last("drift"),
        "MB down": lambda run: run.megabytes("bytes_down"),
        "MB up": lambda run: run.megabytes("bytes_up"),
        "GB": lambda run: run.gigabytes(),
        "s/round": lambda run: run.mean("seconds"),
        "local s": lambda run: run.mean("seconds_local"),
        "aggregation s": lambda run: run.mean("seconds_aggregation"),
        "evaluation s": lambda run: run.mean("seconds_evaluation"),
        "client train %": lambda run: percent(run.last("client_train_accuracy")),
        "client train % ±": lambda run: percent(run.last("client_train_accuracy_deviation")),
        "client test %": lambda run: percent(run.last("client_test_accuracy")),
        "client test % ±": lambda run: percent(run.last("client_test_accuracy_deviation")),
    }


def _grouped(runs: Sequence[RecordedRun], columns: dict[str, Callable[[RecordedRun], Cell]]) -> Table:
    groups: dict[str, list[RecordedRun]] = {}
    for run in runs:
        groups.setdefault(run.configuration, []).append(run)
    measured = {name: column for name, column in columns.items() if not name.endswith(_DEVIATION)}
    rows = []
    for members in groups.values():
        counted = [run for run in members if run.status != "diverged"]
        cells = [cell for column in measured.values() for cell in _over_seeds([column(run) for run in counted])]
        rows.append((_common_name(members), members[0].algorithm, _told(members), _seeds(members), *cells))
    titles = [title for name in measured for title in (name, name + _DEVIATION)]
    return Table(("run", "algorithm", "status", "seeds", *titles), tuple(rows))


def _over_seeds(cells: list[Cell]) -> tuple[Cell, Cell]:
    """Mean and sample deviation; where a run has words for a number (a target not reached), those of the last."""
    words = [cell for cell in cells if isinstance(cell, str)]
    if words:
        return words[-1], None
    numbers = [cell for cell in cells if isinstance(cell, (int, float))]
    if not numbers or len(numbers) < len(cells):
        return None, None
    return statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None


def _common_name(members: Sequence[RecordedRun]) -> str:
    names = [run.path.resolve().name for run in members]
    if len(names) == 1:
        return names[0]
    length = next((i for i, letters in enumerate(zip(*names, strict=False)) if len(set(letters)) > 1), None)
    common = names[0] if length is None else names[0][:length]
    return common.rstrip("-_. ").removesuffix("seed").rstrip("-_. ") or names[0]


def _told(members: Sequence[RecordedRun]) -> str:
    told = [run.told for run in members]
    return "; ".join(text if told.count(text) == 1 else f"{told.count(text)} {text}" for text in dict.fromkeys(told))


def _seeds(members: Sequence[RecordedRun]) -> str:
    return " ".join(str(run.seed) for run in members)


def _read(path: Path) -> RecordedRun:
    if not path.exists():
        raise FedscapeError(f"there is no run directory {path}")
    if not (path / "config.json").is_file():
        raise FedscapeError(f"{path} is no run directory: it holds no config.json")
    config = _object(path / "config.json")
    for name in ("algorithm", "settings"):
        if not isinstance(config.get(name), dict):
            raise FedscapeError(f"{path / 'config.json'} is damaged: it has no {name}")
    if "name" not in config["algorithm"] or not isinstance(config.get("parts") or {}, dict):
        raise FedscapeError(f"{path / 'config.json'} is damaged: it does not say which algorithm and parts were run")
    result = _object(path / "result.json") if (path / "result.json").exists() else {}
    return RecordedRun(path, config, _metrics(path / "metrics.jsonl"), result)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise FedscapeError(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FedscapeError(f"{file} is damaged: it is no text") from error


def _object(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text(file))
    except ValueError as error:
        raise FedscapeError(f"{file} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise FedscapeError(f"{file} is damaged: it holds no object")
    return value


def _metrics(file: Path) -> list[Record]:
    lines = _text(file).splitlines() if file.exists() else []  # a run killed before its first round has none
    records: list[Record] = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                break  # cut short by a kill
            raise FedscapeError(f"{file} is damaged at line {number}: {error}") from error
        if wrong := _wrong(record, records):
            raise FedscapeError(f"{file} is damaged at line {number}: {wrong}")
        records.append(record)
    return records


def _wrong(record: Any, earlier: Sequence[Record]) -> str | None:
    """What is wrong with a round's object."""
    if not isinstance(record, dict) or type(record.get("round")) is not int:
        return "it is no object with a round"
    if earlier and record["round"] <= earlier[-1]["round"]:
        return f"round {record['round']} comes after round {earlier[-1]['round']}"
    for name, value in record.items():
        if name == "clients":
            if not isinstance(value, list):
                return "clients is no list"
        elif name.startswith(_NUMBERS) and value is not None and type(value) not in (int, float):
            return f"{name} is no number"
    return None


_NUMBERS = ("test_", "train_", "swa_", "client_", "bytes_", "seconds", "drift")


@dataclass(frozen=True)
class Command:
    """Compare runs: accuracy, rounds and traffic to targets, drift, traffic and time.

    accuracy: of the last evaluated round; best: of all evaluated rounds; last tenth: mean over the evaluated rounds
    among the last tenth; drift: (1/n) Σ ‖w_i − w‖² of the last round; MB: per sampled client and round; GB: all
    traffic, both ways; seconds: mean over the rounds; client: mean ± deviation over the clients.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN [RUN ...]")]
    """run directories"""
    targets: Annotated[
        tuple[float, ...], tyro.conf.arg(metavar="SHARE [SHARE ...]", help_behavior_hint="(default: none)")
    ] = ()
    """test accuracies, as shares: the first round that reaches each, and the traffic until then"""
    group: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """one row for the runs that differ by their seed only: mean ± deviation over those that did not diverge"""
    csv: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """write all columns there, with all digits"""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """write all columns there, an object a row"""
    latex: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """write the printed table there, for LaTeX with booktabs"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, read, print, write."""
    given = sys.argv[1:] if arguments is None else arguments
    command = parse(lambda: tyro.cli(Command, prog=PROGRAM, args=given), PROGRAM)
    if not command.runs:
        raise FedscapeError(f"give at least one run directory (see {PROGRAM} --help)")
    table = report(read_runs(command.runs), command.targets, group=command.group)
    shown = presented(table)
    print(shown)
    if command.csv is not None:
        write_text(command.csv, table.csv())
    if command.json is not None:
        write_json(command.json, {"runs": [dict(zip(table.columns, row, strict=True)) for row in table.rows]})
    if command.latex is not None:
        write_text(command.latex, shown.latex())
    for file in (command.csv, command.json, command.latex):
        if file is not None:
            print(f"table: {file}")
    return 0
