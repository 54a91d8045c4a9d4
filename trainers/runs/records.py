"""Recorded runs: reading run directories."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from landscape.errors import FedscapeError
from landscape.several import several
from landscape.storage.display import Shown
from landscape.storage.reading import read_json
from landscape.storage.style import PictureStyle, StyleName
from trainers.runs.protocol import protocol
from trainers.runs.showing import facts_of, plot_training
from trainers.runs.stored import RESULT, read_config, read_metrics, without_repeats
from trainers.settings import SPEED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = dict[str, Any]
Status = Literal["finished", "diverged", "unfinished"]

SAME_RESULT = (*SPEED, "seed", "save_every", "save_clients")
"""Settings in which runs of one group may differ: they change neither what is trained nor for how long."""

_LAST_SHARE = 0.1


@dataclass(frozen=True, repr=False)
class RecordedRun(Shown):
    """A run as recorded in its directory.

    Attributes:
        path: the run directory.
        config: the contents of ``config.json``.
        metrics: the objects of ``metrics.jsonl``, one a round.
        result: the contents of ``result.json``; empty if there is none.
        repeated: how many objects of ``metrics.jsonl`` were left out, as a later one has the same round.
    """

    path: Path
    config: dict[str, Any]
    metrics: list[Record]
    result: dict[str, Any]
    repeated: int = 0

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
        """Number of rounds recorded."""
        return self.metrics[-1]["round"] if self.metrics else 0

    @property
    def planned(self) -> int | None:
        """Number of rounds asked for."""
        rounds = self.config["settings"].get("rounds")
        return rounds if isinstance(rounds, int) else None

    @property
    def status(self) -> Status:
        """``diverged`` if ``result.json`` says so; ``finished`` if all rounds asked for are recorded."""
        if self.result.get("status") == "diverged":
            return "diverged"
        if self.planned is None:
            return "finished" if self.result.get("status") == "finished" else "unfinished"
        return "finished" if self.rounds >= self.planned else "unfinished"

    @property
    def status_text(self) -> str:
        """The status in words."""
        if self.status == "diverged":
            return f"diverged in round {self.result.get('round', self.rounds + 1)}"
        if self.status == "unfinished":
            return "unfinished" if self.planned is None else f"unfinished, {self.rounds} of {self.planned}"
        return self.status

    def _heading(self) -> str:
        return f"{self.algorithm}, {self.status_text}"

    def _facts(self) -> dict[str, str]:
        settings = self.config["settings"]
        facts = {name: str(settings[name]) for name in ("model", "data", "partition", "clients") if name in settings}
        return {**facts, **facts_of(self.metrics), "in": str(self.path)}

    def _picture(self) -> Figure | None:
        return self.plot() if self.metrics else None

    def plot(self, path: str | Path | None = None, style: PictureStyle | StyleName = "screen") -> Figure:
        """Loss and accuracy over the rounds, for the screen or a paper; written to ``path`` where one is given.

        Raises:
            FedscapeError: no round was recorded; the file cannot be written or has a format that Matplotlib does not
                write.
        """
        return plot_training(self.metrics, self.title, path, style)

    @property
    def title(self) -> str:
        """The algorithm, and the run's folder where that has another name."""
        name = self.path.resolve().name
        return self.algorithm if name == self.algorithm else f"{self.algorithm} ({name})"

    def values(self, name: str) -> list[float]:
        """The values of a metric, of all rounds that have it."""
        return [record[name] for record in self.metrics if record.get(name) is not None]

    def last(self, name: str) -> float | None:
        """The last recorded value of a metric."""
        values = self.values(name)
        return values[-1] if values else None

    def mean(self, name: str) -> float | None:
        """The mean of a metric over the rounds that have it."""
        values = self.values(name)
        return statistics.fmean(values) if values else None

    def last_accuracy(self) -> float | None:
        """Mean test accuracy over the evaluated rounds in the last tenth; ``None`` if fewer than two were evaluated."""
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
        """Traffic in both directions in GB (10⁹ bytes), up to and including a round."""
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
    def protocol(self) -> dict[str, str | float | None]:
        """Objective, evaluated model and the work of a round (:func:`trainers.runs.protocol.protocol`)."""
        return protocol(self.config, self.metrics)

    @cached_property
    def configuration(self) -> str:
        """Algorithm, parts and settings without :data:`SAME_RESULT`: equal for runs that differ in their seed only."""
        settings = {name: value for name, value in self.config["settings"].items() if name not in SAME_RESULT}
        parts = self.config.get("parts") or {}
        return json.dumps([self.config["algorithm"], parts, settings], sort_keys=True)


def read_runs(paths: Iterable[str | Path] | str | Path) -> list[RecordedRun]:
    """Read run directories, one or several.

    Raises:
        FedscapeError: a path is no run directory, or a file in it is damaged.

    Example:
        >>> import tempfile
        >>> from trainers import FedASAM, Settings, train
        >>> from trainers.runs import read_runs
        >>> settings = Settings(rounds=2, clients=4, per_round=2, local_steps=1, device="cpu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = train(FedASAM(rho=0.7), settings, out=folder)
        ...     (run,) = read_runs(folder)
        >>> run.algorithm, run.status, run.rounds, run.megabytes("bytes_up") == run.megabytes("bytes_down")
        ('fedasam', 'finished', 2, True)
    """
    given: list[str | Path] = several(paths)
    return [_read(Path(path)) for path in given]


def _read(path: Path) -> RecordedRun:
    if not path.exists():
        raise FedscapeError(f"there is no run directory {path}")
    if not (path / "config.json").is_file():
        raise FedscapeError(f"{path} is no run directory: it holds no config.json")
    result = read_json(path / "result.json", RESULT) if (path / "result.json").exists() else {}
    metrics, repeated = without_repeats(read_metrics(path))
    return RecordedRun(path, read_config(path), metrics, result, repeated)
