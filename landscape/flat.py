"""A module whose parameters are views into one flat vector."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from landscape.errors import FedscapeError
from landscape.groupnorm import SafeGroupNorm
from landscape.layout import TakesChannelsLast
from landscape.space import ParameterSpace


class FlatModule:
    """A private copy of a module that reads its trainable parameters from one vector ``buffer`` ([d]).

    Flat arithmetic at a plain module's speed: no functional call, no copy per parameter.  The module
    handed in is never touched.

    Raises:
        FedscapeError: the module cannot be copied.
    """

    def __init__(self, module: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        self.module = _copied(module).to(device=device, dtype=dtype)
        for layer in self.module.modules():
            if type(layer) is nn.GroupNorm:
                layer.__class__ = SafeGroupNorm
        if not any(isinstance(hook, TakesChannelsLast) for hook in self.module._forward_pre_hooks.values()):
            self.module.register_forward_pre_hook(TakesChannelsLast())
        self.space = ParameterSpace.of(self.module)
        named = dict(self.module.named_parameters())
        self.buffer = self.space.flatten(named)
        self._parameters = [named[entry.name] for entry in self.space.entries]
        for parameter, view in zip(self._parameters, self.space.unflatten(self.buffer).values(), strict=True):
            parameter.data = view
            parameter.grad = None

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self.buffer.device

    @property
    def dtype(self) -> torch.dtype:
        """The parameters' floating-point type."""
        return self.buffer.dtype

    def load(self, w: Tensor) -> None:
        """Move the module to the point ``w`` ([d]).

        Raises:
            FedscapeError: it has another shape.
        """
        if w.shape != self.buffer.shape:
            raise FedscapeError(f"a point is one vector of {self.space.dimension} parameters, not {tuple(w.shape)}")
        with torch.no_grad():
            self.buffer.copy_(w)

    def gradients(
        self, outputs: Tensor, weights: Tensor | None = None, *, create_graph: bool = False, keep: bool = False
    ) -> list[Tensor]:
        """The gradient of ⟨outputs, weights⟩ (of a scalar, without weights) by each parameter tensor.

        Zeros where it does not depend on one; the graph lives on where ``keep`` is true.
        """
        if not outputs.requires_grad:
            return [torch.zeros_like(p) for p in self._parameters]
        return _derivatives(
            outputs, self._parameters, weights, create_graph=create_graph, retain_graph=keep or create_graph
        )

    def pushed(self, pulled: list[Tensor], dummy: Tensor, v: Tensor) -> Tensor:
        """J v, from ``pulled`` = Jᵀ dummy made with ``create_graph``: the derivative of ⟨pulled, v⟩ by ``dummy``."""
        parts = [p.view(e.shape) for p, e in zip(v.split(self.space.sizes), self.space.entries, strict=True)]
        live = [i for i, p in enumerate(pulled) if p.requires_grad]
        if not live:
            return torch.zeros_like(dummy)
        (image,) = _derivatives([pulled[i] for i in live], [dummy], [parts[i] for i in live], retain_graph=True)
        return image

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a scalar as a fresh vector ``[d]``."""
        return join(self.gradients(loss))

    def products(self, gradients: list[Tensor], v: Tensor, *, keep: bool = False) -> Tensor:
        """H v for each row of ``v`` ([k, d]) -> ``[k, d]``, from gradients made with ``create_graph``.

        Reverse over reverse: differentiate the gradient, which is right on every layer that has a double
        backward (forward-over-reverse compositions are silently wrong on some normalisation layers).  The
        rows share the gradients' graph, which lives on where ``keep`` is true.
        """
        # A gradient without a graph is constant: it adds nothing to H v.
        live = [i for i, g in enumerate(gradients) if g.requires_grad]
        if not live or not len(v):
            return torch.zeros_like(v)
        found = torch.empty_like(v)
        for k, row in enumerate(v):
            parts = [p.view(e.shape) for p, e in zip(row.split(self.space.sizes), self.space.entries, strict=True)]
            products = _derivatives(
                [gradients[i] for i in live],
                self._parameters,
                [parts[i] for i in live],
                retain_graph=keep or k < len(v) - 1,
            )
            found[k] = join(products)
        return found


def _derivatives(outputs: Any, inputs: Sequence[Tensor], weights: Any, **options: bool) -> list[Tensor]:
    """``torch.autograd.grad``, zeros where nothing depends on an input: PyTorch 2.6's own zeros require a gradient."""
    found = torch.autograd.grad(outputs, inputs, weights, allow_unused=True, **options)
    return [torch.zeros_like(x) if slope is None else slope for x, slope in zip(inputs, found, strict=True)]


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except RuntimeError as error:
        if "deepcopy protocol" not in str(error):
            raise
        raise FedscapeError(
            "the model holds a computed tensor and cannot be copied: in place of torch.nn.utils.weight_norm (or "
            "spectral_norm) give that of torch.nn.utils.parametrizations, and keep no results of a forward pass"
        ) from error


def join(tensors: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    """Tensors by parameter -> one vector [d]."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
