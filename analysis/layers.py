"""Layer by layer: activations, Hessian blocks, spectral norms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from analysis.eigen import largest_eigenpairs
from analysis.operators import Hessian, Multiplying, Operator
from landscape import FedscapeError, Landscape

ACTIVATIONS = {
    "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_sigmoid",
    "mish", "prelu", "relu", "relu6", "rrelu", "selu", "sigmoid", "silu", "softplus", "softshrink", "softsign",
    "tanh", "tanhshrink", "threshold",
}  # fmt: skip
"""PyTorch's non-linearities by the names of their functions, which the modules call too."""


@dataclass(frozen=True)
class Activations:
    """Second moments of what flows through the layers, means over all samples, in the order of execution.

    A layer is a module that owns a weight matrix or filters; normalisation layers are none.

    Attributes:
        outputs: E‖a_l‖² of MAN's eq. 17 and 18, (1/n) Σ_i ‖a_l^i‖²/(units of a_l), after each non-linearity.  Named
            after the layers that ran since the one before: ``conv1``, or ``conv2 + downsample.0`` where a shortcut
            joins.  The logits have no non-linearity and do not count.
        inputs: (1/n) Σ_i ‖a_{l−1}^i‖² of what each layer takes in: the right-hand side of MAN's Theorems 2 and 3,
            λ_max(H_{W_l}) ≤ α_l Σ_i ‖a_{l−1}^i‖², for a loss that is a mean over the samples and up to α_l.
    """

    outputs: dict[str, float]
    inputs: dict[str, float]

    @property
    def total(self) -> float:
        """L^act = Σ_l E‖a_l‖², MAN's eq. 16."""
        return sum(self.outputs.values())

    def to_dict(self) -> dict[str, Any]:
        """Numbers by name."""
        return {"outputs": dict(self.outputs), "inputs": dict(self.inputs), "total": self.total}


@dataclass(frozen=True)
class LayerEigenvalues:
    """The largest eigenvalues of each layer's block of the Hessian.

    Attributes:
        layers: the modules' names.
        parameters: coordinates of each, [l].
        values: descending, [l, k]; NaN beyond a layer's number of coordinates.
        bounds: their error bounds, [l, k].
        converged: which are within the wanted tolerance, [l, k].
        hvps: Hessian-vector products spent in all.
    """

    layers: tuple[str, ...]
    parameters: np.ndarray
    values: np.ndarray
    bounds: np.ndarray
    converged: np.ndarray
    hvps: int

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers by name."""
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(self).items()} | {
            "layers": list(self.layers)
        }


@dataclass(frozen=True)
class NormProduct:
    """FedSAM's complexity Q(F(w)) and the norms that make it up.

    Attributes:
        value: Q; infinite where it is beyond float64, then see ``log``.
        log: ln Q.
        layers: the modules' names.
        spectral: ‖W_j‖, [l].
        frobenius: ‖W_j‖_F, [l].
    """

    value: float
    log: float
    layers: tuple[str, ...]
    spectral: np.ndarray
    frobenius: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers by name."""
        lists = {"spectral": self.spectral.tolist(), "frobenius": self.frobenius.tolist()}
        return {"value": self.value, "log": self.log, "layers": list(self.layers), **lists}


class Block(Multiplying):
    """The principal block of a symmetric operator on a range of its coordinates."""

    def __init__(self, operator: Operator, part: slice) -> None:
        self._operator, self._range = operator, range(operator.shape[0])[part]
        self._part = part
        self.products = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(b, b)."""
        return len(self._range), len(self._range)

    @property
    def dtype(self) -> torch.dtype:
        """The operator's type."""
        return self._operator.dtype

    @property
    def device(self) -> torch.device:
        """The operator's device."""
        return self._operator.device

    def matmat(self, vectors: Tensor) -> Tensor:
        """A_bb V for V of shape [b, k] -> [b, k]: zeros elsewhere, one product of the whole, its rows."""
        self.products += vectors.shape[1]
        whole = vectors.new_zeros(self._operator.shape[0], vectors.shape[1])
        whole[self._part] = vectors
        return self._operator.matmat(whole)[self._part]


def activation_norms(landscape: Landscape, w: Tensor | None = None) -> Activations:
    """The activation norms of MAN (Yashwanth et al., WACV 2024, eq. 16 to 18) over all samples, at a point.

    An activation is what a call of one of PyTorch's non-linearities returns, be it by a module (``nn.ReLU``), a
    function (``F.relu(x)``) or a method (``x.relu()``): every model has them at the same places, before any
    pooling.  Which layer it belongs to is told by the order of the calls.

    Args:
        landscape: a model and its samples.
        w: the point, [d]; the landscape's own unless given.

    Raises:
        FedscapeError: a point of another shape.

    Example:
        >>> import torch
        >>> from analysis.layers import activation_norms
        >>> from landscape import Landscape
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
        >>> with torch.no_grad():
        ...     _ = net[0].weight.copy_(torch.eye(2)), net[0].bias.zero_()
        >>> there = Landscape(net, (torch.tensor([[1.0, -1.0]]), torch.tensor([0])), device="cpu")
        >>> activation_norms(there)
        Activations(outputs={'0': 0.5}, inputs={'0': 2.0, '2': 1.0})
    """
    outputs: dict[str, float] = {}
    inputs: dict[str, float] = {}
    module = landscape._flat.module
    with landscape._at(w), torch.no_grad(), ExitStack() as hooks:
        recorder = _Recorder()
        for name, layer in _layers(module).items():
            hooks.enter_context(_hooked(layer, recorder.before(name or "model")))
        for x, _, share in landscape.data.batches(landscape.batch_size, landscape.dtype):
            recorder.begin(len(x))
            with recorder:
                module(x)
            for sums, batch in ((outputs, recorder.outputs), (inputs, recorder.inputs)):
                for name, value in batch.items():
                    sums[name] = sums.get(name, 0.0) + share * value
    return Activations(outputs, inputs)


def layer_eigenvalues(
    landscape: Landscape,
    w: Tensor | None = None,
    top: int = 1,
    *,
    layers: Sequence[str] | None = None,
    tolerance: float = 1e-3,
    max_products: int | None = None,
    seed: int = 0,
) -> LayerEigenvalues:
    """The largest eigenvalues of each layer's Hessian H_{W_l} (MAN, section 3.2.2): the diagonal block of ∇²L.

    A layer is a module that owns parameters; its block spans all of them, biases included.

    Args:
        landscape: the loss.
        w: the point, [d]; the landscape's own unless given.
        top: how many of each.
        layers: the modules' names; all unless given.
        tolerance, max_products, seed: as in :func:`analysis.eigen.largest_eigenpairs`.

    Raises:
        FedscapeError: an unknown layer, no eigenvalue asked for, products that are not finite.
    """
    slices = landscape.space.layers()
    unknown = [name for name in layers or () if name not in slices]
    if unknown:
        raise FedscapeError(f"there is no layer '{unknown[0]}' with parameters: there are {', '.join(slices)}")
    names = tuple(slices if layers is None else layers)
    if top < 1:
        raise FedscapeError(f"{top} eigenvalues are asked for: give at least 1")
    hessian = Hessian(landscape, w)
    values, bounds = np.full((2, len(names), top), np.nan)
    converged = np.zeros((len(names), top), dtype=bool)
    sizes = np.array([slices[name].stop - slices[name].start for name in names], dtype=int)
    for i, name in enumerate(names):
        k = min(top, int(sizes[i]))
        found = largest_eigenpairs(
            Block(hessian, slices[name]), k, tolerance=tolerance, max_products=max_products, seed=seed
        )
        values[i, :k], bounds[i, :k], converged[i, :k] = found.values, found.bounds, found.converged
    return LayerEigenvalues(names, sizes, values, bounds, converged, hessian.products)


def norm_product(landscape: Landscape, w: Tensor | None = None) -> NormProduct:
    """Q(F(w)) = ∏_j ‖W_j‖² Σ_i ‖W_i‖_F²/‖W_i‖², j over the layers (Qu et al., ICML 2022, Theorem 3.5).

    ‖·‖ is the spectral norm, ‖·‖_F Frobenius'; the bound on the risk of FedSAM's model grows as the root of
    A²d²h log(dh) Q(F(w)).  The squares are those of the proof, which perturbs W_j by N(0, λ_j² I) with
    λ_j = λ‖W_j‖/ϵ_W, ϵ_W^d = ∏_j ‖W_j‖: its KL divergence is Σ_j ‖W_j‖_F²/(2λ_j²) ∝ ϵ_W^{2d} Σ_j ‖W_j‖_F²/‖W_j‖².

    The paper does not say what ‖W‖ of a convolution is.  Here filters are the matrix [out, in·k·k] (first axis
    by the rest), as in spectral normalisation (Miyato et al., ICLR 2018): the convolution's own norm as a map of
    images is at most √(k·k) times that, at stride 1.  Every weight matrix counts, frozen ones too and a shared one
    in each layer that has it; biases and normalisation layers do not.

    Args:
        landscape: the model; its samples play no part.
        w: the point, [d]; the landscape's own unless given.

    Raises:
        FedscapeError: no weight matrix, one that is 0 (the theorem wants ‖W_j‖ ≥ ϵ_W/M) or is not finite.
    """
    layers: list[str] = []
    norms: list[tuple[float, float]] = []
    with landscape._at(w):
        for name, layer in _layers(landscape._flat.module).items():
            for matrix in _matrices(layer):
                rows = matrix.detach().double().flatten(1)
                if not rows.isfinite().all() or not rows.any():
                    raise FedscapeError(f"the weights of '{name}' are 0 or not finite: they have no place in Q(F(w))")
                layers.append(name)
                norms.append((torch.linalg.matrix_norm(rows, ord=2).item(), rows.norm().item()))
    if not norms:
        raise FedscapeError("the model has no weight matrix: it has no norm product")
    spectral, frobenius = np.array(norms).T
    log = 2 * np.log(spectral).sum() + np.log(((frobenius / spectral) ** 2).sum())
    with np.errstate(over="ignore"):
        return NormProduct(float(np.exp(log)), float(log), tuple(layers), spectral, frobenius)


class _Recorder(TorchFunctionMode):
    """Watches a forward pass: what layers take in, what non-linearities give, and in which order."""

    def begin(self, samples: int) -> None:
        """Forget the batch before."""
        self.samples = samples
        self.inputs: dict[str, float] = {}
        self.outputs: dict[str, float] = {}
        self._since: list[str] = []

    def before(self, name: str) -> Any:
        """A forward pre-hook that notes the layer called ``name`` and its input."""

        def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if name not in self._since:
                self._since.append(name)
            x = next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)
            if x is not None and x.is_floating_point():
                self.inputs[_fresh(name, self.inputs)] = _square(x) / self.samples

        return note

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "").strip("_") in ACTIVATIONS and isinstance(result, Tensor):
            name = " + ".join(self._since) or next(reversed(self.outputs), "input")
            self.outputs[_fresh(name, self.outputs)] = _square(result) / result.numel()
            self._since = []
        return result


def _square(x: Tensor) -> float:
    return x.double().square().sum().item()


def _fresh(name: str, taken: dict[str, float]) -> str:
    """The name, numbered where it was there before: a layer that runs twice has two activations."""
    label, number = name, 1
    while label in taken:
        number += 1
        label = f"{name} ({number})"
    return label


@contextmanager
def _hooked(layer: nn.Module, hook: Any) -> Iterator[None]:
    handle = layer.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _layers(module: nn.Module) -> dict[str, nn.Module]:
    """The modules that own a weight matrix or filters, by name."""
    return {name: layer for name, layer in module.named_modules() if _matrices(layer)}


def _matrices(layer: nn.Module) -> list[Tensor]:
    if isinstance(layer, nn.LayerNorm):  # the one normalisation whose scale may have several axes
        return []
    return [p for name, p in layer.named_parameters(recurse=False) if p.dim() >= 2 and "bias" not in name]
