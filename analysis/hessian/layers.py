"""Layer by layer: activations, Hessian blocks, spectral norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from analysis.hessian.spectrum.eigen import largest_eigenpairs
from analysis.hessian.spectrum.operators import Hessian
from analysis.hessian.spectrum.refinement import refined, spent
from landscape import FedscapeError, Landscape
from landscape.activations import Recorder, mean_square, weight_layers, weight_matrices
from landscape.several import several
from landscape.storage.display import Shown
from landscape.storage.schema import Agree, Items, Maybe, Number, Record, Table, Text, Truth, printable

_COUNT, _NUMBER = Number(0, 1 << 60, whole=True), Maybe(Number(-1e60, 1e60))
LAYERS_RULE = Agree(
    Record(
        {
            "layers": Items(Text(1000), least=1), "parameters": Items(_COUNT, least=1), "values": Table(_NUMBER),
            "bounds": Table(_NUMBER), "converged": Table(Truth()), "hvps": _COUNT,
            "noise": Items(Number(0, 1e60), least=1),
        }
    ),
    ("layers", "parameters", "values", "bounds", "converged", "noise"),
)  # fmt: skip
"""What a file of :class:`LayerEigenvalues` must hold (:mod:`landscape.storage.schema`)."""


@dataclass(frozen=True, repr=False)
class Activations(Shown):
    """Second moments of the layers' inputs and outputs, means over all samples, in the order of execution.

    A layer is a module that owns a weight matrix or filters; normalisation layers do not count.

    Attributes:
        outputs: E‖a_l‖² of MAN's eq. 17 and 18, (1/n) Σ_i ‖a_l^i‖²/(units of a_l), after each non-linearity.  Named
            after the layers that ran since the one before: ``conv1``, or ``conv2 + downsample.0`` where a shortcut
            joins.  The logits have no non-linearity and do not count.
        inputs: (1/n) Σ_i ‖a_{l−1}^i‖² of each layer's input: the right-hand side of MAN's Theorems 2 and 3,
            λ_max(H_{W_l}) ≤ α_l Σ_i ‖a_{l−1}^i‖², for a loss that is a mean over the samples and up to α_l.
    """

    outputs: dict[str, float]
    inputs: dict[str, float]

    def _facts(self) -> dict[str, str]:
        return {"sum of mean a²": f"{self.total:.4g}", **{name: f"{value:.4g}" for name, value in self.outputs.items()}}

    @property
    def total(self) -> float:
        """L^act = Σ_l E‖a_l‖², MAN's eq. 16."""
        return sum(self.outputs.values())

    def to_dict(self) -> dict[str, Any]:
        """Numbers by name."""
        return {"outputs": dict(self.outputs), "inputs": dict(self.inputs), "total": self.total}


@dataclass(frozen=True, repr=False)
class LayerEigenvalues(Shown):
    """The largest eigenvalues of each layer's block of the Hessian.

    Attributes:
        layers: the modules' names.
        parameters: coordinates of each, [l].
        values: descending, [l, k]; NaN beyond a layer's number of coordinates.
        bounds: their error bounds, [l, k].
        converged: which are within the wanted tolerance, [l, k].
        hvps: Hessian-vector products spent in all.
        noise: of the float32 products with each block, below which eigenvalues are not told from 0, [l]; 0 where it was
            not measured (float64, or nothing refined).
    """

    layers: tuple[str, ...]
    parameters: np.ndarray
    values: np.ndarray
    bounds: np.ndarray
    converged: np.ndarray
    hvps: int
    noise: np.ndarray | None = None

    @classmethod
    def from_dict(cls, numbers: dict[str, Any]) -> LayerEigenvalues:
        """The results that :meth:`to_dict` gave, as a JSON file holds them (``LAYERS_RULE``)."""
        values, bounds = (np.array(numbers[name], dtype=float) for name in ("values", "bounds"))  # null: not-a-number
        return cls(
            tuple(printable(name) for name in numbers["layers"]),
            np.array(numbers["parameters"]),
            values,
            bounds,
            np.array(numbers["converged"]),
            numbers["hvps"],
            np.array(numbers["noise"]),
        )

    def _heading(self) -> str:
        return f"λ_max of the blocks of {len(self.layers)} layers, ± error bound"

    def _facts(self) -> dict[str, str]:
        numbers = zip(self.layers, self.values[:, 0], self.bounds[:, 0], self.converged[:, 0], strict=True)
        return {
            name or "model": f"{value:.4g} ± {bound:.1g}{'' if converged else ' NOT CONVERGED'}"
            for name, value, bound, converged in numbers
        }

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers by name."""
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(self).items()} | {
            "layers": list(self.layers)
        }


@dataclass(frozen=True, repr=False)
class NormProduct(Shown):
    """FedSAM's complexity Q(F(w)) and the norms it is made of.

    Attributes:
        value: Q; infinite where it overflows float64 (see ``log`` then).
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

    def _facts(self) -> dict[str, str]:
        norms = zip(self.layers, self.spectral, self.frobenius, strict=True)
        each = {f"‖{name or 'model'}‖": f"{spectral:.4g}, Frobenius {whole:.4g}" for name, spectral, whole in norms}
        return {"Q": f"{self.value:.4g}", "ln Q": f"{self.log:.4g}", **each}

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers by name."""
        lists = {"spectral": self.spectral.tolist(), "frobenius": self.frobenius.tolist()}
        return {"value": self.value, "log": self.log, "layers": list(self.layers), **lists}


def activation_norms(landscape: Landscape, w: Tensor | None = None) -> Activations:
    """The activation norms of MAN (Yashwanth et al., WACV 2024, eq. 16 to 18) over all samples, at a point.

    They are those of :class:`landscape.activations.Recorder`, and their total is the penalty that
    :class:`landscape.activations.MAN` trains with.

    Args:
        landscape: a model and its samples, or batches with an objective (then a batch counts by its size).
        w: the point, [d]; the landscape's own unless given.

    Raises:
        FedscapeError: a point of another shape.

    Example:
        >>> import torch
        >>> from analysis.hessian.layers import activation_norms
        >>> from landscape import Landscape
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
        >>> with torch.no_grad():
        ...     _ = net[0].weight.copy_(torch.eye(2)), net[0].bias.zero_()
        >>> there = Landscape(net, (torch.tensor([[1.0, -1.0]]), torch.tensor([0])), device="cpu")
        >>> found = activation_norms(there)
        >>> found.outputs, found.inputs
        ({'0': 0.5}, {'0': 2.0, '2': 1.0})
    """
    outputs: dict[str, float] = {}
    inputs: dict[str, float] = {}
    batches = landscape.micro_batches
    with landscape.at(w) as module, torch.no_grad():
        for _, x, _, share in batches.of_all_ranks():
            with Recorder(module, _mean_square, _square) as seen:
                batches.outputs(module, x)
            for name, value in seen.outputs.items():
                outputs[name] = outputs.get(name, 0.0) + share * value.item()
            for name, value in seen.inputs.items():
                inputs[name] = inputs.get(name, 0.0) + value.item() / landscape.samples
    return Activations(outputs, inputs)


def _square(x: Tensor) -> Tensor:
    return x.double().square().sum()


def _mean_square(a: Tensor) -> Tensor:
    return mean_square(a.double())


def layer_eigenvalues(
    landscape: Landscape,
    w: Tensor | None = None,
    top: int = 1,
    *,
    layers: Sequence[str] | str | None = None,
    tolerance: float = 1e-3,
    max_products: int | None = None,
    seed: int = 0,
    refine: bool = True,
) -> LayerEigenvalues:
    """The largest eigenvalues of each layer's Hessian H_{W_l} (MAN, section 3.2.2): the diagonal block of ∇²L.

    A layer is a module that owns parameters; its block spans all of them, biases included.

    Args:
        landscape: the loss.
        w: the point, [d]; the landscape's own unless given.
        top: how many of each.
        layers: the modules' names, or one; all unless given.
        tolerance, max_products, seed: as in :func:`analysis.hessian.spectrum.eigen.largest_eigenpairs`.
        refine: end eigenvalues in float32 with one product each in float64
            (:func:`analysis.hessian.spectrum.refinement.refined`).

    Raises:
        FedscapeError: an unknown layer, no eigenvalue asked for, products that are not finite.
    """
    there = landscape.space.layers()
    names = tuple(there if layers is None else several(layers))
    if unknown := [name for name in names if name not in there]:
        raise FedscapeError(f"there is no layer '{unknown[0]}' with parameters: there are {', '.join(there)}")
    if top < 1:
        raise FedscapeError(f"{top} eigenvalues are asked for: give at least 1")
    values, bounds = np.full((2, len(names), top), np.nan)
    converged, products = np.zeros((len(names), top), dtype=bool), 0
    sizes, noise = np.zeros(len(names), dtype=int), np.zeros(len(names))
    for i, name in enumerate(names):
        block = Hessian(landscape.along([e.name for e in landscape.space.entries if e.layer == name], w))
        sizes[i] = block.shape[0]
        k = min(top, block.shape[0])
        found = largest_eigenpairs(block, k, tolerance=tolerance, max_products=max_products, seed=seed)
        if refine:
            found = refined(block, found, tolerance=tolerance, seed=seed)
        noise[i] = found.refinement.noise if found.refinement else 0.0
        products += spent(block, found)
        values[i, :k], bounds[i, :k], converged[i, :k] = found.values, found.bounds, found.converged
    return LayerEigenvalues(names, sizes, values, bounds, converged, products, noise)


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
        landscape: the model; its samples are not used.
        w: the point, [d]; the landscape's own unless given.

    Raises:
        FedscapeError: no weight matrix, one that is 0 (the theorem wants ‖W_j‖ ≥ ϵ_W/M) or is not finite.
    """
    layers: list[str] = []
    norms: list[tuple[float, float]] = []
    with landscape.at(w) as module:
        for name, layer in weight_layers(module).items():
            for matrix in weight_matrices(layer):
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
