"""Chains of dense layers with parameters of their own for each of S models, with a backward pass written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor, nn

from landscape.space import ParameterSpace

_aten = torch.ops.aten


@dataclass(frozen=True)
class Pointwise:
    """A non-linearity whose derivative follows from its value.

    Attributes:
        value: a = φ(z), elementwise.
        overwrite: the same, in the memory of z.
        backward: (slope by a, a) -> slope by z.
    """

    value: Callable[[Tensor], Tensor]
    overwrite: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Dense:
    """x -> x Wᵀ + b; places of W and b among the space's entries, ``bias`` -1 without b."""

    weight: int
    bias: int


@dataclass(frozen=True)
class Dropped:
    """x -> x m/(1 − p) with noise m of 0 and 1; without noise, for p = 1, x -> 0 x."""

    p: float

    @property
    def draws(self) -> bool:
        """Whether it takes noise."""
        return self.p < 1


Layer = Dense | Pointwise | Dropped

_POINTWISE: dict[type[nn.Module], Pointwise] = {
    nn.ReLU: Pointwise(torch.relu, torch.relu_, lambda slope, a: _aten.threshold_backward(slope, a, 0)),
    nn.Tanh: Pointwise(torch.tanh, torch.tanh_, lambda slope, a: _aten.tanh_backward(slope, a)),
    nn.Sigmoid: Pointwise(torch.sigmoid, torch.sigmoid_, lambda slope, a: _aten.sigmoid_backward(slope, a)),
}


@dataclass(frozen=True)
class Run:
    """What the slopes of a forward pass need.

    Attributes:
        parameters: of each model, views of their vectors: weights as [S, inputs, outputs].
        before: the inputs of each dense layer, [S, n, inputs], the values of each non-linearity, and what dropout
            multiplies by.
    """

    parameters: list[Tensor]
    before: list[Tensor]


class DenseChain:
    """Flatten, dense layers, dropout and non-linearities, one after the other.

    The slopes are those of autograd (d L/d W = gᵀ x, d L/d x = g W), one batched product each.  The last dense layer is
    computed as W xᵀ, which takes a third of the time of x Wᵀ for ten classes.

    Args:
        space: the parameters.
        layers: in order.
    """

    def __init__(self, space: ParameterSpace, layers: list[Layer]) -> None:
        self._space, self._layers = space, layers
        dense = [k for k, layer in enumerate(layers) if isinstance(layer, Dense)]
        self._first, self._last = dense[0], dense[-1]
        # What a dense layer returns is needed by nobody else.
        self._over = [k > 0 and isinstance(layers[k - 1], Dense) for k in range(len(layers))]
        self._views = lru_cache(maxsize=128)(partial(_planned, space, layers, self._last))

    @classmethod
    def of(cls, module: nn.Module, space: ParameterSpace) -> DenseChain | None:
        """The chain that a module is, or ``None``: not a sequence of such layers, or with hooks, frozen, shared or
        repeated ones."""
        places = {entry.name: k for k, entry in enumerate(space.entries)}
        found: list[Layer] = []
        for name, layer in in_order(module) or []:
            if type(layer) is nn.Linear:
                own = [f"{name}.{parameter}".lstrip(".") for parameter, _ in layer.named_parameters(recurse=False)]
                if not set(own) <= places.keys():
                    return None
                found.append(Dense(places[own[0]], places[own[1]] if len(own) > 1 else -1))
            elif type(layer) in _POINTWISE:
                found.append(_POINTWISE[type(layer)])
            elif type(layer) is nn.Dropout and (found or not layer.inplace):
                found += [Dropped(layer.p)] if layer.p else []
            elif not _only_shapes(layer):
                return None
        used = sum((each.bias >= 0) + 1 for each in found if isinstance(each, Dense))
        return cls(space, found) if found and used == len(places) else None

    def forward(self, w: Tensor, inputs: Tensor, noise: Sequence[Tensor] = ()) -> tuple[Tensor, Run]:
        """The outputs [S, classes, n] of models w [S, d] on inputs [S, n, ...], and what their slopes need.

        ``noise`` is of 0 and 1, for each dropout that draws, in order, [S, n, ...].
        """
        self._space.check(w)
        w = w if w.stride(-1) == 1 else w.contiguous()
        parameters = [torch.as_strided(w, *view) for view in self._views(len(w), w.stride(0), w.storage_offset())]
        x, before, left_noise = inputs.flatten(2), [], iter(noise)
        for k, layer in enumerate(self._layers):
            if isinstance(layer, Dropped):
                scale = next(left_noise).flatten(2) / (1 - layer.p) if layer.draws else torch.zeros_like(x)
                scale = scale.mT if layer.draws and k > self._last else scale  # there samples are the last axis
                x = x * scale
                before.append(scale)
                continue
            if isinstance(layer, Pointwise):
                x = layer.overwrite(x) if self._over[k] else layer.value(x)
                before.append(x)  # its value, from which its derivative follows
                continue
            before.append(x)
            weight = parameters[layer.weight]
            left, right = (weight.mT, x.mT) if k == self._last else (x, weight)
            x = torch.bmm(left, right) if layer.bias < 0 else torch.baddbmm(parameters[layer.bias], left, right)
        return x, Run(parameters, before)

    def slopes(self, run: Run, slope: Tensor) -> Tensor:
        """The gradients [S, d] from the slopes by the outputs, [S, classes, n]."""
        found, transposed = list(run.parameters), True
        for k in range(len(self._layers) - 1, self._first - 1, -1):
            layer, x = self._layers[k], run.before[k]
            if isinstance(layer, Dropped):
                slope = slope * x
                continue
            if isinstance(layer, Pointwise):
                slope = layer.backward(slope, x)
                continue
            found[layer.weight] = torch.bmm(slope if transposed else slope.mT, x).flatten(1)
            if layer.bias >= 0:
                found[layer.bias] = slope.sum(dim=2 if transposed else 1)
            if k > self._first:
                slope = torch.bmm(slope.mT if transposed else slope, run.parameters[layer.weight].mT)
            transposed = False
        return torch.cat(found, dim=1)


View = tuple[tuple[int, ...], tuple[int, ...], int]
"""Size, strides and place of a tensor in another's storage."""


def _planned(
    space: ParameterSpace, layers: Sequence[Layer], last: int, models: int, stride: int, start: int
) -> list[View]:
    """Where each parameter of the models lies in their vectors: Wᵀ, and b as rows, or as a column of the last layer."""
    found: list[View] = [((), (), 0)] * len(space.entries)
    for k, layer in enumerate(layers):
        if not isinstance(layer, Dense):
            continue
        weight = space.entries[layer.weight]
        out, width = weight.shape
        found[layer.weight] = (models, width, out), (stride, 1, width), start + weight.start
        if layer.bias >= 0:
            size = (models, out, 1) if k == last else (models, 1, out)
            found[layer.bias] = size, (stride, 1, 1), start + space.entries[layer.bias].start
    return found


def in_order(module: nn.Module) -> list[tuple[str, nn.Module]] | None:
    """The layers of a sequence with their names, or ``None``: another module, or with hooks or repeated layers.

    Example:
        >>> import torch
        >>> from landscape.autograd.dense_chain import in_order
        >>> in_order(torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Sequential(torch.nn.ReLU())))
        [('0', Linear(in_features=1, out_features=1, bias=True)), ('1.0', ReLU())]
    """
    if type(module) not in (nn.Sequential, nn.Linear):
        return None
    every = list(module.named_modules(remove_duplicate=False))
    hooked = any(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks for _, layer in every)
    if hooked or len(every) != len(list(module.modules())):
        return None
    return [(name, layer) for name, layer in every if type(layer) is not nn.Sequential]


def _only_shapes(layer: nn.Module) -> bool:
    """Whether a layer passes on all numbers of a sample as they are, in a row."""
    flattens = isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1)
    return flattens or type(layer) is nn.Identity
