"""Accuracy on corrupted test images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from figures.contents.content import Picture, Printings, Product, Results
from figures.graph.nodes import Measure, Node
from figures.plots import BarPanel, Bars, plot_bars
from landscape.terminal.table import Share, Table


@dataclass(frozen=True)
class Corruptions:
    """A group of bars for each corruption, a bar for each model, and their means.

    Attributes:
        models: measurements ``corruptions`` of one model each, by label.
        severity: which of those measured.
        title: of the panel.
    """

    models: Mapping[str, Measure]
    severity: int
    title: str

    def nodes(self) -> Sequence[Node]:
        """All measurements."""
        return list(dict.fromkeys(self.models.values()))

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The picture, and all accuracies."""
        found: dict[str, dict[str, Any]] = {label: results[node] for label, node in self.models.items()}
        first = next(iter(found.values()))
        names, at = list(first["corruptions"]), list(first["severities"]).index(self.severity)
        accuracy = {label: np.array(each["accuracy"])[0, :, at] for label, each in found.items()}
        images = "generated here" if first["generated"] else "the published files"
        caption = f"Severity {self.severity}, {first['samples']:,} test images, {images}; mean: over the corruptions."

        bars = [Bars(label, np.append(each, each.mean())) for label, each in accuracy.items()]
        panel = BarPanel(self.title, [*(name.replace("_", " ") for name in names), "mean"], bars)
        options = {"ylabel": "test accuracy (%)", "percent": True, "apart": 1, "caption": caption}

        rows = [
            (label, name, Share(value))
            for label, each in accuracy.items()
            for name, value in zip([*names, "mean"], np.append(each, each.mean()), strict=True)
        ]
        rows += [(label, "clean", Share(each["clean_accuracy"][0])) for label, each in found.items()]
        numbers = Table(("model", "corruption", "accuracy"), tuple(rows))
        return [Product("", numbers, Picture([panel], plot_bars, options), caption=caption)]
