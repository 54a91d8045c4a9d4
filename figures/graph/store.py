"""Where the results of nodes are kept, and how far each is."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures.graph.kinds import KINDS
from figures.graph.logs import logged
from figures.graph.nodes import Measure, Node
from landscape.errors import FedscapeError
from landscape.storage.files import make_directory, write_json
from landscape.storage.lock import LockedError, sole_writer
from landscape.storage.reading import read_json
from landscape.storage.schema import Anything, Items, Number, Record
from trainers.runs.planned import PlannedRun, RunStore, State, told
from trainers.runs.stored import FAILURE

_DONE = Record({"seconds": Number(0)})
_KEPT = Record({"content": Record({"models": Items(Items(Anything()), least=1), "options": Record({})})})

DIED = "its process died (killed, or out of memory)"
"""The reason of a node whose process told none."""


@dataclass(frozen=True)
class Place:
    """Where nodes are computed, and from where they read: speed, not results (but for rounding).

    Attributes:
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        data_dir: folder that holds the data sets' own folders; that of training for measurements unless given.
        batch_size: samples per micro-batch of measurements; as each chooses unless given.
        stream: whether the samples of a measurement stay in the host's memory; as each chooses unless given.
        gpus: share of a GPU that a task of Ray takes.
    """

    device: str = "auto"
    data_dir: Path | None = None
    batch_size: int | None = None
    stream: bool | None = None
    gpus: float = 0.0

    def options(self) -> dict[str, Any]:
        """What is given of it, as measurements take it."""
        found = {"data_dir": self.data_dir, "batch_size": self.batch_size, "stream": self.stream}
        return {"device": self.device, **{name: value for name, value in found.items() if value is not None}}


@dataclass(frozen=True)
class Store:
    """A folder of runs (``runs``) and measurements (``measurements``), each named by what decides its result.

    A measurement is whole where its record ``KIND-KEY.done.json`` lies beside its file; ``.failed.json`` has the reason
    where the last attempt ended with an error.  ``logs`` has what each said while it was made.

    Attributes:
        folder: created where it is missing.
    """

    folder: Path

    @property
    def runs(self) -> RunStore:
        """The runs."""
        return RunStore(self.folder / "runs")

    def file(self, node: Measure) -> Path:
        """The file of a measurement, whether it is there or not."""
        return self.folder / "measurements" / f"{node.name}.{KINDS[node.kind].suffix}"

    def log(self, node: Node) -> Path:
        """The file with what a node said while it was made, attempt after attempt."""
        return self.folder / "logs" / f"{node.name}.log"

    def state(self, node: Node) -> State:
        """How far a node is."""
        if isinstance(node, PlannedRun):
            return self.runs.state(node)
        if self._record(node, "done").exists():
            return "done"
        if self._record(node, "failed").exists():
            return "failed"
        file = self.file(node)
        return "partial" if file.exists() or Path(f"{file}.state").exists() else "missing"

    def failure(self, node: Node) -> str | None:
        """Why a node failed, if it did."""
        if isinstance(node, PlannedRun):
            return self.runs.failure(node)
        return str(read_json(self._record(node, "failed"), FAILURE)["reason"]) if self.state(node) == "failed" else None

    def seconds(self, node: Node) -> float | None:
        """What a node took, where it is done."""
        if self.state(node) != "done":
            return None
        if isinstance(node, PlannedRun):
            return sum(self.runs.read(node).values("seconds"))
        return float(read_json(self._record(node, "done"), _DONE)["seconds"])

    def result(self, node: Node) -> Any:
        """A run's :class:`trainers.runs.RecordedRun`, or what the measurement's kind reads.

        Raises:
            FedscapeError: it is not done.
        """
        if self.state(node) != "done":
            raise FedscapeError(f"{node.name} has not been made: it is {self.state(node)}")
        return self.runs.read(node) if isinstance(node, PlannedRun) else KINDS[node.kind].read(self.file(node))

    def kept(self, kind: str, models: Sequence[list[Any]]) -> Iterator[tuple[str, dict[str, Any], Any]]:
        """Key, options and result of each measurement of a kind that is kept of one model, by ascending key.

        Args:
            kind: one of :data:`figures.graph.kinds.KINDS`.
            models: the contents (:attr:`RunModel.content`, :attr:`FileModel.content`) that mean the model, which is the
                first of the measured ones.

        Raises:
            FedscapeError: a file is damaged.
        """
        for record in sorted((self.folder / "measurements").glob(f"{kind}-*.done.json")):
            content = read_json(record, _KEPT)["content"]
            if content["models"][0] in models:
                name = record.name.removesuffix(".done.json")
                read = KINDS[kind].read
                yield (
                    name.removeprefix(f"{kind}-"),
                    content["options"],
                    read(record.with_name(f"{name}.{KINDS[kind].suffix}")),
                )

    def make(self, node: Node, place: Place | None = None, *, progress: bool = False) -> None:
        """Make a node unless it is done; what it needs must be done.

        Raises:
            FedscapeError: it cannot be made.
            LockedError: another process is making it.
            Exception: whatever else ended it; the reason is kept.
        """
        place = place or Place()
        if isinstance(node, PlannedRun):
            data_dir = "" if place.data_dir is None else str(place.data_dir)
            self.runs.make(node, device=place.device, data_dir=data_dir, progress=progress)
        elif self.state(node) != "done":
            make_directory(self.file(node).parent)
            with sole_writer(self.folder / "measurements" / node.name):
                if self.state(node) != "done":  # by another process, since
                    self._measure(node, place, progress)

    def remove(self, node: Node) -> None:
        """Delete what is kept of a node, so that it is made anew."""
        if isinstance(node, PlannedRun):
            return self.runs.remove(node)
        for file in self.file(node).parent.glob(f"{node.name}.*"):
            file.unlink()

    def _measure(self, node: Measure, place: Place, progress: bool) -> None:
        start = time.perf_counter()
        self._record(node, "failed").unlink(missing_ok=True)  # of the attempt before
        models, options = [model.path(self.runs) for model in node.models], {**node.options, **place.options()}
        try:
            KINDS[node.kind].make(models, options, self.file(node), progress)
        except Exception as error:
            write_json(self._record(node, "failed"), {"reason": told(error), "content": node.content})
            raise
        record = {"seconds": time.perf_counter() - start, "content": node.content}
        write_json(self._record(node, "done"), record)

    def _record(self, node: Measure, state: str) -> Path:
        return self.folder / "measurements" / f"{node.name}.{state}.json"


@dataclass(frozen=True)
class Unmade:
    """Why a node was not made.

    Attributes:
        reason: in a sentence.
        busy: another process is making it: it has not failed.
    """

    reason: str
    busy: bool = False


def attempt(node: Node, store: Store, place: Place) -> Unmade | None:
    """Make one node; why not, where it was not made.  What it says goes to its log (:meth:`Store.log`).

    Any error is taken for the node's own: it is reported, and the others go on.
    """
    with logged(store.log(node)):
        try:
            store.make(node, place, progress=True)
        except LockedError as error:
            return Unmade(told(error), busy=True)
        except FedscapeError as error:
            print(f"error: {error}")
            return Unmade(told(error))
        except Exception as error:
            traceback.print_exc()
            return Unmade(told(error))
    return None
