"""A cache of measurements: finished ones are read from files, interrupted ones continue."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import HessianReport, Surface, measure_hessian, measure_surface
from analysis.source import Source
from landscape import Checkpoint, Evaluation, Landscape
from landscape.storage.files import make_directory, write_json
from landscape.version import versions


@dataclass(frozen=True)
class Cache:
    """A folder of measurements; each file is named by a digest of the checkpoint and of the options.

    Args:
        folder: created where it is missing.
        source: data, device and arithmetic of every measurement.
        seed: of every random vector.
        progress: show progress on stderr.
    """

    folder: Path
    source: Source
    seed: int = 0
    progress: bool = False

    def hessian(self, checkpoint: Checkpoint, **recipe: Any) -> HessianReport:
        """The spectrum around a checkpoint; ``recipe`` is :func:`analysis.measure_hessian`'s arguments."""
        file = self._file("hessian", checkpoint, recipe, "json")
        if file.exists():
            return HessianReport.from_dict(json.loads(file.read_text(encoding="utf-8")))
        report = measure_hessian(checkpoint, **recipe, **vars(self.source), seed=self.seed, progress=self.progress)
        write_json(file, report.to_dict())
        return report

    def surface(self, checkpoint: Checkpoint, points: int, span: float) -> Surface:
        """The loss surface around a checkpoint in a random, filter-normalised plane."""
        file = self._file("surface", checkpoint, {"points": points, "span": span}, "h5")
        return measure_surface(
            checkpoint, points, span, self.seed, file, **vars(self.source), exact=True, progress=self.progress
        )

    def test(self, checkpoint: Checkpoint) -> Evaluation:
        """Loss and accuracy on the whole test set."""
        options = {**vars(self.source), "split": "test", "clients": None, "samples": None}
        return Landscape.from_checkpoint(checkpoint, **options).evaluate()

    def _file(self, kind: str, checkpoint: Checkpoint, recipe: dict[str, Any], suffix: str) -> Path:
        content = [kind, checkpoint.digest(), recipe, vars(self.source), self.seed, versions()]
        key = hashlib.sha256(json.dumps(content, default=str, sort_keys=True).encode()).hexdigest()[:16]
        return make_directory(self.folder) / f"{kind}-{key}.{suffix}"
