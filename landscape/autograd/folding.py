"""Fold BatchNorm in evaluation mode into the layer before it: the same function, fewer passes over activations.

With running statistics μ, σ² BatchNorm is affine, so after a linear map both are one linear map:

    γ (W x + b − μ)/√(σ² + ε) + β  =  (s W) x + (s (b − μ) + β),   s = γ/√(σ² + ε),

exact up to rounding.  It is done where a trace of the module shows that the outputs of a convolution or a dense layer
are used by one BatchNorm and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from landscape.autograd.memory_format import ChannelsLastFallback, same_outputs
from landscape.compute.devices import memory_ran_out

_LINEAR = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Folded(nn.Module):
    """A linear layer and the BatchNorm after it as one layer; both stay unchanged and are read by :meth:`refresh`."""

    def __init__(self, linear: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.channels_last = True
        """whether a filter on the CPU is in that memory format, which is faster; the outputs are then in it too"""
        # In a list, so that their parameters are not registered as this module's.
        self.parts: list[Any] = [linear, norm]
        self._weight = self._bias = torch.empty(0)

    def refresh(self) -> None:
        """Read the present weights and statistics."""
        linear, norm = self.parts
        scale = torch.rsqrt(norm.running_var + norm.eps)
        if norm.weight is not None:
            scale = scale * norm.weight
        shift = -norm.running_mean if linear.bias is None else linear.bias - norm.running_mean
        self._weight = linear.weight * scale.view(-1, *[1] * (linear.weight.dim() - 1))
        if self.channels_last and linear.weight.dim() == 4 and linear.weight.device.type == "cpu":
            self._weight = self._weight.contiguous(memory_format=torch.channels_last)
        self._bias = shift * scale if norm.bias is None else torch.addcmul(norm.bias, shift, scale)

    def forward(self, x: Tensor) -> Tensor:
        """The output of the two layers."""
        linear, norm = self.parts
        if not isinstance(linear, nn.Linear):
            return linear._conv_forward(x, self._weight, self._bias)
        if x.dim() == 2:
            return nn.functional.linear(x, self._weight, self._bias)
        return norm(linear(x))  # the dense layer acts on the last axis, BatchNorm on the second


@dataclass(frozen=True)
class Folding:
    """A module without the folded BatchNorm layers; it shares all other layers with the original."""

    module: nn.Module
    layers: tuple[Folded, ...]

    def refresh(self) -> None:
        """Read the present weights and statistics of the original."""
        for layer in self.layers:
            layer.refresh()


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        # A layer without sub-modules is not traced, because its code may depend on shapes.
        return super().is_leaf_module(m, module_qualified_name) or not any(m.children())


def fold_batchnorm(module: nn.Module, example: Tensor) -> Folding | None:
    """The module with BatchNorm folded; ``None`` if nothing can be folded or the module cannot be traced.

    Args:
        module: in evaluation mode; not changed.
        example: inputs for which both must give the same outputs up to rounding.

    Example:
        >>> import torch
        >>> from landscape.autograd.folding import fold_batchnorm
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).eval()
        >>> folding = fold_batchnorm(net, torch.ones(4, 2))
        >>> folding.refresh()
        >>> len(folding.layers), torch.allclose(folding.module(torch.eye(2)), net(torch.eye(2)))
        (1, True)
    """
    if not any(type(layer) in _NORMS for layer in module.modules()) or _hooked(module):
        return None
    tracer = _Tracer()
    try:
        graph = tracer.trace(module)
    except Exception:  # the user's code may do anything with the proxies of a trace
        return None
    finally:
        vars(tracer).clear()  # it holds itself, and with it the module, until the next garbage collection
    layers = _pairs(module, graph)
    if not layers:
        return None
    for channels_last in (True, False):  # in the other format where a ``view`` or the like needs it
        for layer in layers:
            layer.channels_last = channels_last
        folding = Folding(_with_folded(module, layers), layers)
        if _agree(module, folding, example):
            return folding
    return None


def _pairs(module: nn.Module, graph: fx.Graph) -> tuple[Folded, ...]:
    """The linear layers all of whose results go to one BatchNorm alone, which has no other inputs."""
    named: dict[str, nn.Module] = dict(module.named_modules())
    calls: dict[nn.Module, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            calls.setdefault(named[str(node.target)], []).append(node)
    found: list[Folded] = []
    for norm, uses in calls.items():
        if type(norm) not in _NORMS or not all(_of_one_input(node) for node in uses):
            continue
        inputs = [node.args[0] for node in uses]
        before = [named[str(node.target)] for node in inputs if isinstance(node, fx.Node) and node.op == "call_module"]
        if len(before) == len(inputs) and all(_goes_to(norm, layer, calls[layer], uses) for layer in before):
            found += [Folded(layer, norm) for layer in dict.fromkeys(before)]
    return tuple(found)


def _of_one_input(node: fx.Node) -> bool:
    return len(node.args) == 1 and not node.kwargs


def _goes_to(norm: nn.Module, layer: nn.Module, results: list[fx.Node], uses: list[fx.Node]) -> bool:
    """Whether a layer is linear, and each of its results in a trace the input of one of BatchNorm's uses and of nothing
    else."""
    if type(layer) not in _LINEAR or not _fits(layer, norm):
        return False
    return all(_of_one_input(node) and len(node.users) == 1 and next(iter(node.users)) in uses for node in results)


def _with_folded(module: nn.Module, layers: tuple[Folded, ...]) -> nn.Module:
    """The module with folded layers in the places of the linear ones, and nothing in those of BatchNorm.

    Parts without such layers are the module's own; of the others only the tables of their layers are new.  A module
    that ``torch.fx`` generates would do as well, but PyTorch keeps the code of each of them while the process runs, and
    they hold themselves, so that their filters would stay until the next garbage collection.
    """
    instead: dict[nn.Module, nn.Module] = {}
    for each in layers:
        linear, norm = each.parts
        instead |= {linear: each, norm: nn.Identity()}
    found = _replaced(module, instead)
    hooks = module._forward_pre_hooks.items()
    others = [(key, hook) for key, hook in hooks if not isinstance(hook, ChannelsLastFallback)]
    found._forward_pre_hooks = OrderedDict(others)
    found.register_forward_pre_hook(ChannelsLastFallback())  # one that asks this module which format it needs
    return found


def _replaced(part: nn.Module, instead: dict[nn.Module, nn.Module]) -> nn.Module:
    """A module with others in the places of some of its layers; ``instead`` has them, and takes in what was made."""
    if part not in instead:
        instead[part] = part
        children = {name: child and _replaced(child, instead) for name, child in part._modules.items()}
        if any(child is not part._modules[name] for name, child in children.items()):
            instead[part] = new = type(part).__new__(type(part))
            new.__dict__ = {**part.__dict__, "_modules": children}
    return instead[part]


@torch.no_grad()
def _agree(module: nn.Module, folding: Folding, example: Tensor) -> bool:
    """Whether both give the same outputs: a trace follows only one branch of the code, so they may differ."""
    folding.refresh()
    wanted = module(example.clone())
    try:
        found = folding.module(example.clone())
    except Exception as error:  # the user's code may need another memory format, and raise anything where it has none
        if memory_ran_out(error):
            raise
        return False
    return isinstance(wanted, Tensor) and isinstance(found, Tensor) and same_outputs(wanted, found)


def _fits(linear: Any, norm: Any) -> bool:
    """Whether the layer's outputs are the channels that BatchNorm normalises."""
    kinds = isinstance(norm, nn.BatchNorm1d) or not isinstance(linear, nn.Linear)
    return kinds and norm.running_mean is not None and linear.weight.shape[0] == norm.num_features


def _hooked(module: nn.Module) -> bool:
    """Whether a sub-module has hooks, which must be called as before."""
    return any(part._forward_hooks or (part._forward_pre_hooks and part is not module) for part in module.modules())
