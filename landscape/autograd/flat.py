"""A module whose parameters are views into one flat vector."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from landscape.autograd.groupnorm import SafeGroupNorm
from landscape.autograd.memory_format import ChannelsLastFallback
from landscape.errors import FedscapeError
from landscape.space import ParameterSpace


class FlatModule:
    """A private copy of a module whose trainable parameters are views of one vector ``buffer`` ([d]).

    It is as fast as a plain module: no functional call, no copy per parameter.  The module
    handed in is never changed.

    Raises:
        FedscapeError: the module cannot be copied.

    Example:
        >>> import torch
        >>> from landscape.autograd.flat import FlatModule
        >>> flat = FlatModule(torch.nn.Linear(2, 1), torch.device("cpu"), torch.float32)
        >>> flat.load(torch.tensor([1.0, 2.0, 3.0]))
        >>> flat.gradient(flat.module(torch.tensor([[10.0, 20.0]])).sum())
        tensor([10., 20.,  1.])
    """

    def __init__(self, module: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        self.module = _copied(module).to(device=device, dtype=dtype)
        for layer in self.module.modules():
            if type(layer) is nn.GroupNorm:
                layer.__class__ = SafeGroupNorm
        if not any(isinstance(hook, ChannelsLastFallback) for hook in self.module._forward_pre_hooks.values()):
            self.module.register_forward_pre_hook(ChannelsLastFallback())
        self.space = ParameterSpace.of(self.module)
        named = dict(self.module.named_parameters())
        self.buffer = self.space.flatten(named)
        self._parameters = [named[entry.name] for entry in self.space.entries]
        self._bind()

    def _bind(self) -> None:
        """Make the parameters views of the buffer."""
        for parameter, view in zip(self._parameters, self.space.unflatten(self.buffer).values(), strict=True):
            parameter.data = view
            parameter.grad = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()  # a pickle has each tensor by itself: the module would stay where it was

    @property
    def names(self) -> dict[str, str]:
        """Every name of a trainable parameter -> its first name, that of its entry; a tied parameter has several."""
        first = {id(parameter): e.name for parameter, e in zip(self._parameters, self.space.entries, strict=True)}
        every = {name: first.get(id(tensor)) for name, tensor in self.module.named_parameters(remove_duplicate=False)}
        return {name: own for name, own in every.items() if own is not None}

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.buffer.device

    @property
    def dtype(self) -> torch.dtype:
        """The parameters' floating-point type."""
        return self.buffer.dtype

    @property
    def recurrent(self) -> bool:
        """Whether the module has recurrent layers, of which cuDNN's have no derivatives in evaluation mode."""
        return any(isinstance(layer, nn.RNNBase) for layer in self.module.modules())

    def load(self, w: Tensor) -> None:
        """Set the parameters to the point ``w`` ([d]).

        Raises:
            FedscapeError: ``w`` has another shape.
        """
        self._check_point(w)
        with torch.no_grad():
            self.buffer.copy_(w)

    def copy(self, w: Tensor) -> nn.Module:
        """A copy of the module at the point ``w`` ([d]); the parameters of this one stay.

        Raises:
            FedscapeError: ``w`` has another shape.
        """
        self._check_point(w)
        other = copy.deepcopy(self.module)
        named = dict(other.named_parameters())
        with torch.no_grad():
            for name, value in self.space.unflatten(w).items():
                named[name].copy_(value)
        return other

    def _check_point(self, w: Tensor) -> None:
        if w.shape != self.buffer.shape:
            raise FedscapeError(f"a point is one vector of {self.space.dimension} parameters, not {tuple(w.shape)}")

    def gradients(
        self, outputs: Tensor, weights: Tensor | None = None, *, create_graph: bool = False, keep: bool = False
    ) -> list[Tensor]:
        """The gradient of ⟨outputs, weights⟩ (of a scalar, without weights) by each parameter tensor.

        Zeros for a parameter that the outputs do not depend on.  The graph is kept if ``keep`` is true.
        """
        if not outputs.requires_grad:
            return [torch.zeros_like(p) for p in self._parameters]
        return _derivatives(
            outputs, self._parameters, weights, create_graph=create_graph, retain_graph=keep or create_graph
        )

    def pushed(self, pulled: list[Tensor], dummy: Tensor, v: Tensor) -> Tensor:
        """J v, from ``pulled`` = Jᵀ dummy computed with ``create_graph``: the gradient of ⟨pulled, v⟩ by ``dummy``."""
        parts = [p.view(e.shape) for p, e in zip(v.split(self.space.sizes), self.space.entries, strict=True)]
        live = [i for i, p in enumerate(pulled) if p.requires_grad]
        if not live:
            return torch.zeros_like(dummy)
        (image,) = _derivatives([pulled[i] for i in live], [dummy], [parts[i] for i in live], retain_graph=True)
        return image

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a scalar as a new vector ``[d]``."""
        return join(self.gradients(loss))

    def products(self, gradients: list[Tensor], v: Tensor, *, keep: bool = False) -> Tensor:
        """H v for each row of ``v`` ([k, d]) -> ``[k, d]``, from gradients computed with ``create_graph``.

        Reverse over reverse: the gradient is differentiated, which is right for every layer with a double backward
        (forward over reverse is wrong, without an error, for some normalisation layers).  The rows share the graph of
        the gradients, which is kept if ``keep`` is true.
        """
        # A gradient without a graph is constant and adds nothing to H v.
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
