"""Measurements of checkpoints that lie in files, kept in a store: done ones are read, interrupted ones continue."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import HessianReport, Surface
from analysis.source import Source
from figures.graph import FileModel, Measure, Place, Store
from landscape import Checkpoint, Evaluation


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
        report: HessianReport = self._made("hessian", file, checkpoint, {**recipe, "seed": self.seed})
        return report

    def surface(self, file: str | Path, checkpoint: Checkpoint, **recipe: Any) -> Surface:
        """The loss surface around a checkpoint; ``recipe`` is :func:`analysis.measure_surface`'s arguments."""
        surface: Surface = self._made("surface", file, checkpoint, {**recipe, "seed": self.seed})
        return surface

    def test(self, file: str | Path, checkpoint: Checkpoint) -> Evaluation:
        """Loss and accuracy on the whole test set."""
        whole = {"split": "test", "clients": None, "samples": None}
        return Evaluation(**self._made("evaluation", file, checkpoint, whole))

    def _made(self, kind: str, file: str | Path, checkpoint: Checkpoint, recipe: dict[str, Any]) -> Any:
        """The result, made unless it is there; what does not decide it (device, micro-batches) is not in its key."""
        s = self.source
        place = Place(s.device, s.data_dir, s.batch_size, s.stream)
        content = {name: value for name, value in vars(s).items() if name not in place.options() and value is not None}
        node = Measure(kind, (FileModel(Path(file), checkpoint.digest()),), {**content, **recipe})
        self.store.make(node, place, progress=self.progress)
        return self.store.result(node)
