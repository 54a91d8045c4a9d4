"""Where and how the nodes of a command are made: the options that all such commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from figures.graph import Node, Outcome, Place, Store, execute
from landscape.storage.outputs import ForceFlag
from landscape.terminal.stopping import continuing
from trainers.settings import optional


@dataclass(frozen=True)
class Work:
    """Where and how runs and measurements are made; results do not depend on it (but for rounding)."""

    device: str = "auto"
    """auto (CUDA where there is one), cpu, cuda or cuda:N"""
    data_dir: Annotated[Path | None, optional("DIR", "digits need none")] = None
    """folder that holds the data sets' own folders (cifar-10-batches-py, ...)"""
    jobs: int = 1
    """runs and measurements side by side, each in a process of its own; results do not depend on it"""
    ray: Annotated[str | None, optional("ADDRESS", "none")] = None
    """make them as tasks of this Ray cluster; local starts one here"""
    gpus: float = 0.0
    """with --ray: the share of a GPU that each takes, such as 0.25"""
    force: ForceFlag = False
    quiet: bool = False
    """no progress bar"""

    def execute(
        self, nodes: Iterable[Node], store: Store, ended: Callable[[Node, str | None], None] = lambda node, reason: None
    ) -> Outcome:
        """Make nodes so (:func:`figures.graph.execute`); each writes what it says into its log.

        Raises:
            FedscapeError: options that do not go together; there is no Ray.
        """
        place, shown = Place(self.device, self.data_dir, gpus=self.gpus), not self.quiet
        with continuing(f"what was made so far is in {store.folder}: the same command continues"):
            return execute(nodes, store, place, jobs=self.jobs, ray=self.ray, progress=shown, ended=ended)
