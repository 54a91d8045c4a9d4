"""The run directory: the files that a run writes and resumes from."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from landscape.checkpoints.checkpoint import Checkpoint
from landscape.data.dataset import Dataset
from landscape.errors import FedscapeError
from landscape.partitions.partition import Partition
from landscape.storage.files import (
    append_line,
    json_ready,
    load_torch,
    make_directory,
    save_torch,
    write_json,
    write_text,
)
from landscape.storage.lock import process_runs, sole_writer
from landscape.storage.reading import read_json
from landscape.storage.schema import Anything, Keyed, Number, Text, require
from landscape.terminal.notices import notice
from landscape.version import versions
from trainers.algorithm import Algorithm
from trainers.algorithms import algorithm_name
from trainers.federation.weights import ClientWeights
from trainers.parts.parts import Parts
from trainers.runs.earlier import in_todays_terms
from trainers.runs.later import with_later
from trainers.runs.stored import read_config, read_metrics, without_repeats
from trainers.settings import FREE_ON_RESUME, ExecutorName, Settings

_OWN = re.compile(
    r"(config|weights|result|failure)\.json|metrics\.jsonl|partition(_test)?\.npz|(ckpt|swa|state)\.pt"
    r"|rounds/\d+\.pt|(clients|latest)/\d+(-\d+)?\.pt"
)
"""The files that a run writes, below its directory."""
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.tmp")
_LOCK = re.compile(r"\.\w+\.lock")


class RunDirectory:
    """Files of one run under ``path``.

    ``config.json`` (settings, parts and hyper-parameters), ``metrics.jsonl`` (one object a round),
    ``partition.npz`` (the samples of each client), ``weights.json`` (p_i of each client in the objective, and the
    expected one in a round's mean of models) and, if the test data are split too, ``partition_test.npz``,
    ``ckpt.pt`` (latest model), ``rounds/NNNNN.pt`` (kept models), ``swa.pt`` (the mean of server models),
    ``result.json`` (how the run ended; written at its end), ``state.pt`` (for resuming), ``clients/`` and
    ``latest/`` (clients' states and models, if they are stored on disk). Each file is written whole or not at all;
    ``state.pt`` alone decides where a run continues.

    Example:
        >>> import tempfile
        >>> from trainers import FedAvg, Parts, Settings
        >>> from trainers.runs import RunDirectory
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     directory = RunDirectory(folder)
        ...     state = directory.open(FedAvg(server_lr=0.5), Settings(), Parts(), resume=False)
        ...     directory.append({"round": 1, "train_loss": 2.5})
        ...     config, metrics = directory.config(), directory.metrics()
        >>> state, config["algorithm"], metrics
        (None, {'name': 'fedavg', 'server_lr': 0.5}, [{'round': 1, 'train_loss': 2.5}])
    """

    def __init__(self, path: str | Path, protocol: str = "") -> None:
        self.path, self._protocol = Path(path), protocol
        self._before = "auto"  # the rule of runs that record none

    @contextmanager
    def owned(self, *, resume: bool, force: bool = False) -> Iterator[None]:
        """Inside, this process alone works in the directory, which is made if it is missing.

        Where the work fails before it has written anything, what was made is removed again.

        Args:
            resume: whether a run in it is to go on.
            force: whether it may hold other files; those of a run's names are then replaced.

        Raises:
            LockedError: another process is training in it.
            FedscapeError: it holds something else than a run of ours, or a run and ``resume`` is false; it cannot be
                made.
        """
        self._check(resume, force)
        missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        make_directory(self.path)
        try:
            with sole_writer(self.path / "training", f"is training in {self.path}", "give another --out"):
                self._check(resume, force)  # another process may have begun a run since
                yield
        finally:
            with suppress(OSError):  # there is something in it: the run
                for folder in missing:
                    folder.rmdir()

    def _check(self, resume: bool, force: bool) -> None:
        """Refuse a directory that holds something else than a run, or a run that is not to go on."""
        if self.path.exists() and not self.path.is_dir():
            raise FedscapeError(f"cannot create the directory {self.path}: it is a file: give another --out")
        if self._holds_run():
            if not resume:
                raise FedscapeError(f"{self.path} already holds a run: give --resume to continue it, or another --out")
            return
        foreign = [] if force else [name for name in self._names() if not self._begun(name)]
        if foreign:
            raise FedscapeError(
                f"{self.path} holds {foreign[0]} and no run: give an empty or new folder as --out, or --force to train "
                "in this one"
            )

    def _holds_run(self) -> bool:
        """Whether there is a config.json, and it is a run's and not another program's."""
        file = self.path / "config.json"
        if not file.exists():
            return False
        config = read_json(file, Anything())
        return isinstance(config, dict) and {"algorithm", "settings"} <= config.keys()

    def _names(self) -> list[str]:
        return sorted(os.listdir(self.path)) if self.path.exists() else []

    def _begun(self, name: str) -> bool:
        """Whether a run leaves this before its config.json is there: a lock, the reason of a failure, a folder."""
        if name == "rounds":
            return not any((self.path / name).iterdir())
        return name == "failure.json" or bool(_LOCK.fullmatch(name)) or self._leftover(self.path / name)

    def _clean_up(self) -> None:
        """Remove what a killed process was writing of this run, and nothing else."""
        for folder in (".", "rounds", "clients", "latest"):
            for found in (self.path / folder).glob(".*.tmp"):
                if self._leftover(found):
                    found.unlink()

    def _leftover(self, file: Path) -> bool:
        """Whether a file is what a killed process was writing of this run."""
        found = _TEMPORARY.fullmatch(file.name)
        if found is None:
            return False
        name, process = file.with_name(found["name"]).relative_to(self.path).as_posix(), int(found["process"])
        return bool(_OWN.fullmatch(name)) and (process == os.getpid() or not process_runs(process))

    def open(self, algorithm: Algorithm, settings: Settings, parts: Parts, *, resume: bool) -> dict[str, Any] | None:
        """Prepare the directory; return the state to continue from, or ``None`` at the start of a run.

        Raises:
            FedscapeError: it holds a run and ``resume`` is false, it holds another run, or it cannot be written; a
                hyper-parameter is no plain value.
        """
        for name, value in algorithm.hyper_parameters().items():
            if not _is_plain(value):
                raise FedscapeError(
                    f"{type(algorithm).__name__}'s {name} is a {type(value).__name__}: hyper-parameters must be "
                    "numbers, texts, true, false, none or lists of them, as files that run no code hold them"
                )
        config = {
            "algorithm": {"name": algorithm_name(algorithm), **algorithm.hyper_parameters()},
            "parts": parts.recorded(),
            "settings": settings.recorded(),
        }
        file = self.path / "config.json"
        if file.exists():
            if not resume:
                raise FedscapeError(f"{self.path} already holds a run: give --resume to continue it, or another --out")
            self._compare(json_ready(config), algorithm)
            self._protocol = self._protocol or self.config().get("protocol", "")
        make_directory(self.path / "rounds")
        self._clean_up()
        (self.path / "result.json").unlink(missing_ok=True)
        write_json(file, {**config, **self._named(), "versions": versions()})
        recorded = self.metrics()
        state = self._state(recorded) if resume and (self.path / "state.pt").exists() else None
        self.cut_metrics(state["round"] if state else 0, recorded)
        return state

    def _named(self) -> dict[str, str]:
        """The protocol by name, of a run that has one."""
        return {"protocol": self._protocol} if self._protocol else {}

    def _state(self, recorded: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """``state.pt``, of which the federation checks the rest; ``recorded`` is what :meth:`metrics` gives.

        Raises:
            FedscapeError: it cannot be read, is damaged, or is of a round that is not recorded.
        """
        file = self.path / "state.pt"
        state: dict[str, Any] = load_torch(file)
        require(state, Keyed(Text(100), Anything()), file)
        require(state.get("round"), Number(0, whole=True), f"{file}: the round")
        if state["round"] not in {record["round"] for record in recorded} | {0}:
            raise FedscapeError(
                f"{file} is of round {state['round']}, which metrics.jsonl does not have: start the run anew with "
                "another --out"
            )
        return state

    def normalise(self, asked: str, dataset: Dataset) -> str:
        """The rule to normalise by, of a run that may be there already: ``auto`` is then what it was when it began.

        Versions that had no such setting divided floating-point inputs by their own statistics, which is now ``data``.
        """
        self._before = "data" if dataset.as_given else "auto"
        if asked != "auto" or not dataset.as_given or not self._holds_run():
            return asked
        rule = self.config().get("settings", {}).get("normalise", self._before)
        return "data" if rule == "data" else asked

    def executor(self, asked: ExecutorName, device: str) -> ExecutorName:
        """The executor of a run that may be there already: ``auto`` is then the one it began with.

        Versions that had no such setting trained one client after the other.  A run that began with CUDA graphs and
        goes on with another kind of device has none there, and chooses anew.
        """
        if asked != "auto" or not self._holds_run():
            return asked
        recorded = self.config().get("settings", {}).get("executor", "sequential")
        if recorded == "graphs":
            return "graphs" if device == "cuda" else "auto"
        return "batched" if recorded == "batched" else "sequential"

    def _compare(self, config: dict[str, Any], algorithm: Algorithm) -> None:
        earlier = in_todays_terms(self.config(), config["settings"]["weighting"], str(self.path))
        differing = []
        free = set(FREE_ON_RESUME)
        reasons: dict[str, str] = {}
        if needs := _needs_rounds(config):
            free.remove("rounds")
            reasons["rounds"] = f", and the rates of {needs} depend on it"
        for part in ("algorithm", "parts", "settings"):
            old, new = earlier.get(part, {}), config[part]
            if part == "settings":
                old = {
                    **json_ready(Settings().recorded()),
                    "normalise": self._before,
                    **old,
                }  # an earlier version without a setting did what its default does
            if part == "parts":
                old = {
                    name: json_ready(with_later(value["name"], value)) if isinstance(value, dict) else value
                    for name, value in old.items()
                }
            if part == "algorithm" and old.get("name") == new["name"]:
                old = json_ready(algorithm.upgraded(old))
            for name in sorted(old.keys() | new.keys()):
                if old.get(name) != new.get(name) and not (part == "settings" and name in free):
                    differing.append(f"{name} was {old.get(name)} and is {new.get(name)}{reasons.get(name, '')}")
        if differing:
            raise FedscapeError(
                f"{self.path} holds another run ({'; '.join(differing)}): give the same settings to resume it, "
                "or another --out"
            )

    def config(self) -> dict[str, Any]:
        """The contents of ``config.json``.

        Raises:
            FedscapeError: it is missing or damaged.
        """
        return read_config(self.path)

    def metrics(self) -> list[dict[str, Any]]:
        """The objects of ``metrics.jsonl``, without an incomplete last line.

        Raises:
            FedscapeError: a line is damaged, or the rounds do not ascend.
        """
        return read_metrics(self.path)

    def cut_metrics(self, round: int, recorded: Sequence[dict[str, Any]] | None = None) -> None:
        """Drop the records of later rounds, and those of a round that is there twice.

        Args:
            round: the last one that stays.
            recorded: what :meth:`metrics` gives, where it has been read.

        Raises:
            FedscapeError: a line is damaged; the file cannot be written.
        """
        records, repeated = without_repeats(self.metrics() if recorded is None else recorded)
        if repeated:
            notice(
                f"{self.path / 'metrics.jsonl'} had {repeated} rounds twice, as two processes had resumed the run at "
                "once: the last of each is kept"
            )
        kept = [record for record in records if record["round"] <= round]
        write_text(self.path / "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in kept))

    def append(self, record: dict[str, Any]) -> None:
        """Add one round to ``metrics.jsonl``."""
        append_line(self.path / "metrics.jsonl", json.dumps(json_ready(record)))

    def save_partition(self, partition: Partition) -> None:
        """Write ``partition.npz``."""
        partition.save(self.path / "partition.npz")

    def save_weights(self, weights: ClientWeights) -> None:
        """Write ``weights.json``: p_i of the objective and the expected ones in a round's mean, by client."""
        expected = None if weights.expected is None else weights.expected.tolist()
        told = {"objective": weights.objective.tolist(), "expected": expected, "difference": weights.bias}
        write_json(self.path / "weights.json", told)

    def save_test_partition(self, partition: Partition) -> None:
        """Write ``partition_test.npz``."""
        partition.save(self.path / "partition_test.npz")

    def save_round(self, checkpoint: Checkpoint) -> None:
        """Write ``rounds/NNNNN.pt``."""
        checkpoint.save(self.path / "rounds" / f"{checkpoint.round:05d}.pt")

    def save_model(self, checkpoint: Checkpoint) -> None:
        """Write ``ckpt.pt``."""
        checkpoint.save(self.path / "ckpt.pt")

    def save_averaged(self, checkpoint: Checkpoint) -> None:
        """Write ``swa.pt``, the mean of server models."""
        checkpoint.save(self.path / "swa.pt")

    def save_result(self, result: dict[str, Any]) -> None:
        """Write ``result.json``: how the run ended."""
        write_json(self.path / "result.json", result)

    def save_latest(self, checkpoint: Checkpoint, state: dict[str, Any]) -> None:
        """Write ``ckpt.pt`` and ``state.pt``."""
        self.save_model(checkpoint)
        save_torch(self.path / "state.pt", state)


def _needs_rounds(config: dict[str, Any]) -> str:
    """What makes the local rates of a recorded run depend on its number of rounds; empty: nothing."""
    if "swa" in config["parts"]:
        return "--swa"
    return "--lr-schedule cosine" if config["settings"]["lr_schedule"] == "cosine" else ""


def _is_plain(value: Any) -> bool:
    """Whether JSON and a checkpoint that runs no code can hold it."""
    if isinstance(value, (list, tuple)):
        return type(value) in (list, tuple) and all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)
