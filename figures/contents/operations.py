"""Multiplications of a forward pass and of MAN's penalty, by layer, in the symbols of its Table 3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from figures.contents.content import Printings, Product, Results
from figures.graph.nodes import Node
from figures.statistics.operations import LayerOperations, Operations, count_operations
from landscape.errors import FedscapeError
from landscape.models import build_model
from landscape.terminal.table import Table


@dataclass(frozen=True)
class Symbols:
    """Multiplications of a kind of layer (Yashwanth et al., WACV 2024, Table 3); N_b: images.

    Attributes:
        word: of layers without a name.
        forward: of a forward pass.
        penalty: of MAN's.
    """

    word: str
    forward: str
    penalty: str


CONVOLUTION = Symbols("conv", "N_b·C_o·H_o·W_o·C_i·K²", "N_b·H_o·W_o·C_o")
DENSE = Symbols("fc", "N_b·d_i·d_o", "N_b·d_o")


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
class Counts:
    """Multiplications of one image by network and layer."""

    networks: Mapping[str, Mapping[str, LayerOperations]]


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
        """The table, a block a network.

        Raises:
            FedscapeError: a network in which a convolution and a dense layer have one activation.
        """
        lines: list[tuple[str | float | None, ...]] = []
        counts: dict[str, dict[str, LayerOperations]] = {}
        for title, network in self.networks.items():
            model = build_model(network.name, seed=0, input_shape=network.input_shape, classes=network.classes)
            found = count_operations(model, network.input_shape)
            kinds: Counter[str] = Counter()
            for layer in found.layers:
                symbols = _symbols(model, layer)
                kinds[symbols.word] += 1
                # In nn.Sequential a layer's name is the number of its place.
                name = f"{symbols.word}{kinds[symbols.word]}" if layer.name.isdigit() else layer.name
                penalty = symbols.penalty if layer.regulariser else None
                together = layer.forward + layer.regulariser
                counts.setdefault(title, {})[name] = layer
                lines.append((title, name, symbols.forward, layer.forward, penalty, layer.regulariser, together))
            lines.append((title, "all layers", None, found.forward, None, found.regulariser, _total(found)))
        columns = ("network", "layer", "without MAN", "per image", "MAN adds", "per image, of MAN", "together")
        caption = (
            "Multiplications; N_b images, C channels, H × W places, K × K filters, d units, _i of the input and _o of "
            "the output; per image: N_b = 1. Adding a bias multiplies nothing; normalisation, pooling and "
            "non-linearities are not counted. SAM adds the whole forward pass once more: 100 %. A layer without a "
            "non-linearity has no penalty."
        )
        table = Table(columns, tuple(tuple(_set(cell) for cell in line) for line in lines))
        return [Product("", Table(columns, tuple(lines)), Counts(counts), table, caption)]


def _symbols(model: nn.Module, layer: LayerOperations) -> Symbols:
    kinds = {CONVOLUTION if isinstance(model.get_submodule(name), nn.Conv2d) else DENSE for name in _names(layer)}
    if len(kinds) > 1:
        raise FedscapeError(f"{layer.name} joins convolutions and dense layers: Table 3 has no symbols for that")
    return kinds.pop()


def _names(layer: LayerOperations) -> list[str]:
    return layer.name.split(" + ")


def _total(found: Operations) -> str:
    return f"{found.forward + found.regulariser:,} (+{100 * found.share:.2f} %)"


def _set(cell: str | float | None) -> str | float | None:
    return f"{cell:,}" if isinstance(cell, int) else cell
