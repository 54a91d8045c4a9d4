"""Activations of a model: recorded in a forward pass, differentiable, and MAN's penalty on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from landscape.errors import FedscapeError
from landscape.name_patterns import matches, matching_names
from landscape.several import several

ACTIVATIONS = {
    "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_sigmoid",
    "mish", "prelu", "relu", "relu6", "rrelu", "selu", "sigmoid", "silu", "softplus", "softshrink", "softsign",
    "tanh", "tanhshrink", "threshold",
}  # fmt: skip
"""PyTorch's non-linearities by the names of their functions; the modules call these functions too."""

Statistic = Callable[[Tensor], Tensor]


def mean_square(a: Tensor) -> Tensor:
    """E‖a‖² of MAN's eq. 17 and 18: the mean of a² over the batch and all units, in float32 or higher precision."""
    return a.to(torch.promote_types(a.dtype, torch.float32)).square().mean()


def mean_variance(a: Tensor) -> Tensor:
    """The variance of each unit over the batch, divisor n − 1, mean over the units; in float32 or higher precision.

    Example:
        >>> import torch
        >>> from landscape.activations import mean_variance
        >>> mean_variance(torch.tensor([[1.0, 0.0], [3.0, 0.0]]))  # 2 and 0
        tensor(1.)
    """
    return a.to(torch.promote_types(a.dtype, torch.float32)).var(dim=0).mean()


class Recorder(TorchFunctionMode):
    """Records forward passes: inputs of layers, outputs of non-linearities, in the order of execution.

    A layer is a module that owns a weight matrix or filters, except normalisation layers.  An activation is the result
    of a call of one of PyTorch's non-linearities while some module of the model runs, by a module (``nn.ReLU``), a
    function (``F.relu(x)``) or a method (``x.relu()``), before any pooling.  Its name is that of the layers that ran
    since the previous activation: ``conv1``, or ``conv2 + downsample.0`` where a shortcut joins.  A non-linearity
    before the first layer acts on the input and is not recorded; the logits, which have no non-linearity, are not
    either.  Later executions of a layer are numbered: ``conv1 (2)``.

    Nothing is detached: under autograd (or ``vmap``) the statistics are functions of the parameters.

    Args:
        module: the model; it has hooks while the recorder is entered.
        output: the statistic of each activation to record.
        input: the statistic of each layer's input to record; none unless given.
        wanted: (a layer's name) -> whether to record its activations; those of all layers unless given.

    Attributes:
        outputs: statistic by activation, in the order of execution.
        inputs: statistic by layer.
        layers: all layers with an activation, in the order of execution, wanted or not.

    Example:
        >>> import torch
        >>> from landscape.activations import Recorder, mean_square
        >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 2))
        >>> with Recorder(net, mean_square) as seen:
        ...     _ = net(torch.ones(1, 2))
        >>> list(seen.outputs), seen.outputs["1"].requires_grad
        (['1'], True)
    """

    def __init__(
        self,
        module: nn.Module,
        output: Statistic,
        input: Statistic | None = None,
        wanted: Callable[[str], bool] = lambda name: True,
    ) -> None:
        super().__init__()
        self.outputs: dict[str, Tensor] = {}
        self.inputs: dict[str, Tensor] = {}
        self.layers: dict[str, None] = {}
        self._module, self._output, self._input, self._wanted = module, output, input, wanted
        self._since: list[str] = []
        self._current: list[str] = []
        self._depth = 0
        self._hooks = ExitStack()

    def __enter__(self) -> Recorder:
        names = weight_layers(self._module)
        labels = {layer: name or "model" for name, layer in names.items()}
        for part in self._module.modules():
            before = part.register_forward_pre_hook(self._before(labels.get(part)), with_kwargs=True)
            after = part.register_forward_hook(self._after)
            self._hooks.callback(before.remove)
            self._hooks.callback(after.remove)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._hooks.close()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        # A loss inside the context may call non-linearities too: these act on logits.
        if self._depth and getattr(func, "__name__", "").strip("_") in ACTIVATIONS and isinstance(result, Tensor):
            self._activated(result)
        return result

    def _activated(self, a: Tensor) -> None:
        if self._since:
            self._current, self._since = self._since, []
        if not self._current:
            return
        self.layers |= dict.fromkeys(self._current)
        if any(map(self._wanted, self._current)):
            self.outputs[_unused_name(" + ".join(self._current), self.outputs)] = self._output(a)

    def _before(self, layer: str | None) -> Any:
        def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._depth += 1
            if layer is None:
                return
            if layer not in self._since:
                self._since.append(layer)
            x = next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)
            if self._input is not None and x is not None and x.is_floating_point():
                self.inputs[_unused_name(layer, self.inputs)] = self._input(x)

        return note

    def _after(self, *_: Any) -> None:
        self._depth -= 1


@dataclass(frozen=True)
class MAN:
    """ζ L^act, L^act = Σ_l E‖a_l‖²: a penalty on large activations (Yashwanth et al., WACV 2024, eq. 15 to 18).

    a_l is the activation of layer l after the non-linearity (as defined by :class:`Recorder`), E the mean over the
    batch and all units: the sum is over all convolutions and dense layers, without the logits and the input.

    Args:
        zeta: ζ, 0 or more.
        layers: globs over the layers' names (:func:`landscape.name_patterns.matches`); all layers unless given.
        half: use ζ/2 instead of ζ, as in the paper's published code.
        variance: globs over the names of layers whose activations' variance over the batch (with divisor n − 1), mean
            over the units, is added to L^act; none unless given.  The published code does so with the last hidden layer
            of its network for Tiny-ImageNet, whose third convolution it leaves out: a slip.

    Raises:
        FedscapeError: ζ is negative or not finite.

    Example:
        >>> import torch
        >>> from landscape.activations import MAN
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.ReLU(), torch.nn.Linear(2, 2))
        >>> with torch.no_grad():
        ...     _ = net[0].weight.copy_(torch.eye(2))
        >>> with MAN(0.1).watching(net) as penalty:
        ...     logits = net(torch.tensor([[2.0, -1.0]]))
        >>> penalty()  # 0.1 · (2² + 0²)/2, to be added to the loss
        tensor(0.2000, grad_fn=<MulBackward0>)
    """

    zeta: float
    layers: tuple[str, ...] = ("*",)
    half: bool = False
    variance: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.zeta < math.inf:
            raise FedscapeError(f"MAN's ζ is {self.zeta}: it must be 0 or more")
        for name in ("layers", "variance"):  # one glob may be given alone
            object.__setattr__(self, name, tuple(several(getattr(self, name))))

    @property
    def weight(self) -> float:
        """The factor of L^act."""
        return self.zeta / 2 if self.half else self.zeta

    def __str__(self) -> str:
        where = "" if self.layers == ("*",) else f" of {' '.join(self.layers)}"
        spread = f" with the variance of {' '.join(self.variance)}" if self.variance else ""
        return f"{self.zeta:g}{'/2' if self.half else ''} MAN{where}{spread}"

    @contextmanager
    def watching(self, module: nn.Module) -> Iterator[Callable[[], Tensor]]:
        """Record the module's forward pass; yields a function that returns the penalty on the activations so far.

        Raises:
            FedscapeError: by that function: no activation was recorded, or none in layers that match a pattern.
        """
        with Recorder(module, mean_square, wanted=lambda name: matches(name, self.layers)) as seen:
            if not self.variance:
                yield lambda: self.weight * self._total(seen, self.layers)
                return
            with Recorder(module, mean_variance, wanted=lambda name: matches(name, self.variance)) as spread:
                yield lambda: self.weight * (self._total(seen, self.layers) + self._total(spread, self.variance))

    def _total(self, seen: Recorder, globs: tuple[str, ...]) -> Tensor:
        if not seen.layers:
            raise FedscapeError("the model has no activation that MAN could penalise: no layer has a non-linearity")
        matching_names(list(seen.layers), globs, "layer with an activation")
        return torch.stack(list(seen.outputs.values())).sum()


def weight_layers(module: nn.Module) -> dict[str, nn.Module]:
    """The modules that own a weight matrix or filters, by name."""
    return {name: layer for name, layer in module.named_modules() if weight_matrices(layer)}


def weight_matrices(layer: nn.Module) -> list[Tensor]:
    """A layer's own weight matrices and filters: parameters of two axes or more except biases and scales."""
    if isinstance(layer, nn.LayerNorm):  # the only normalisation whose scale may have several axes
        return []
    return [p for name, p in layer.named_parameters(recurse=False) if p.dim() >= 2 and "bias" not in name]


def _unused_name(name: str, taken: dict[str, Tensor]) -> str:
    """The name, with a number if it is taken: a layer that runs twice has two activations."""
    label, number = name, 1
    while label in taken:
        number += 1
        label = f"{name} ({number})"
    return label
