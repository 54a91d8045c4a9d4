"""A small graph: runs of seconds, measurements of the models they end in, algorithms that fail as real ones do."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from figures.contents.content import Together
from figures.contents.table import Entry, TableOf
from figures.contents.values import accuracy, eigenvalue
from figures.graph import Measure, Node, RunModel, Store
from figures.recipes import Paper
from trainers import Algorithm, FedAvg, FedSAM, Settings
from trainers.runs import PlannedRun

SETTINGS = Settings(rounds=8, clients=4, per_round=2, local_epochs=1, save_every=4)


def planned(algorithm: Algorithm | None = None, **settings) -> PlannedRun:
    """A run of under a second."""
    return PlannedRun(algorithm or FedAvg(), replace(SETTINGS, **settings))


def spectrum(run: PlannedRun, top: int = 1) -> Measure:
    """A measurement of its last model."""
    return Measure("hessian", (RunModel(run),), {"top": top, "samples": 60, "trace": False})


def surface(run: PlannedRun) -> Measure:
    """Another one, which an interrupted measurement continues."""
    return Measure("surface", (RunModel(run),), {"points": 5, "samples": 60, "exact": True, "workers": 1})


FAILING = {"data": "no-such-file.npz"}
"""Settings of a run that cannot be trained."""


@dataclass(frozen=True)
class Killed(Algorithm):
    """The system kills its process in the first step: each time, or only where the marker file is not there yet."""

    paper = "none"
    marker: str = ""

    def direction(self, w, gradient, client, server, round):
        if not self.marker or not Path(self.marker).exists():
            if self.marker:
                Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return gradient(w)


def paper() -> Paper:
    """A paper with a table of runs and one of measurements."""
    made = Paper("small", "nobody, 2026")
    runs = [planned(algorithm, seed=seed) for algorithm in (FedAvg(), FedSAM(0.1)) for seed in (0, 1)]

    @made.recipe("T1", "accuracies and curvatures")
    def t1(order):
        accuracies = {(run.name, "accuracy"): Entry((run,), accuracy()) for run in runs}
        curvatures = {(run.name, "λ1"): Entry((spectrum(run),), eigenvalue()) for run in runs}
        heights = {(run.name, "loss"): Entry((surface(run),), lambda s: float(s.loss.max())) for run in runs[:2]}
        return Together({"runs": TableOf(accuracies), "measures": TableOf(curvatures | heights, digits=9)})

    return made


def results(store: Store, nodes: list[Node]) -> dict[str, object]:
    """What the nodes gave, but for times and package versions."""
    found: dict[str, object] = {}
    for node in nodes:
        if isinstance(node, PlannedRun):
            records = store.result(node).metrics
            found[node.name] = [{k: v for k, v in r.items() if not k.startswith("seconds")} for r in records]
        elif node.kind == "surface":
            found[node.name] = store.result(node).loss.tolist()
        else:
            found[node.name] = json.loads(store.file(node).read_text(encoding="utf-8"))["eigenvalues"]
    return found
