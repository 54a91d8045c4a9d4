"""Chains of dense layers with parameters of their own for each of S models, with a backward pass written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from landscape.space import ParameterSpace

_aten = torch.ops.aten


@dataclass(frozen=True)
class Pointwise:
    """A non-linearity whose derivative follows from its value.

    Attributes:
        value: a = φ(z), elementwise.
        backward: (slope by a, a) -> slope by z.
    """

    value: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Dense:
    """x -> x Wᵀ + b; places of W and b among the space's entries, ``bias`` -1 without b."""

    weight: int
    bias: int


_POINTWISE: dict[type[nn.Module], Pointwise] = {
    nn.ReLU: Pointwise(torch.relu, lambda slope, a: _aten.threshold_backward(slope, a, 0)),
    nn.Tanh: Pointwise(torch.tanh, lambda slope, a: _aten.tanh_backward(slope, a)),
    nn.Sigmoid: Pointwise(torch.sigmoid, lambda slope, a: _aten.sigmoid_backward(slope, a)),
}


class DenseChain:
    """Flatten, dense layers and non-linearities, one after the other.

    The slopes are those of autograd (d L/d W = gᵀ x, d L/d x = g W), one batched product each, written into one tensor.

    Args:
        space: the parameters.
        layers: in order.
    """

    def __init__(self, space: ParameterSpace, layers: list[Dense | Pointwise]) -> None:
        self._space, self._layers = space, layers
        self._first = next(k for k, layer in enumerate(layers) if isinstance(layer, Dense))

    @classmethod
    def of(cls, module: nn.Module, space: ParameterSpace) -> DenseChain | None:
        """The chain that a module is, or ``None``: not a sequence of such layers, or with hooks, frozen, shared or
        repeated ones."""
        if type(module) not in (nn.Sequential, nn.Linear):
            return None
        places = {entry.name: k for k, entry in enumerate(space.entries)}
        found: list[Dense | Pointwise] = []
        for name, layer in module.named_modules():
            if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks:
                return None
            if type(layer) is nn.Linear:
                own = [f"{name}.{parameter}".lstrip(".") for parameter, _ in layer.named_parameters(recurse=False)]
                if not set(own) <= places.keys():
                    return None
                found.append(Dense(places[own[0]], places[own[1]] if len(own) > 1 else -1))
            elif type(layer) in _POINTWISE:
                found.append(_POINTWISE[type(layer)])
            elif not _only_shapes(layer):
                return None
        every = sum(1 for _ in module.named_modules(remove_duplicate=False))
        used = sum((each.bias >= 0) + 1 for each in found if isinstance(each, Dense))
        whole = every == sum(1 for _ in module.modules()) and used == len(places)
        return cls(space, found) if whole and found else None

    def parameters(self, w: Tensor) -> list[Tensor]:
        """The parameters of each model by tensor, [S, *shape]: views of w [S, d]."""
        return list(self._space.unflatten(w).values())

    def forward(self, parameters: list[Tensor], x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The outputs [S, n, classes] for inputs [S, n, ...], and the values before each layer, for the slopes."""
        x, before = x.flatten(2), []
        for layer in self._layers:
            if isinstance(layer, Pointwise):
                x = layer.value(x)
                before.append(x)  # its value, from which its derivative follows
                continue
            before.append(x)
            weight = parameters[layer.weight].mT
            x = torch.bmm(x, weight) if layer.bias < 0 else torch.baddbmm(parameters[layer.bias][:, None], x, weight)
        return x, before

    def slopes(self, parameters: list[Tensor], before: list[Tensor], slope: Tensor) -> Tensor:
        """The gradients [S, d] from the slopes by the outputs, [S, n, classes]."""
        found = parameters[0].new_empty(len(slope), self._space.dimension)
        own, first = self.parameters(found), self._first
        for k in range(len(self._layers) - 1, first - 1, -1):
            layer = self._layers[k]
            if isinstance(layer, Pointwise):
                slope = layer.backward(slope, before[k])
                continue
            own[layer.weight].copy_(torch.bmm(slope.mT, before[k]))
            if layer.bias >= 0:
                torch.sum(slope, dim=1, out=own[layer.bias])
            if k > first:
                slope = torch.bmm(slope, parameters[layer.weight])
        return found


def _only_shapes(layer: nn.Module) -> bool:
    """Whether a layer passes on all numbers of a sample as they are, in a row."""
    flattens = isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1)
    return flattens or type(layer) in (nn.Sequential, nn.Identity)
