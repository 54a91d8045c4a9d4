"""Multiplications of a forward pass and of MAN's penalty, by layer, in the symbols of its Table 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from figures.contents.content import Printings, Product, Results
from figures.graph.nodes import Node
from figures.statistics.operations import LayerOperations, Operations, count_operations
from landscape.models import build_model
from landscape.terminal.table import Table

CONVOLUTION = ("N_b·C_o·H_o·W_o·C_i·K²", "N_b·H_o·W_o·C_o")
DENSE = ("N_b·d_i·d_o", "N_b·d_o")
"""Multiplications of a forward pass and of the penalty (Yashwanth et al., WACV 2024, Table 3); N_b: images."""


@dataclass(frozen=True)
class Network:
    """A network whose multiplications are counted.

    Attributes:
        name: of :data:`landscape.models.MODELS`.
        input_shape: of an image, [C, H, W].
        classes: of its data.
    """

    name: str
    input_shape: tuple[int, int, int]
    classes: int


@dataclass(frozen=True)
class OperationCounts:
    """Multiplications of one image's forward pass, and those that MAN's penalty and SAM add.

    Attributes:
        networks: by title.
    """

    networks: Mapping[str, Network]

    def nodes(self) -> Sequence[Node]:
        """None: nothing is trained."""
        return []

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The table, a block a network."""
        lines: list[tuple[str | float | None, ...]] = []
        for title, network in self.networks.items():
            model = build_model(network.name, seed=0, input_shape=network.input_shape, classes=network.classes)
            found = count_operations(model, network.input_shape)
            lines += [(title, *_line(model, layer)) for layer in found.layers]
            lines.append((title, "all layers", None, found.forward, None, found.regulariser, _total(found)))
        columns = ("network", "layer", "without MAN", "per image", "MAN adds", "per image, of MAN", "together")
        caption = (
            "Multiplications; N_b images, C channels, H × W places, K × K filters, d units, _i of the input and _o of "
            "the output; per image: N_b = 1. Adding a bias multiplies nothing; normalisation, pooling and "
            "non-linearities are not counted. SAM adds the whole forward pass once more: 100 %. A layer without a "
            "non-linearity has no penalty."
        )
        table = Table(columns, tuple(tuple(_set(cell) for cell in line) for line in lines))
        return [Product("", Table(columns, tuple(lines)), None, table, caption)]


def _line(model: nn.Module, layer: LayerOperations) -> tuple[str | float | None, ...]:
    kinds = dict.fromkeys(
        CONVOLUTION if isinstance(model.get_submodule(name), nn.Conv2d) else DENSE for name in layer.name.split(" + ")
    )
    forward, penalty = (" + ".join(symbols) for symbols in zip(*kinds, strict=True))
    with_penalty = layer.regulariser > 0
    together = layer.forward + layer.regulariser
    return layer.name, forward, layer.forward, penalty if with_penalty else None, layer.regulariser, together


def _total(found: Operations) -> str:
    return f"{found.forward + found.regulariser} (+{100 * found.share:.2f} %)"


def _set(cell: str | float | None) -> str | float | None:
    return f"{cell:,}" if isinstance(cell, int) else cell
