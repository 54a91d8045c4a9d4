"""The command ``python -m trainers partition``: show how a data set is divided over clients."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from landscape.datasets import load_dataset
from landscape.partitions.partition import Partition, is_labels, partition_dataset
from landscape.partitions.statistics import PartitionStatistics, partition_statistics
from landscape.storage.files import write_json
from landscape.storage.outputs import ForceFlag, Output, check_outputs, pictures
from landscape.storage.style import PictureStyle
from landscape.terminal.command import read
from landscape.terminal.table import Table
from trainers.settings import optional

PROGRAM = "python -m trainers partition"
CONFIG = (tyro.conf.OmitArgPrefixes,)


@dataclass(frozen=True)
class Command:
    """Show how partitions divide a data set over clients, without training.

    size: samples a client; deviation: their standard deviation as a share of the mean; classes: those a client has;
    distance: ½ Σ |q − p| between a client's label ratios and those of the data; class totals ±: standard deviation
    of the samples of each class that all clients have together; used: share of the samples that some client has.
    """

    partition: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SPEC [SPEC ...]")] = ("dirichlet:0.1",)
    """one or several, to compare: iid, dirichlet:ALPHA, dirichlet-hsu:ALPHA, pathological:CLASSES, pam[:ALPHA:BETA],
    natural, fl-simulator:ALPHA, and +replacement, +sizes:DEVIATION (as a training run's --partition)"""
    data: str = "digits"
    """data set, as a training run's --data"""
    data_dir: str = ""
    """folder that holds the data set's own folder"""
    clients: int = 20
    """N, number of clients"""
    seed: int = 0
    """the same seed gives a training run the same partition"""
    out: Annotated[Path | None, optional("FILE", "none")] = None
    """picture: heat map, samples by class, sizes and classes of the clients, a row a partition"""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """write the statistics there, with each client's size"""
    force: ForceFlag = False
    style: PictureStyle = field(default_factory=PictureStyle)

    def outputs(self) -> list[Output]:
        """All files that the command writes."""
        found = [] if self.out is None else pictures("--out", self.out, paper=self.style.paper)
        if self.json is not None:
            found.append(Output("--json", self.json, "json", ("data", "clients", "seed", "partitions")))
        return found


def statistics_table(measured: Sequence[tuple[str, PartitionStatistics]]) -> Table:
    """A table with one row for each partition."""
    columns = (
        "partition", "clients", "size", "min", "max", "deviation", "classes", "fewest", "most",
        "distance", "farthest", "class totals ±", "used",
    )  # fmt: skip

    def row(name: str, s: PartitionStatistics) -> tuple[str | float | None, ...]:
        return (
            name, s.clients, s.size_mean, s.size_min, s.size_max, s.size_variation, s.classes_mean, s.classes_min,
            s.classes_max, s.distance_mean, s.distance_max, s.class_deviation, s.used / s.samples,
        )  # fmt: skip

    return Table(columns, tuple(row(name, statistics) for name, statistics in measured))


def main(arguments: Sequence[str] | None = None) -> int:
    """Divide the data, print the statistics, and write them and a picture if asked for."""
    given = sys.argv[1:] if arguments is None else arguments
    command = read(Command, PROGRAM, given, CONFIG)
    check_outputs(command.outputs(), force=command.force)
    dataset = load_dataset(command.data, command.data_dir or None)
    targets = dataset.train.targets.numpy()
    partitions = {
        spec: partition_dataset(spec, dataset, command.clients, command.seed)
        for spec in dict.fromkeys(command.partition)
    }
    measured = [(spec, partition_statistics(p, targets, dataset.classes)) for spec, p in partitions.items()]
    print(statistics_table(measured))
    if command.json is not None:
        recipe = {"data": command.data, "clients": command.clients, "seed": command.seed}
        rows = [
            {"partition": spec, **statistics.to_dict(), "sizes": partitions[spec].sizes.tolist()}
            for spec, statistics in measured
        ]
        write_json(command.json, {**recipe, "partitions": rows})
        print(f"statistics: {command.json}")
    if command.out is not None:
        _draw(command, partitions, targets, dataset.classes)
        print(f"picture: {command.out}")
    return 0


def _draw(command: Command, partitions: dict[str, Partition], targets: np.ndarray, classes: int) -> None:
    from landscape.storage.pictures import draw_picture
    from trainers.plots.partitions import plot_partitions

    labelled = is_labels(targets)
    counts = [p.label_counts(targets, classes) if labelled else p.sizes[:, None] for p in partitions.values()]
    available = np.bincount(targets, minlength=classes) if labelled else np.empty(0)
    titles = [f"{spec}: {command.data}, {len(p)} clients" for spec, p in partitions.items()]
    draw_picture(lambda: plot_partitions(titles, counts, available), command.out, command.style, dpi=120)
