"""How data are divided over clients: heat maps by client and class, and samples by class."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from figures.contents.content import Picture, Printings, Product, Results
from figures.graph.nodes import Node
from figures.plots import CountPanel, HistogramPanel, plot_class_histograms, plot_heat_maps
from figures.statistics import ClassCounts
from landscape.datasets import load_dataset
from landscape.partitions.partition import Partition
from landscape.terminal.table import Table
from trainers.runs.planned import PlannedRun
from trainers.runs.records import RecordedRun


def class_counts(run: RecordedRun) -> ClassCounts:
    """Samples by client and class of a run's partition."""
    settings = run.config["settings"]
    data = load_dataset(settings["data"], settings["data_dir"] or None)
    return ClassCounts.of(Partition.load(run.path / "partition.npz"), data.train.targets.numpy(), data.classes)


@dataclass(frozen=True)
class HeatMaps:
    """Samples by client and class.

    Attributes:
        panels: runs (of no rounds: a run writes its partition first) by title.
    """

    panels: Mapping[str, PlannedRun]

    def nodes(self) -> Sequence[Node]:
        """The runs."""
        return list(self.panels.values())

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The picture, and all counts."""
        found = {title: class_counts(results[run]) for title, run in self.panels.items()}

        panels = [CountPanel(title, each.counts) for title, each in found.items()]

        rows = [
            (title, client, label, int(number))
            for title, each in found.items()
            for client, counts in enumerate(each.counts)
            for label, number in enumerate(counts)
        ]
        numbers = Table(("panel", "client", "class", "samples"), tuple(rows))
        return [Product("", numbers, Picture(panels, plot_heat_maps))]


@dataclass(frozen=True)
class Histograms:
    """Samples of each class that all clients have together, with replacement and without.

    Attributes:
        panels: runs (of no rounds) with and without replacement by title.
    """

    panels: Mapping[str, tuple[PlannedRun, PlannedRun]]

    def nodes(self) -> Sequence[Node]:
        """The runs."""
        return [run for pair in self.panels.values() for run in pair]

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The picture, and all counts."""
        found = {
            title: [class_counts(results[run]).counts.sum(axis=0) for run in pair]
            for title, pair in self.panels.items()
        }

        picture = Picture([HistogramPanel(title, *pair) for title, pair in found.items()], plot_class_histograms)

        rows = [
            (title, label, int(drawn), int(without))
            for title, pair in found.items()
            for label, (drawn, without) in enumerate(zip(*pair, strict=True))
        ]
        columns = ("panel", "class", "samples with replacement", "samples without")
        deviations = {title: f"{pair[0].std():.2f}" for title, pair in found.items()}
        caption = f"Standard deviation over the classes with replacement (divisor C): {json.dumps(deviations)[1:-1]}."
        return [Product("", Table(columns, tuple(rows)), picture, caption=caption.replace('"', ""))]
