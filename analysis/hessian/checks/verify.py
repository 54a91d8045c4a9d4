"""A self-check of Hessian-vector products that works on any model."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from analysis.hessian.checks.differences import GradientDifferences
from analysis.hessian.spectrum.operators import Hessian
from landscape import FedscapeError, Landscape
from landscape.compute.randomness import torch_generator

_ALLOWED = {"float32": 5e-3, "float64": 1e-4, "tf32": 5e-2}
"""Errors that rounding may cause: TF32 rounds each factor by up to 5e-4, in all layers and three passes.  A wrong
double backward lacks a term of the product, which is most often as large as the product itself."""


@dataclass(frozen=True)
class Verification:
    """Relative errors of the products H u, H v for random unit vectors u and v.

    Attributes:
        symmetry: |uᵀHv − vᵀHu| relative to the mean of ‖Hu‖ and ‖Hv‖.
        linearity: ‖H(2u − 3v) − 2Hu + 3Hv‖ relative to ‖Hu‖ + ‖Hv‖.
        finite_difference: ‖Hv − (∇L(w + tv) − ∇L(w − tv))/2t‖ relative to the latter, in float64
            (:class:`analysis.hessian.checks.differences.GradientDifferences`).
        allowed: the largest error allowed: 5e-3 in float32 arithmetic, 1e-4 in float64, 5e-2 in TF32.
    """

    symmetry: float
    linearity: float
    finite_difference: float
    allowed: float

    @property
    def passed(self) -> bool:
        """Whether every error is within what is allowed (a not-a-number is not)."""
        return all(error <= self.allowed for error in (self.symmetry, self.linearity, self.finite_difference))

    def __str__(self) -> str:
        return (
            f"self-check of the Hessian-vector products: symmetry {self.symmetry:.1e}, linearity {self.linearity:.1e}, "
            f"float64 finite difference {self.finite_difference:.1e} (relative errors, allowed {self.allowed:.0e})"
        )

    def require(self) -> None:
        """Refuse to continue where the check failed.

        Raises:
            FedscapeError: it did.
        """
        if not self.passed:
            raise FedscapeError(
                f"{self}: the products are wrong or the loss is not smooth here; "
                "give --dtype float64, or --product fd where a layer's double backward is wrong"
            )


def verify(landscape: Landscape, seed: int = 0, graph_memory: int | str | None = None) -> Verification:
    """Check symmetry, linearity and, against float64 central differences of the gradient, the products themselves.

    Costs three products and two float64 gradients over the whole data set.  ``graph_memory`` is as in
    :meth:`landscape.Landscape.hessian`.
    """
    d = landscape.dimension
    generator = torch_generator(seed, "verify")
    draws = torch.randn(2, d, generator=generator, dtype=torch.float64)
    u, v = torch.nn.functional.normalize(draws, dim=1)
    hessian = Hessian(landscape, graph_memory=graph_memory)
    block = torch.stack([u, v, 2 * u - 3 * v], dim=1).to(landscape.device, landscape.dtype)
    hu, hv, combined = hessian.matmat(block).double().unbind(dim=1)
    u, v = u.to(hu), v.to(hv)
    length = float((hu.norm() + hv.norm()) / 2) or 1.0
    difference = GradientDifferences(landscape) @ v
    return Verification(
        symmetry=float((u @ hv - v @ hu).abs()) / length,
        linearity=float((combined - 2 * hu + 3 * hv).norm()) / (2 * length),
        finite_difference=float((hv - difference).norm()) / (float(difference.norm()) or 1.0),
        allowed=_ALLOWED[landscape.precision],
    )
