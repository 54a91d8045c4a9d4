"""Hessian-vector products by differences of gradients, for models whose double backward is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from analysis.hessian.spectrum.eigen import Eigenpairs, StepComparison
from analysis.hessian.spectrum.operators import OnLandscape, Operator, Product, Shifted
from landscape import FedscapeError, Landscape
from landscape.compute.regions import unit

_SHORTER = 4
"""The step is compared with another one that is shorter by this factor."""
_ALLOWED = 1e-4
"""A difference between the steps' eigenvalues above this share is no rounding (at a loss of 1e-7 it was up to 1e-6)."""


class GradientDifferences(OnLandscape):
    """∇²L by central differences of float64 gradients: H v ≈ (∇L(w + tv) − ∇L(w − tv))/2t.

    It needs the gradient alone, and so is right for layers whose double backward is wrong.  A product costs two
    gradients of the whole data set, in float64.

    The step is t‖v‖ = ½ (ε (1 + ‖w‖))^⅓ with ε = 2⁻⁵², as central differences want it: for ‖v‖ = 1 the series cut off
    costs t²/6 ‖∇⁴L[v, v, v]‖, and rounding, of w among others, about ε (1 + ‖w‖)/t; their sum is least where t is of
    the order of the cube root (Nocedal & Wright, Numerical Optimization, 2006, section 8.1).

    Where the gradient jumps within the step (ReLU, max-pooling), the difference has a part of the jump, divided by t:
    it is no second derivative then, and another step gives another matrix (:func:`compared_steps`).

    Args:
        landscape: the loss, in any type; it is taken in float64.
        w: the point, [d]; the landscape's own unless given.
        shorter: the factor by which t is shorter than that.
    """

    product: Product | None = "fd"

    def __init__(self, landscape: Landscape, w: Tensor | None = None, *, shorter: float = 1.0) -> None:
        super().__init__(landscape if landscape.precision == "float64" else landscape.to("float64"))
        self._w = self.landscape.weights if w is None else w.to(self.landscape.weights)
        self._step = (torch.finfo(torch.float64).eps * (1 + float(self._w.norm()))) ** (1 / 3) / 2 / shorter

    def matmat(self, vectors: Tensor) -> Tensor:
        """H V for V of shape [d, k] -> [d, k]."""
        self.products += vectors.shape[1]
        with unit("product", self.device, self.precision):
            return torch.stack([self._multiply(v) for v in vectors.T], dim=1)

    def with_shorter_steps(self) -> GradientDifferences:
        """The same matrix by a step a quarter as long."""
        return GradientDifferences(self.landscape, self._w, shorter=_SHORTER)

    def _multiply(self, v: Tensor) -> Tensor:
        length = float(v.norm())
        if not length:
            return torch.zeros_like(v)
        t = self._step / length
        return (self.landscape.gradient(self._w + t * v) - self.landscape.gradient(self._w - t * v)) / (2 * t)


def compared_steps(operator: Operator, eigen: Eigenpairs, *, tolerance: float = 1e-3) -> Eigenpairs:
    """Eigenvalues of differences, judged by a step a quarter as long: one more product for each eigenvector.

    Values stay as they are.  Residuals are no less than ‖A′v − λv‖ and bounds no less than |vᵀA′v − λ|, with A′ of the
    shorter step: where gradients jump, the two matrices differ, and neither is the Hessian.

    Args:
        operator: of :class:`GradientDifferences`, also with a weight decay; any other matrix has no step.
        eigen: as :func:`analysis.hessian.spectrum.eigen.extreme_eigenpairs` gave them.
        tolerance: the relative error wanted; ``converged`` is judged anew.

    Returns:
        ``eigen`` itself if the operator has no step.
    """
    other = _with_shorter_steps(operator)
    if other is None or eigen.vectors is None:
        return eigen
    apart, residuals = np.empty_like(eigen.values), eigen.residuals.copy()
    for i, row in enumerate(eigen.vectors):
        v = row.to(operator.device)
        rest = other.matmat(v[:, None])[:, 0] - float(eigen.values[i]) * v
        apart[i], residuals[i] = abs(float(v @ rest)), max(residuals[i], float(rest.norm()))
    bounds = np.maximum(eigen.bounds, apart)
    converged = eigen.converged & (apart <= tolerance * np.abs(eigen.values))
    difference = float(apart.max() / (np.abs(eigen.values).max() or 1.0))
    steps = StepComparison(len(apart), difference)
    return replace(eigen, residuals=residuals, bounds=bounds, converged=converged, steps=steps)


def disagreement(steps: StepComparison | None) -> str | None:
    """What is wrong where eigenvalues depend on the step of the differences; ``None`` where nothing is."""
    if steps is None or steps.difference <= _ALLOWED:
        return None
    return (
        f"a step a quarter as long moves the eigenvalues by {steps.difference:.1e} of the largest, rounding by "
        f"{_ALLOWED:.0e} at most: the gradient jumps within the step (ReLU, max-pooling); give --product autograd"
    )


def require_agreement(steps: StepComparison | None) -> None:
    """Refuse eigenvalues that depend on the step of the differences.

    Raises:
        FedscapeError: they do.
    """
    wrong = disagreement(steps)
    if wrong:
        raise FedscapeError(wrong)


def _with_shorter_steps(operator: Operator) -> Operator | None:
    if isinstance(operator, Shifted):
        inner = _with_shorter_steps(operator.operator)
        return None if inner is None else Shifted(inner, operator.shift)
    return operator.with_shorter_steps() if isinstance(operator, GradientDifferences) else None
