"""Measurements of checkpoints that lie in files, kept in a store: done ones are read, interrupted ones continue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import HessianReport, Surface
from analysis.source import Source
from figures.graph import FileModel, Measure, Place, Store
from landscape import Checkpoint, Evaluation

_TEST = {"split": "test", "clients": None, "samples": None}


@dataclass(frozen=True)
class Measurements:
    """Measurements in one store, alike in source and seed.

    Attributes:
        store: where they are kept, by the checkpoint's content and the options.
        source: data, device and arithmetic.
        seed: of every random vector.
        progress: show progress on stderr.
    """

    store: Store
    source: Source
    seed: int = 0
    progress: bool = False

    def hessian(self, file: str | Path, checkpoint: Checkpoint, **recipe: Any) -> HessianReport:
        """The spectrum around a checkpoint; ``recipe`` is :func:`analysis.measure_hessian`'s arguments."""
        report: HessianReport = self.made("hessian", file, checkpoint, recipe)
        return report

    def surface(self, file: str | Path, checkpoint: Checkpoint, **recipe: Any) -> Surface:
        """The loss surface around a checkpoint; ``recipe`` is :func:`analysis.measure_surface`'s arguments."""
        surface: Surface = self.made("surface", file, checkpoint, recipe)
        return surface

    def test(self, file: str | Path, checkpoint: Checkpoint) -> Evaluation:
        """Loss and accuracy on the whole test set."""
        return Evaluation(**self.made("evaluation", file, checkpoint, _TEST))

    def made(self, kind: str, file: str | Path, checkpoint: Checkpoint, recipe: Mapping[str, Any]) -> Any:
        """The result of one of :data:`figures.graph.kinds.KINDS`, made unless it is there."""
        node, place = self._node(kind, file, checkpoint, recipe)
        self.store.make(node, place, progress=self.progress)
        return self.store.result(node)

    def kept(self, kind: str, file: str | Path, checkpoint: Checkpoint, recipe: Mapping[str, Any]) -> bool:
        """Whether a result is there, so that nothing is measured of it."""
        return self.store.state(self._node(kind, file, checkpoint, recipe)[0]) == "done"

    def _node(
        self, kind: str, file: str | Path, checkpoint: Checkpoint, recipe: Mapping[str, Any]
    ) -> tuple[Measure, Place]:
        """What does not decide the result (device, micro-batches) is not in the node's key."""
        s = self.source
        place = Place(s.device, s.data_dir, s.batch_size, s.stream)
        content = {name: value for name, value in vars(s).items() if name not in place.options() and value is not None}
        seed = {} if kind == "evaluation" else {"seed": self.seed}
        return Measure(kind, (FileModel(Path(file), checkpoint.digest()),), {**content, **recipe, **seed}), place
