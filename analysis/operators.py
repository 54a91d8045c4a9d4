"""Linear operators: what every spectral method here works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from landscape import Landscape

Report = Callable[[int, float | None], None]
"""Told of progress: products spent so far, and the relative error reached where that is known."""


class Operator(Protocol):
    """A symmetric d×d matrix known by its products.

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
        """Where vectors and products live."""
        ...

    def matmat(self, vectors: Tensor) -> Tensor:
        """A V for V of shape [d, k] -> [d, k]."""
        ...


class _Multiplying:
    def __matmul__(self: Operator, vectors: Tensor) -> Tensor:
        """A v for one vector [d] or several [d, k]."""
        return self.matmat(vectors[:, None])[:, 0] if vectors.dim() == 1 else self.matmat(vectors)


class Hessian(_Multiplying):
    """∇²L at a point of a landscape (its own point unless given), exact over the whole data set.

    Example:
        >>> import torch
        >>> from analysis import Hessian
        >>> from landscape import Landscape
        >>> line = torch.nn.Linear(2, 1, bias=False)
        >>> bowl = Landscape(line, (torch.eye(2), torch.ones(2, 1)), torch.nn.functional.mse_loss, device="cpu")
        >>> Hessian(bowl) @ torch.tensor([1.0, 0.0])
        tensor([1., 0.])
    """

    def __init__(self, landscape: Landscape, w: Tensor | None = None) -> None:
        self.landscape = landscape
        self.products = 0
        self._hvp = landscape.hessian(w)

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

    def matmat(self, vectors: Tensor) -> Tensor:
        """H V for V of shape [d, k] -> [d, k]; the vectors share each micro-batch's graph."""
        self.products += vectors.shape[1]
        return self._hvp(vectors.T).T


class Dense(_Multiplying):
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
