"""Clients over the rounds: the global model on each one's data, and λ_max of each at its own model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from figures.contents.content import CURVATURE, Picture, Printings, Product, Results
from figures.graph.nodes import Measure, Node
from figures.plots import (
    ClientPanel,
    ClientValues,
    Curve,
    ScatterPanel,
    plot_client_lines,
    plot_client_values,
)
from landscape.terminal.table import Share, Table


@dataclass(frozen=True)
class ClientAccuracy:
    """Accuracy of the global model on each client's data over the rounds, a line a client, with the test accuracy.

    Attributes:
        panels: measurements ``client-accuracy`` by title.
    """

    panels: Mapping[str, Measure]

    def nodes(self) -> Sequence[Node]:
        """All measurements."""
        return list(dict.fromkeys(self.panels.values()))

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The picture, and all accuracies."""
        found: dict[str, dict[str, Any]] = {title: results[node] for title, node in self.panels.items()}

        panels = [
            ClientPanel(
                title,
                np.array(each["rounds"]),
                np.array(each["accuracy"]).T,
                [Curve("all clients' test data", np.array(each["rounds"]), np.array(each["test_accuracy"]))],
                np.array(each["clients"]),
            )
            for title, each in found.items()
        ]
        options = {"ylabel": "accuracy of the global model (%)", "percent": True}

        rows: list[tuple[str | float | None, ...]] = []
        for title, each in found.items():
            for i, number in enumerate(each["rounds"]):
                rows.append((title, number, "test", Share(each["test_accuracy"][i])))
                rows += [
                    (title, number, str(c), Share(a)) for c, a in zip(each["clients"], each["accuracy"][i], strict=True)
                ]
        caption = "Thin lines: accuracy of the global model on one client's training data; bold: on all test data."
        numbers = Table(("panel", "round", "client", "accuracy"), tuple(rows))
        return [Product("", numbers, Picture(panels, plot_client_lines, options), caption=caption)]


@dataclass(frozen=True)
class ClientEigenvalues:
    """λ_max of each client's Hessian at its own model, on its own data, over the rounds.

    Attributes:
        panels: measurements ``client-eigenvalues`` by panel and label.
        beside: measurements ``hessian`` of the global model after rounds, by panel: bold curves.
        kind: ``points``, or a ``band`` over the clients of a round.
    """

    panels: Mapping[str, Mapping[str, Measure]]
    beside: Mapping[str, Mapping[int, Measure]] = field(default_factory=dict)
    kind: Literal["points", "band"] = "points"

    def nodes(self) -> Sequence[Node]:
        """All measurements."""
        mine = [node for values in self.panels.values() for node in values.values()]
        return list(dict.fromkeys([*mine, *(node for curve in self.beside.values() for node in curve.values())]))

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The picture, and all eigenvalues."""
        rows: list[tuple[str | float | None, ...]] = []
        panels = []
        for title, values in self.panels.items():
            drawn = []
            for label, node in values.items():
                points = [
                    (each["round"], client, float(eigenvalues[0]))
                    for each in results[node]["measured"]
                    for client, eigenvalues in zip(each["clients"], each["values"], strict=True)
                ]
                rows += [(title, label, number, str(client), value) for number, client, value in points]
                x, y = np.array([p[0] for p in points], dtype=float), np.array([p[2] for p in points])
                drawn.append(ClientValues(label, x, y, np.array([client for _, client, _ in points])))
            curve = {
                number: float(results[node].eigen.values[0]) for number, node in self.beside.get(title, {}).items()
            }
            rows += [(title, "global model", number, None, value) for number, value in sorted(curve.items())]
            bold = []
            if curve:
                ordered = sorted(curve)
                bold = [Curve("global model, all data", np.array(ordered), np.array([curve[n] for n in ordered]))]
            panels.append(ScatterPanel(title, drawn, bold))

        options = {"ylabel": "λ_max of the client's Hessian", "kind": self.kind}
        picture = Picture(panels, plot_client_values, options, CURVATURE)
        columns = ("panel", "label", "round", "client", "largest eigenvalue")
        caption = (
            "Each sampled client's λ_max at the model in which its local work of the round ended, on its own data."
        )
        return [Product("", Table(columns, tuple(rows)), picture, caption=caption)]
