"""Runs named by what decides their result: made once, resumed where they were interrupted, shared by whoever wants
them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from landscape.errors import FedscapeError, said_by
from landscape.storage.files import json_ready, make_directory, write_json
from landscape.storage.lock import LockedError, sole_writer
from landscape.storage.reading import read_json
from trainers.algorithm import Algorithm
from trainers.algorithms import algorithm_name
from trainers.parts.parts import Parts
from trainers.runs.later import without_later
from trainers.runs.records import RecordedRun, read_runs
from trainers.runs.run import train
from trainers.runs.stored import FAILURE
from trainers.settings import SPEED, Settings

State = Literal["missing", "partial", "done", "failed"]
"""Of something that is kept: never begun, begun, whole, or ended by an error (which the next attempt tries again)."""

SCHEMA = 1
"""Of the result of a run; raised where the same settings come to mean another computation."""


def content_key(content: dict[str, Any]) -> str:
    """A digest of what decides a result, 16 hexadecimal digits.

    Example:
        >>> from trainers.runs.planned import content_key
        >>> content_key({"rho": 0.1, "seeds": (0,)}) == content_key({"seeds": [0], "rho": 0.1})
        True
    """
    return hashlib.sha256(json.dumps(json_ready(content), sort_keys=True).encode()).hexdigest()[:16]


def with_reals(values: Mapping[str, Any], of: object) -> dict[str, Any]:
    """Values by field, those of real fields as floats: 1 and 1.0 are one value of a rate, and one text in a key.

    Args:
        values: of fields of ``of``, by name.
        of: a dataclass of hyper-parameters, which declares the fields' types.

    Example:
        >>> from trainers import FedSAM
        >>> from trainers.runs.planned import with_reals
        >>> with_reals({"name": "fedsam", "rho": 1}, FedSAM(rho=1))
        {'name': 'fedsam', 'rho': 1.0}
    """
    real = {each.name for each in fields(of) if is_real(each.type)}  # type: ignore[arg-type]
    return {name: _real(value) if name in real else value for name, value in values.items()}


def is_real(declared: Any) -> bool:
    """Whether a field's type has real numbers and no whole ones.

    Args:
        declared: as a dataclass keeps it: a type, or the text of one, whose names need not be imported.

    Example:
        >>> from trainers.runs.planned import is_real
        >>> is_real("float | None"), is_real(tuple[float, ...]), is_real(int), is_real("int | float")
        (True, True, False, False)
    """
    names = _names(declared)
    return "float" in names and "int" not in names


def _names(declared: Any) -> set[str]:
    """Of the types in it; what is annotated to them is none."""
    if isinstance(declared, str):
        plain = declared.removeprefix("Annotated[").partition(",")[0] if declared.startswith("Annotated[") else declared
        return set(re.findall(r"\w+", plain))
    inner = get_args(declared)
    if get_origin(declared) is Annotated:
        return _names(inner[0])
    return set().union(*map(_names, inner)) if inner else {getattr(declared, "__name__", "")}


def _real(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_real, value))
    return float(value) if type(value) is int else value


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """A run that may or may not have been made; equal to another where both have the same :attr:`key`.

    A whole number that was given for a real one is that real number: ``FedSAM(rho=1)`` is ``FedSAM(rho=1.0)``.

    Attributes:
        algorithm, settings, parts: as :func:`trainers.train` takes them; the seed is one of the settings.

    Example:
        >>> from trainers import FedAvg, Settings
        >>> from trainers.runs import PlannedRun
        >>> run = PlannedRun(FedAvg(), Settings(rounds=5))
        >>> run == PlannedRun(FedAvg(), Settings(rounds=5, device="cuda")), run == run.seeded(1)
        (True, False)
    """

    algorithm: Algorithm
    settings: Settings = field(default_factory=Settings)
    parts: Parts = field(default_factory=Parts)

    @cached_property
    def content(self) -> dict[str, Any]:
        """What decides the result: algorithm, parts and settings but for :data:`SPEED`."""
        return self._content(with_reals)

    def _content(self, numbers: Callable[[Mapping[str, Any], object], dict[str, Any]]) -> dict[str, Any]:
        recorded = without_later("settings", numbers(self.settings.recorded(), self.settings))
        settings = {name: value for name, value in recorded.items() if name not in SPEED}
        name = algorithm_name(self.algorithm)
        hyper = numbers(self.algorithm.hyper_parameters(), self.algorithm)
        parts = {
            name: without_later(value["name"], numbers(value, getattr(self.parts, name)))
            if isinstance(value, dict)
            else value
            for name, value in self.parts.recorded().items()
        }
        algorithm = {"name": name, **without_later(name, hyper)}
        return {"schema": SCHEMA, "algorithm": algorithm, "parts": parts, "settings": settings}

    @cached_property
    def key(self) -> str:
        """A digest of :attr:`content`, 16 hexadecimal digits."""
        return content_key(self.content)

    @cached_property
    def name(self) -> str:
        """The algorithm with its parts and the digest, as its folder is called."""
        return self._named(self.key)

    @cached_property
    def earlier_name(self) -> str:
        """The name that it had where keys told 1 from 1.0: most often the same."""
        return self._named(content_key(self._content(lambda values, _: dict(values))))

    def _named(self, key: str) -> str:
        return "-".join([algorithm_name(self.algorithm).replace(":", "."), *self.parts.chosen(), key])

    @property
    def seed(self) -> int:
        """The seed of its settings."""
        return self.settings.seed

    def seeded(self, seed: int) -> PlannedRun:
        """The same run with another seed."""
        return replace(self, settings=replace(self.settings, seed=seed))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlannedRun) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True)
class RunStore:
    """A folder of runs by their content.

    Attributes:
        folder: holds a run directory for each run; created where it is missing.

    Example:
        >>> import tempfile
        >>> from trainers import FedAvg, Settings
        >>> from trainers.runs import PlannedRun, RunStore
        >>> run = PlannedRun(FedAvg(), Settings(rounds=2, clients=4, per_round=2, local_steps=1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = RunStore(folder)
        ...     before, made = store.state(run), store.make(run, device="cpu")
        ...     after, again = store.state(run), store.make(run).metrics == made.metrics  # not trained twice
        >>> before, made.status, after, again
        ('missing', 'finished', 'done', True)
    """

    folder: str | Path

    def path(self, run: PlannedRun) -> Path:
        """The run's directory, whether it is there or not; where there is none, that of its earlier name if it is."""
        path, earlier = Path(self.folder) / run.name, Path(self.folder) / run.earlier_name
        return earlier if earlier.exists() and not path.exists() else path

    def state(self, run: PlannedRun) -> State:
        """How far it is; a run that diverged is done."""
        path = self.path(run)
        if (path / "result.json").exists():  # a run writes it at its very end, and removes it when it goes on
            return "done"
        if (path / "failure.json").exists():
            return "failed"
        return "partial" if (path / "config.json").exists() else "missing"

    def failure(self, run: PlannedRun) -> str | None:
        """Why it failed, if it did."""
        if self.state(run) != "failed":
            return None
        return str(read_json(self.path(run) / "failure.json", FAILURE)["reason"])

    def read(self, run: PlannedRun) -> RecordedRun:
        """What is recorded of a run.

        Raises:
            FedscapeError: it has not been made, or a file of it is damaged.
        """
        return read_runs([self.path(run)])[0]

    def make(self, run: PlannedRun, *, device: str = "auto", data_dir: str = "", progress: bool = False) -> RecordedRun:
        """Train unless it is done, from where it was interrupted; one process at a time.

        Args:
            run: which.
            device: to train on.
            data_dir: folder that holds the data set's own folder.
            progress: show progress on stderr.

        Raises:
            FedscapeError: it cannot be trained; ``failure.json`` keeps the reason.
            LockedError: another process is making it.
        """
        path = self.path(run)
        if self.state(run) == "done":
            return self.read(run)
        with sole_writer(make_directory(path) / "run", f"is making {path}", "take its run when it is there"):
            if self.state(run) == "done":  # by another process, since
                return self.read(run)
            (path / "failure.json").unlink(missing_ok=True)  # of the attempt before
            settings = replace(run.settings, device=device, data_dir=data_dir)
            try:
                train(run.algorithm, settings, run.parts, out=path, resume=True, progress=progress)
            except LockedError:  # somebody trains in it without this store
                raise
            except Exception as error:
                write_json(path / "failure.json", {"reason": told(error), "content": run.content})
                raise
        return self.read(run)

    def remove(self, run: PlannedRun) -> None:
        """Delete what is kept of a run, so that it is made anew."""
        shutil.rmtree(self.path(run), ignore_errors=True)


def told(error: BaseException) -> str:
    """An error in one sentence: our own as it is, another with its kind and the line of the user's own code."""
    return str(error) if isinstance(error, FedscapeError) else said_by(error)
