"""What a run gives back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from landscape.storage.display import Shown
from landscape.storage.style import PictureStyle, StyleName
from trainers.runs.showing import facts_of, plot_training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trainers.federation.federation import Federation

Status = Literal["finished", "diverged"]


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """Result of a run.

    Attributes:
        path: the run directory; its ``ckpt.pt`` is the last good model, its ``swa.pt`` the averaged one with SWA.
        status: ``finished``, or ``diverged`` if the loss or the model was not finite any more.
        metrics: one record a round, as in ``metrics.jsonl``.
        reason: what was not finite, if the run diverged.
    """

    path: Path
    status: Status
    metrics: list[dict[str, Any]]
    reason: str | None = None

    @property
    def checkpoint(self) -> Path:
        """The latest checkpoint."""
        return self.path / "ckpt.pt"

    def _heading(self) -> str:
        return f"{self.status}: {self.reason}" if self.reason else self.status

    def _facts(self) -> dict[str, str]:
        return {**facts_of(self.metrics), "in": str(self.path)}

    def _picture(self) -> Figure | None:
        return self.plot() if self.metrics else None

    def plot(self, path: str | Path | None = None, style: PictureStyle | StyleName = "screen") -> Figure:
        """Loss and accuracy over the rounds, for the screen or a paper; written to ``path`` where one is given.

        Raises:
            FedscapeError: no round was recorded; the file cannot be written or has a format that Matplotlib does not
                write.
        """
        return plot_training(self.metrics, self.path.resolve().name, path, style)


def divergence(federation: Federation, record: dict[str, Any]) -> str | None:
    """Why the last round makes the run diverged, or ``None``."""
    if not math.isfinite(record["train_loss"]):
        return f"the training loss is {record['train_loss']}"
    return None if federation.finite() else "the server's model is no longer finite"
