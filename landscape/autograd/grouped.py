"""Chains of convolutions with parameters of their own for each of S models, as grouped convolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from landscape.autograd.dense_chain import in_order
from landscape.autograd.groupnorm import SafeGroupNorm
from landscape.space import ParameterSpace

Layer = Callable[[Tensor, list[Tensor], Iterator[Tensor]], Tensor]
"""(values, the layer's parameters of each model [S, *shape], dropout's noise from this layer on) -> values."""

_BY_NUMBER = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Identity)
_BY_CHANNEL = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)


class GroupedConvolutions:
    """Convolutions and what goes by channels, then Flatten and dense layers, one after the other, with dropout.

    The models' channels lie beside each other, [n, S · channels, height, width], with the channels last in memory: one
    grouped convolution a layer, and pooling by 16 numbers at once.  Twice as fast as ``vmap``, which moves the models'
    axis before and after each convolution.  The backward pass is autograd's.

    Args:
        images: layers before the numbers of a sample are put in a row.
        rows: layers after that.
        places: of the parameters among the space's entries, of each layer.
    """

    def __init__(self, images: list[Layer], rows: list[Layer], places: list[list[int]]) -> None:
        self._images, self._rows, self._places = images, rows, places

    @classmethod
    def of(cls, module: nn.Module, space: ParameterSpace) -> GroupedConvolutions | None:
        """The chain that a module is, or ``None``: none of convolutions, not a sequence of such layers, or with hooks,
        frozen, shared or repeated ones."""
        found = {entry.name: k for k, entry in enumerate(space.entries)}
        images: list[Layer] = []
        rows: list[Layer] = []
        places: list[list[int]] = []
        flat = False
        for name, layer in in_order(module) or []:
            own = [f"{name}.{parameter}" for parameter, _ in layer.named_parameters(recurse=False)]
            made = _in_rows(layer) if flat else _of_images(layer, first=not any(places))
            if type(layer) is nn.Flatten and not flat and (layer.start_dim, layer.end_dim) == (1, -1):
                flat = True
            elif made is None or not set(own) <= found.keys() or (not images and getattr(layer, "inplace", False)):
                return None
            else:
                (rows if flat else images).append(made)
                places.append([found[each] for each in own])
        convolves = any(type(layer) is nn.Conv2d for _, layer in in_order(module) or [])
        used = sum(map(len, places))
        return cls(images, rows, places) if convolves and rows and used == len(found) else None

    def forward(self, parameters: list[Tensor], inputs: Tensor, noise: Sequence[Tensor] = ()) -> Tensor:
        """The outputs [S, classes, n] for inputs [S, n, channels, height, width].

        ``noise`` is of 0 and 1, for each dropout that draws, in order, [S, n, ...].
        """
        models, n = inputs.shape[:2]
        own = [[parameters[place] for place in places] for places in self._places]
        left = iter(noise)
        x = inputs.transpose(0, 1).flatten(1, 2)
        if x.device.type == "cpu":
            x = x.contiguous(memory_format=torch.channels_last)
        for layer, mine in zip(self._images, own, strict=False):
            x = layer(x, mine, left)
        x = x.reshape(n, models, -1).transpose(0, 1)
        for layer, mine in zip(self._rows, own[len(self._images) :], strict=True):
            x = layer(x, mine, left)
        return x.mT


def _of_images(layer: nn.Module, *, first: bool) -> Layer | None:
    if type(layer) is nn.Conv2d and layer.padding_mode == "zeros":
        return partial(_convolved, layer)
    if isinstance(layer, nn.GroupNorm) and type(layer) in (nn.GroupNorm, SafeGroupNorm):
        return partial(_normalised, layer, first)
    if type(layer) in _BY_NUMBER or (type(layer) in _BY_CHANNEL and not getattr(layer, "return_indices", False)):
        return lambda x, own, noise: layer(x)
    if isinstance(layer, nn.Dropout | nn.Dropout2d) and type(layer) in (nn.Dropout, nn.Dropout2d):
        return partial(_images_dropped, layer.p) if 0 < layer.p < 1 else lambda x, own, noise: layer(x)
    return None


def _in_rows(layer: nn.Module) -> Layer | None:
    if type(layer) is nn.Linear:
        return _dense
    if type(layer) is nn.Dropout and 0 < layer.p < 1:
        return partial(_dropped, layer.p)
    return (lambda x, own, noise: layer(x)) if type(layer) in (*_BY_NUMBER, nn.Dropout) else None


def _images_dropped(p: float, x: Tensor, own: list[Tensor], noise: Iterator[Tensor]) -> Tensor:
    # The models' channels beside each other and last in memory, as those of x.
    beside = next(noise).permute(1, 3, 4, 0, 2).flatten(3).permute(0, 3, 1, 2)
    return x * (beside / (1 - p))


def _dropped(p: float, x: Tensor, own: list[Tensor], noise: Iterator[Tensor]) -> Tensor:
    return x * (next(noise) / (1 - p))


def _convolved(layer: nn.Conv2d, x: Tensor, own: list[Tensor], noise: Iterator[Tensor]) -> Tensor:
    models, bias = len(own[0]), own[1].flatten() if len(own) > 1 else None
    weight = own[0].flatten(0, 1)
    if x.device.type == "cpu":
        weight = weight.contiguous(memory_format=torch.channels_last)
    return F.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, models * layer.groups)


def _normalised(layer: nn.GroupNorm, first: bool, x: Tensor, own: list[Tensor], noise: Iterator[Tensor]) -> Tensor:
    models = x.shape[1] // layer.num_channels
    weight, bias = (each.flatten() for each in own) if own else (None, None)
    if first:  # where no slope by x is asked for, PyTorch's backward pass in the channels-last format ends the process
        x = x.clone(memory_format=torch.contiguous_format)  # of 1 × 1 pixels, contiguous() leaves the strides
    return F.group_norm(x, models * layer.num_groups, weight, bias, layer.eps)


def _dense(x: Tensor, own: list[Tensor], noise: Iterator[Tensor]) -> Tensor:
    weight = own[0].mT
    return torch.bmm(x, weight) if len(own) == 1 else torch.baddbmm(own[1][:, None], x, weight)
