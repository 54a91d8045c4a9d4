"""A free check of the products: what re-orthogonalisation throws away says whether the matrix is symmetric.

A Hessian is symmetric, and a double backward that is wrong most often multiplies with a matrix that is not.  It need
not: one that lacks a symmetric term passes, and only a comparison with differences of gradients finds it
(:mod:`analysis.hessian.checks.verify`).
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from torch import Tensor

from analysis.hessian.spectrum.operators import Operator, Product, in_float64, precision_of, product_of
from landscape import FedscapeError
from landscape.compute.randomness import torch_generator

ALLOWED = {"float32": 2e-4, "float64": 1e-5, "tf32": 5e-2}
"""Asymmetry that rounding may cause.  Of right products it was up to 2e-8 in float64, 1e-3 in TF32 (emulated) and most
often 0 in float32, but 8e-4 for ResNet-18: what is above is looked at again in float64.  Of ``weight_norm``
along an axis it was 2e-3 to 0.3."""
_CONFIRMED = 1e-7
"""Asymmetry of float64 products that confirms one of float32 or TF32 products: of right ones it was up to 3e-11, of
``weight_norm`` along an axis 1e-5 or more."""
_VECTORS = 3
"""Their pairs: that all of them hide an asymmetry by chance is unlikely."""
_ROUNDINGS = 100.0
"""Couplings shorter than this many roundings of the operator's scale are taken for 0 where a Krylov space ends."""
_SHORT = 1e-3
"""A product shorter than this share of the operator's scale is judged as if it were as long: next to rounding it has no
length of its own."""
_REASONS: dict[Product | None, str] = {
    "autograd": "a layer's double backward is wrong; take differences of gradients (--product fd), which need none",
    "fd": "the gradient jumps within the step (ReLU, max-pooling): there is no Hessian to difference",
    None: "the spectrum of another matrix than a symmetric one is not what is computed here",
}


def asymmetry(components: np.ndarray, coupled: np.ndarray, rest: float, scale: float, epsilon: float) -> float:
    """How far a Lanczos step's product is from that of a symmetric matrix, as a share of its length, beyond rounding.

    The projection has q_mᵀA q_i from the product with the earlier vector q_i; re-orthogonalising A q_m gives q_iᵀA q_m.

    Args:
        components: QᵀA q_m of the basis with q_m as its last vector, [m].
        coupled: q_mᵀA q_i of the earlier vectors, [m − 1].
        rest: ‖(I − QQᵀ) A q_m‖.
        scale: the longest product so far, ‖A‖ or less.
        epsilon: the unit roundoff of the products.
    """
    length = max(math.sqrt(components @ components + rest**2), _SHORT * scale)
    apart = components[:-1] - coupled
    beyond = math.sqrt(apart @ apart) - _ROUNDINGS * epsilon * scale
    return beyond / length if beyond > 0 else 0.0


def confirmed(found: float, operator: Operator, basis: Tensor) -> tuple[float, int]:
    """The asymmetry of float32 or TF32 products, where float64 products bear it out, else that of these.

    A few random vectors x, y, ... in the span of the basis are multiplied in float64: xᵀAy and yᵀAx must agree.

    Args:
        found: the largest :func:`asymmetry` of the products.
        operator: the matrix.
        basis: an orthonormal basis as rows, [m, d].

    Returns:
        The asymmetry, and the products that were spent to know it: none unless it is above what is allowed.
    """
    if found <= ALLOWED[precision_of(operator)] or (precise := in_float64(operator)) is None:
        return found, 0
    draw = torch.randn(_VECTORS, len(basis), generator=torch_generator(0, "symmetry"))
    vectors = (draw.to(basis) @ basis).to(operator.device, torch.float64)
    products = precise.matmat(vectors.T).T
    coupled = vectors @ products.T
    lengths = products.norm(dim=1, keepdim=True) * vectors.norm(dim=1)
    here = float(((coupled - coupled.T).abs() / torch.maximum(lengths, lengths.T)).max())
    return (found if here > _CONFIRMED else here), _VECTORS


def complaint(found: float | None, precision: str, product: Product | None) -> str | None:
    """What is wrong with products of that :func:`asymmetry`, in a sentence; ``None`` where nothing is.

    Args:
        found: the largest one of all products; ``None`` where nobody looked.
        precision: of the arithmetic: ``float32``, ``float64`` or ``tf32``.
        product: how a loss's Hessian was multiplied with; ``None`` for any other matrix.
    """
    if found is None or found <= ALLOWED[precision]:
        return None
    return (
        f"the products are not those of a symmetric matrix: they are off by {found:.0e} of their length, "
        f"where rounding causes {ALLOWED[precision]:.0e} at most: {_REASONS[product]}"
    )


def warn_if_asymmetric(found: float, operator: Operator) -> None:
    """Warn of an operator whose products have an :func:`asymmetry` that rounding does not explain."""
    wrong = complaint(found, precision_of(operator), product_of(operator))
    if wrong:
        warnings.warn(wrong, stacklevel=3)


def require_symmetric(found: float | None, operator: Operator) -> None:
    """Refuse what :func:`warn_if_asymmetric` warns of.

    Raises:
        FedscapeError: the products are not those of a symmetric matrix.
    """
    wrong = complaint(found, precision_of(operator), product_of(operator))
    if wrong:
        raise FedscapeError(wrong)
