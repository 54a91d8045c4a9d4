"""The contract between recipes and what draws them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from matplotlib.figure import Figure

from figures.graph.nodes import Node
from figures.printed import Printed
from landscape.errors import FedscapeError
from landscape.terminal.table import Table

CURVATURE = "loss / parameter²"
"""The unit of eigenvalues of a Hessian."""
Printings = Mapping[tuple[str, str], Printed]
"""The paper's numbers by row and column."""


@dataclass(frozen=True)
class Results:
    """What nodes gave.

    Attributes:
        values: of those that are done.
        failed: the reasons of those that are not.
    """

    values: Mapping[Node, Any]
    failed: Mapping[Node, str] = field(default_factory=dict)

    def __getitem__(self, node: Node) -> Any:
        """The result of a node.

        Raises:
            FedscapeError: it has none.
        """
        if node not in self.values:
            raise FedscapeError(f"{node.name} has no result: {self.failed.get(node, 'it has not been made')}")
        return self.values[node]

    def get(self, node: Node) -> Any:
        """The result of a node; ``None`` where it failed."""
        return self.values.get(node)


@dataclass(frozen=True)
class Picture:
    """What a picture shows, and the function that draws it; :mod:`figures.labels.pictures` labels the same panels.

    Attributes:
        panels: of one kind, one of those of :mod:`figures.plots`.
        plot: draws panels, with the options.
        options: of the drawing: names of axes, scales, caption.
        unit: of the values of panels that may be of anything: curves, bars, sweeps, clients' values.
    """

    panels: Sequence[Any]
    plot: Callable[..., Figure]
    options: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "1"

    def draw(self) -> Figure:
        """The picture, in the style that is set."""
        return self.plot(self.panels, **self.options)


@dataclass(frozen=True)
class Product:
    """One picture or table that is written, with its numbers.

    Attributes:
        name: what tells it from the others of its recipe; empty for the only one.
        numbers: all of them, with all digits.
        shows: a :class:`Picture`, or what a table is made of: cells, or counts of operations.
        table: as it is set in a paper; ``None`` for a picture.
        caption: what is special to it, in sentences.
    """

    name: str
    numbers: Table
    shows: Any
    table: Table | None = None
    caption: str = ""


class Content(Protocol):
    """What a figure or table is made of."""

    def nodes(self) -> Sequence[Node]:
        """The runs and measurements that it needs."""
        ...

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """Its pictures and tables.

        Args:
            results: of its nodes.
            printed: the paper's numbers, to be set beside ours; empty where the scale does not allow it.

        Raises:
            FedscapeError: a node without which it cannot be drawn has no result.
        """
        ...


@dataclass(frozen=True)
class Together:
    """Several contents in one item of a paper.

    Attributes:
        parts: by what is added to their products' names.
    """

    parts: Mapping[str, Content]

    def nodes(self) -> Sequence[Node]:
        """Those of all parts."""
        return [node for part in self.parts.values() for node in part.nodes()]

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """Those of all parts."""
        return [
            replace(product, name="-".join(word for word in (name, product.name) if word))
            for name, part in self.parts.items()
            for product in part.products(results, printed)
        ]
