"""The nodes of the graph: runs, and measurements of models that runs end in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from figures.graph.kinds import KINDS
from landscape.errors import FedscapeError
from landscape.storage.files import json_ready
from trainers.runs.planned import PlannedRun, RunStore

Which = int | Literal["last", "swa", "rounds"]
"""Which model of a run: that after a round, the last one, the mean of SWA, or all that were kept."""


@dataclass(frozen=True)
class RunModel:
    """A model of a run.

    Attributes:
        run: whose.
        which: after which round, ``last``, ``swa``, or all that were kept (``rounds``).
        client: this client's local model in place of the global one.

    Example:
        >>> from figures.graph import RunModel
        >>> from trainers import FedAvg
        >>> from trainers.runs import PlannedRun, RunStore
        >>> RunModel(PlannedRun(FedAvg()), 20, client=3).path(RunStore("runs")).name
        '00020.pt@3'
    """

    run: PlannedRun
    which: Which = "last"
    client: int | None = None

    @property
    def content(self) -> list[Any]:
        """What decides which model it is."""
        return [self.run.key, self.which, self.client]

    def path(self, runs: RunStore) -> Path:
        """The checkpoint, ``FILE@ID`` of a client; the run's directory for all that were kept."""
        folder = runs.path(self.run)
        files = {"last": folder / "ckpt.pt", "swa": folder / "swa.pt", "rounds": folder}
        file = folder / "rounds" / f"{self.which:05d}.pt" if isinstance(self.which, int) else files[self.which]
        return file if self.client is None else file.with_name(f"{file.name}@{self.client}")


@dataclass(frozen=True)
class FileModel:
    """A checkpoint that no run of the graph has made.

    Attributes:
        file: where it lies.
        digest: of its parameters, buffers and data (:meth:`landscape.Checkpoint.digest`).
    """

    file: Path
    digest: str

    @property
    def content(self) -> list[Any]:
        """What decides which model it is."""
        return ["file", self.digest]

    def path(self, runs: RunStore) -> Path:
        """The file."""
        return self.file


Model = RunModel | FileModel


@dataclass(frozen=True, eq=False)
class Measure:
    """A measurement of one model or of several together; equal to another where both have the same :attr:`key`.

    Attributes:
        kind: one of :data:`figures.graph.kinds.KINDS`.
        models: what is measured; the first is the subject.
        options: what decides the result, as the kind's function takes them: numbers, texts, true, false, none or
            sequences of them.

    Raises:
        FedscapeError: a kind that there is not, or no model.

    Example:
        >>> from figures.graph import Measure, RunModel
        >>> from trainers import FedAvg
        >>> from trainers.runs import PlannedRun
        >>> model = RunModel(PlannedRun(FedAvg()))
        >>> Measure("hessian", (model,), {"top": 5}) == Measure("hessian", (model,), {"top": 10})
        False
    """

    kind: str
    models: tuple[Model, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise FedscapeError(f"there is no measurement '{self.kind}': take {', '.join(KINDS)}")
        if not self.models:
            raise FedscapeError(f"the measurement {self.kind} is of no model: give at least one")

    @cached_property
    def content(self) -> dict[str, Any]:
        """What decides the result, as JSON has it."""
        content: dict[str, Any] = json_ready(
            {
                "schema": KINDS[self.kind].schema,
                "kind": self.kind,
                "models": [model.content for model in self.models],
                "options": dict(self.options),
            }
        )
        return content

    @cached_property
    def key(self) -> str:
        """A digest of :attr:`content`, 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """The kind and the digest, as its file is called."""
        return f"{self.kind}-{self.key}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measure) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


Node = PlannedRun | Measure


def runs_of(node: Node) -> list[PlannedRun]:
    """The runs that must be done before a measurement; none for a run."""
    if isinstance(node, PlannedRun):
        return []
    return list(dict.fromkeys(model.run for model in node.models if isinstance(model, RunModel)))


def with_runs(nodes: Iterable[Node]) -> list[Node]:
    """The nodes with the runs they need, each once, every run before what needs it."""
    ordered: dict[Node, None] = {}
    for node in nodes:
        for run in runs_of(node):
            ordered.setdefault(run)
        ordered.setdefault(node)
    return list(ordered)
