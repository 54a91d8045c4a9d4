"""Linear operators: every spectral method here works on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import numpy as np
import scipy
import torch
from torch import Tensor

from landscape import Landscape
from landscape.compute.memory import release_freed_memory
from landscape.compute.regions import unit

Product = Literal["autograd", "fd"]
"""How a loss's Hessian is multiplied with: by a double backward, or by differences of gradients."""

Report = Callable[[int, float | None], None]
"""Called to report progress, with the products spent so far, and the relative error reached where it is known."""


class Operator(Protocol):
    """A symmetric d×d matrix that is given by its products.

    ``products`` counts the vectors it was multiplied with: for a Hessian, the HVPs spent.
    """

    products: int

    @property
    def shape(self) -> tuple[int, int]:
        """(d, d)."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The type of vectors and products."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of vectors and products."""
        ...

    def matmat(self, vectors: Tensor) -> Tensor:
        """A V for V of shape [d, k] -> [d, k]."""
        ...


class Multiplying:
    """``A @ v`` for every class that has ``matmat``."""

    product: Product | None = None
    """How a loss's Hessian is multiplied with; ``None`` for what is no derivative."""

    @property
    def precision(self: Operator) -> str:
        """The arithmetic by name: ``float32``, ``float64`` or ``tf32``."""
        return str(self.dtype).removeprefix("torch.")

    def in_float64(self) -> Operator | None:
        """The same matrix in float64, where it is of a landscape in float32 or TF32; else ``None``."""
        return None

    def __matmul__(self: Operator, vectors: Tensor) -> Tensor:
        """A v for one vector [d] or several [d, k]."""
        return self.matmat(vectors[:, None])[:, 0] if vectors.dim() == 1 else self.matmat(vectors)


class OnLandscape(Multiplying):
    """A matrix of a landscape: its dimension, type and device are the landscape's."""

    def __init__(self, landscape: Landscape) -> None:
        self.landscape = landscape
        self.products = 0

    @property
    def precision(self) -> str:
        """The landscape's."""
        return self.landscape.precision

    @property
    def shape(self) -> tuple[int, int]:
        """(d, d)."""
        return self.landscape.dimension, self.landscape.dimension

    @property
    def dtype(self) -> torch.dtype:
        """The landscape's type."""
        return self.landscape.dtype

    @property
    def device(self) -> torch.device:
        """The landscape's device."""
        return self.landscape.device


class _Differentiated(OnLandscape):
    """A matrix of a landscape at one point; ``multiply`` maps stacked vectors [k, d] to their products."""

    product: Product | None = "autograd"

    def __init__(
        self,
        landscape: Landscape,
        multiply: Callable[[Tensor], Tensor],
        precise: Callable[[Landscape, Tensor], Callable[[Tensor], Tensor]],
        w: Tensor | None,
    ) -> None:
        super().__init__(landscape)
        self._multiply = multiply
        self._precise, self._w = precise, w

    def in_float64(self) -> Operator | None:
        """The same matrix at the same point in float64, without graphs kept; ``None`` if it is in float64 itself."""
        if self.landscape.precision == "float64":
            return None
        release_freed_memory()
        other = self.landscape.to("float64")
        w = self.landscape.weights if self._w is None else self._w
        multiply = self._precise(other, w.to(other.weights))
        return _Differentiated(other, multiply, self._precise, w)

    def matmat(self, vectors: Tensor) -> Tensor:
        """A V for V of shape [d, k] -> [d, k]; the vectors share each micro-batch's graph."""
        self.products += vectors.shape[1]
        with unit("product", self.device, self.precision):
            return self._multiply(vectors.T).T


class Hessian(_Differentiated):
    """∇²L at a point of a landscape (its own point unless given), exact over the whole data set.

    ``graph_memory``: as in :meth:`landscape.Landscape.hessian`.

    Example:
        >>> import torch
        >>> from analysis import Hessian
        >>> from landscape import Landscape
        >>> line = torch.nn.Linear(2, 1, bias=False)
        >>> bowl = Landscape(line, (torch.eye(2), torch.ones(2, 1)), torch.nn.functional.mse_loss, device="cpu")
        >>> Hessian(bowl) @ torch.tensor([1.0, 0.0])
        tensor([1., 0.])
    """

    def __init__(self, landscape: Landscape, w: Tensor | None = None, *, graph_memory: int | str | None = None) -> None:
        products = landscape.hessian(w, graph_memory=graph_memory)
        super().__init__(landscape, products, lambda other, point: other.hessian(point, graph_memory=0), w)


class GaussNewton(_Differentiated):
    """The generalised Gauss-Newton matrix (1/n) Σ J_iᵀ ∇²ℓ_i J_i: positive semi-definite for convex losses."""

    def __init__(self, landscape: Landscape, w: Tensor | None = None) -> None:
        super().__init__(landscape, landscape.gauss_newton(w), lambda other, point: other.gauss_newton(point), w)


class Fisher(_Differentiated):
    """The Fisher matrix: ``empirical`` (1/n) Σ ∇ℓ_i ∇ℓ_iᵀ with the true labels, or ``mc`` with labels drawn
    from the model, one a sample."""

    def __init__(
        self,
        landscape: Landscape,
        w: Tensor | None = None,
        *,
        kind: Literal["empirical", "mc"] = "empirical",
        seed: int = 0,
    ) -> None:
        products = landscape.gauss_newton(w, kind, seed=seed)
        super().__init__(landscape, products, lambda other, point: other.gauss_newton(point, kind, seed=seed), w)


class Shifted(Multiplying):
    """A + c I: with A the loss's Hessian and c a weight decay, the Hessian of L + (c/2)‖w‖²."""

    def __init__(self, operator: Operator, shift: float) -> None:
        self.operator, self.shift = operator, shift
        self.products = 0
        self.product = product_of(operator)

    @property
    def precision(self) -> str:
        """The operator's."""
        return precision_of(self.operator)

    def in_float64(self) -> Operator | None:
        """The same sum in float64."""
        inner = in_float64(self.operator)
        return None if inner is None else Shifted(inner, self.shift)

    @property
    def shape(self) -> tuple[int, int]:
        """(d, d)."""
        return self.operator.shape

    @property
    def dtype(self) -> torch.dtype:
        """The operator's type."""
        return self.operator.dtype

    @property
    def device(self) -> torch.device:
        """The operator's device."""
        return self.operator.device

    def matmat(self, vectors: Tensor) -> Tensor:
        """A V + c V."""
        self.products += vectors.shape[1]
        return self.operator.matmat(vectors) + self.shift * vectors


def precision_of(operator: Operator) -> str:
    """The arithmetic of an operator's products by name."""
    return operator.precision if isinstance(operator, Multiplying) else str(operator.dtype).removeprefix("torch.")


def product_of(operator: Operator) -> Product | None:
    """How a loss's Hessian is multiplied with; ``None`` for what is no derivative."""
    return operator.product if isinstance(operator, Multiplying) else None


def in_float64(operator: Operator) -> Operator | None:
    """The same matrix in float64, where the operator is of a landscape in float32 or TF32; else ``None``."""
    return operator.in_float64() if isinstance(operator, Multiplying) else None


def to_scipy(operator: Operator) -> scipy.sparse.linalg.LinearOperator:
    """The same matrix for SciPy, on NumPy vectors in the operator's type."""

    def multiply(vectors: np.ndarray) -> np.ndarray:
        columns = torch.from_numpy(np.ascontiguousarray(vectors.reshape(operator.shape[1], -1)))
        return operator.matmat(columns.to(operator.device, operator.dtype)).cpu().numpy().reshape(vectors.shape)

    dtype = np.dtype(str(operator.dtype).removeprefix("torch."))
    return scipy.sparse.linalg.LinearOperator(
        operator.shape, matvec=multiply, matmat=multiply, rmatvec=multiply, dtype=dtype
    )


class FromScipy(Multiplying):
    """A symmetric SciPy operator or matrix, on CPU tensors in float64."""

    def __init__(self, operator: scipy.sparse.linalg.LinearOperator | np.ndarray) -> None:
        self._operator = scipy.sparse.linalg.aslinearoperator(operator)
        self.products = 0
        self.shape: tuple[int, int] = self._operator.shape
        self.dtype, self.device = torch.float64, torch.device("cpu")

    def matmat(self, vectors: Tensor) -> Tensor:
        """A V."""
        self.products += vectors.shape[1]
        return torch.from_numpy(np.asarray(self._operator.matmat(vectors.numpy()), dtype=np.float64))


class Dense(Multiplying):
    """A symmetric matrix [d, d] in memory."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix
        self.products = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(d, d)."""
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """The matrix's type."""
        return self.matrix.dtype

    @property
    def device(self) -> torch.device:
        """The matrix's device."""
        return self.matrix.device

    def matmat(self, vectors: Tensor) -> Tensor:
        """A V."""
        self.products += vectors.shape[1]
        return self.matrix @ vectors
