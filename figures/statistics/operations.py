"""Multiplications of a forward pass, and those that MAN's regulariser adds (Yashwanth et al., WACV 2024, Table 3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from landscape.activations import Recorder, weight_layers
from landscape.errors import FedscapeError
from landscape.name_patterns import matches, matching_names

OTHERS = "others"
"""The row of convolutions and matrix products outside of layers with weights, such as those of attention."""


@dataclass(frozen=True)
class LayerOperations:
    """Multiplications for one image.

    Attributes:
        name: the layer's, or of layers that one activation follows, joined by `` + ``.
        forward: of its convolutions and matrix products; adding a bias multiplies nothing.
        regulariser: of MAN's penalty: one square for each unit of the activation; 0 where it has none.
    """

    name: str
    forward: int
    regulariser: int


@dataclass(frozen=True)
class Operations:
    """Multiplications for one image, by layer, in the order of execution.

    Normalisation, pooling and the non-linearities are not counted, as they are not in the paper.
    """

    layers: tuple[LayerOperations, ...]

    @property
    def forward(self) -> int:
        """Of a forward pass."""
        return sum(layer.forward for layer in self.layers)

    @property
    def regulariser(self) -> int:
        """Of MAN's penalty."""
        return sum(layer.regulariser for layer in self.layers)

    @property
    def share(self) -> float:
        """What the penalty adds, as a share of the forward pass; SAM adds a pass: 1."""
        return self.regulariser / self.forward


def count_operations(model: nn.Module, input_shape: Sequence[int], layers: Sequence[str] | str = ("*",)) -> Operations:
    """Count the multiplications of one image's forward pass.

    Convolutions and matrix products are counted as they run, by :class:`torch.utils.flop_counter.FlopCounterMode` (half
    of its operations: it counts an addition for each multiplication).  It counts no elementwise operation: the squares
    of MAN's penalty are the units of the activations, of those that :class:`landscape.activations.MAN` penalises.

    Args:
        model: it runs in evaluation mode, and has its own mode again afterwards.
        input_shape: of one image, [C, H, W] or what the model takes.
        layers: globs over the layers that the penalty has, as MAN's.

    Raises:
        FedscapeError: no layer matches a pattern, or a layer runs before several activations, so that its operations
            belong to none of them.

    Example:
        >>> import torch
        >>> from figures.statistics import count_operations
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        >>> found = count_operations(net, [3])
        >>> [(layer.forward, layer.regulariser) for layer in found.layers]
        [(12, 4), (8, 0)]
    """
    try:
        like = next(model.parameters())
    except StopIteration:
        raise FedscapeError("the model has no parameters, so that nothing is multiplied: give another") from None
    names = [name or "model" for name in weight_layers(model)]
    flops, units, ran = _forward(model, torch.zeros(1, *input_shape, dtype=like.dtype, device=like.device), layers)
    root = type(model).__name__
    grouped: dict[str, LayerOperations] = {}
    taken: set[str] = set()
    for label, count in units.items():
        base = re.sub(r" \(\d+\)$", "", label)
        members = base.split(" + ")
        if base not in grouped and taken & set(members):
            raise FedscapeError(f"a layer of {base} runs before another activation too: its operations have no one row")
        taken |= set(members)
        before = grouped[base].regulariser if base in grouped else 0
        forward = sum(flops.get(_key(root, name), 0) for name in members) // 2
        grouped[base] = LayerOperations(base, forward, before + count)
    rows = [*grouped.values()]
    rows += [LayerOperations(name, flops.get(_key(root, name), 0) // 2, 0) for name in names if name not in taken]
    rows.sort(key=lambda row: min(ran.get(name, len(ran)) for name in row.name.split(" + ")))
    rest = flops.get("Global", 0) // 2 - sum(row.forward for row in rows)
    return Operations((*rows, LayerOperations(OTHERS, rest, 0)) if rest else tuple(rows))


def _forward(
    model: nn.Module, image: Tensor, layers: Sequence[str] | str
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Operations by module, units by activation, and each layer's place in the order in which they ran."""
    ran: dict[str, int] = {}
    names = {layer: name or "model" for name, layer in weight_layers(model).items()}

    def note(layer: nn.Module, _: tuple[Any, ...]) -> None:
        ran.setdefault(names[layer], len(ran))

    hooks = [layer.register_forward_pre_hook(note) for layer in names]
    mode, counter = model.training, FlopCounterMode(display=False)
    model.eval()
    try:
        with torch.no_grad(), counter, Recorder(model, _units, wanted=lambda name: matches(name, layers)) as seen:
            model(image)
    finally:
        model.train(mode)
        for hook in hooks:
            hook.remove()
    if not seen.layers:
        raise FedscapeError("the model has no activation that MAN could penalise: no layer has a non-linearity")
    matching_names(list(seen.layers), layers, "layer with an activation")
    flops = {name: sum(of.values()) for name, of in counter.get_flop_counts().items()}
    return flops, {name: int(count) for name, count in seen.outputs.items()}, ran


def _units(activation: Tensor) -> Tensor:
    return torch.tensor(activation.numel())


def _key(root: str, name: str) -> str:
    """A module's name in the counter's table."""
    return root if name == "model" else f"{root}.{name}"
