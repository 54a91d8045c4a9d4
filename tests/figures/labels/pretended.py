"""Results of a figure's runs and measurements that nobody trained or measured, drawn from their keys."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from analysis import HessianReport, measure_hessian
from analysis.hessian.spectrum.trace import Trace
from analysis.surface.marked_points import Mark
from figures.contents.content import Results
from figures.graph import Node
from landscape import load_dataset, make_partition
from tests.analysis.hessian.spectrum.spectra import small_landscape
from tests.analysis.surface.plots.test_surface_plots import made, with_test
from trainers.runs import PlannedRun, RecordedRun

SHARES = ("test_accuracy", "swa_test_accuracy", "client_train_accuracy", "client_test_accuracy", "test_mean_iou")
LEVELS = ("test_loss", "train_loss", "drift", "seconds", "seconds_local", "bytes_down", "bytes_up")


def results(nodes: Iterable[Node], folder: Path) -> Results:
    """A result for each; runs without rounds have a partition in the folder."""
    return Results({node: run(node, folder) if isinstance(node, PlannedRun) else measured(node) for node in nodes})


def drawn(node: Node) -> np.random.Generator:
    """Random numbers of a node's own."""
    return np.random.default_rng(int(node.key, 16))


def run(node: PlannedRun, folder: Path) -> RecordedRun:
    """As far as it goes, 30 rounds at most, with every metric."""
    numbers, path = drawn(node), folder / node.name
    metrics = []
    for k in range(1, min(node.settings.rounds, 30) + 1):
        record: dict[str, Any] = {"round": k} | dict(zip(LEVELS, numbers.uniform(1, 2, len(LEVELS)), strict=True))
        for name, value in zip(SHARES, numbers.uniform(0.5, 0.9, len(SHARES)), strict=True):
            record |= {name: value, f"{name}_deviation": value / 10}
        metrics.append(record)
    if not metrics:
        path.mkdir(exist_ok=True)
        targets = load_dataset("digits").train.targets.numpy()
        make_partition(node.settings.partition, targets, node.settings.clients, 0).save(path / "partition.npz")
    config = {**node.content, "settings": {"data_dir": "", **node.content["settings"]}}
    return RecordedRun(path, config, metrics, {"status": "finished"})


@cache
def report() -> HessianReport:
    """One that was measured, of a model of a few parameters."""
    return measure_hessian(small_landscape(), 5, density=True, density_probes=2, density_steps=5)


def measured(node: Any) -> Any:
    """What a measurement of this kind reads."""
    numbers, scale = drawn(node), float(drawn(node).uniform(0.5, 2))
    if node.kind == "hessian":
        one = report()
        eigen = replace(one.eigen, values=scale * np.abs(one.eigen.values), bounds=scale * one.eigen.bounds)
        return replace(one, eigen=eigen, trace=one.trace or Trace(scale, 0.1, 3))
    if node.kind == "surface":
        loss = scale * made().loss
        marks = tuple(Mark(f"model {i}", *at) for i, at in enumerate(((0, 0), (1, 0), (0, 1))))
        three = {"kind": "three", "marks": marks} if len(node.models) == 3 else {}
        surface = made(loss, **three)
        of = replace(surface.provenance, split=node.options.get("split", "train"))
        surface = replace(surface, provenance=of)
        return with_test(surface, loss + 0.1) if node.options.get("test") else surface
    shares = numbers.uniform(0.2, 0.9, (6, 5))
    clients, rounds = [1, 2, 4, 7, 8], [5, 10, 15, 20, 25, 30]
    if node.kind == "client-accuracy":
        return {
            "rounds": rounds,
            "clients": clients,
            "accuracy": shares.tolist(),
            "test_accuracy": shares[:, 0].tolist(),
        }
    if node.kind == "client-eigenvalues":
        each = [
            {"round": k, "clients": clients[i % 3 :], "values": [[9 * v, v] for v in row[i % 3 :]]}
            for i, (k, row) in enumerate(zip(rounds, shares.tolist(), strict=True))
        ]
        return {"measured": each}
    if node.kind == "corruptions":
        given = tuple(node.options.get("severities", (5,)))
        found = numbers.uniform(0.2, 0.9, (1, 3, len(given))).tolist()
        words = ["fog", "gaussian_noise", "contrast"]
        return {
            "corruptions": words, "severities": given, "accuracy": found, "clean_accuracy": [0.95], "generated": True,
            "samples": 100,
        }  # fmt: skip
    return {"loss": scale, "accuracy": shares[0, 0], "mean_iou": shares[0, 1]}
