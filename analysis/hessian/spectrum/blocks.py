"""Blocks of a Hessian: of a layer, a module, the parameters whose names match a glob, or any set of coordinates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from analysis.hessian.spectrum.operators import Multiplying, Operator, in_float64, precision_of, product_of
from landscape import FedscapeError, Landscape
from landscape.name_patterns import matching_names


class Block(Multiplying):
    """The principal block A_bb of a symmetric operator on a set b of its coordinates.

    For a landscape's matrices and whole parameter tensors :func:`block_of` costs less: this one multiplies by the
    whole operator.

    Args:
        operator: A, [d, d].
        part: b: a slice, indices, or a boolean mask [d], as from :func:`coordinates`.

    Raises:
        FedscapeError: b is empty or has a coordinate twice.
    """

    def __init__(self, operator: Operator, part: slice | Tensor) -> None:
        here = part.cpu() if isinstance(part, Tensor) else part
        indices = torch.arange(operator.shape[0])[here]
        if indices.numel() == 0 or indices.unique().numel() != indices.numel():
            raise FedscapeError("a block is of at least one coordinate, and of each only once")
        self._operator, self._part = operator, indices.to(operator.device)
        self.products = 0
        self.product = product_of(operator)

    @property
    def precision(self) -> str:
        """The operator's."""
        return precision_of(self._operator)

    def in_float64(self) -> Operator | None:
        """The same block in float64."""
        inner = in_float64(self._operator)
        return None if inner is None else Block(inner, self._part)

    @property
    def shape(self) -> tuple[int, int]:
        """(b, b)."""
        return len(self._part), len(self._part)

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


def coordinates(landscape: Landscape, patterns: Sequence[str] | str) -> Tensor:
    """The coordinates of the parameters that match some pattern, ascending, [b].

    Args:
        landscape: of those parameters.
        patterns: globs over parameters' names, or one; one that matches a layer or a module chooses all beneath it
            (:func:`landscape.name_patterns.matches`).  A tied parameter has each of its names.

    Raises:
        FedscapeError: a pattern matches no trainable parameter, or there is no pattern.
    """
    names = _parameters(landscape, patterns)
    entries = landscape.space.entries
    return torch.cat([torch.arange(entry.start, entry.stop) for entry in entries if entry.name in names])


def block_of(landscape: Landscape, patterns: Sequence[str] | str, w: Tensor | None = None) -> Landscape:
    """The loss as a function of the parameters that match some pattern, the others held at a point.

    Its Hessian, Gauss-Newton and Fisher matrices are the principal blocks of the landscape's, for fewer operations:
    nothing is differentiated by what is held.

    Args:
        landscape: the whole.
        patterns: as in :func:`coordinates`.
        w: the point, [d]; the landscape's own unless given.

    Raises:
        FedscapeError: as :func:`coordinates`; a point of another shape.

    Example:
        >>> import torch
        >>> from analysis import Hessian
        >>> from analysis.hessian.spectrum.blocks import block_of
        >>> from landscape import Landscape
        >>> line = torch.nn.Linear(2, 1)
        >>> bowl = Landscape(line, (torch.eye(2), torch.ones(2, 1)), torch.nn.functional.mse_loss, device="cpu")
        >>> Hessian(block_of(bowl, "bias")) @ torch.ones(1)
        tensor([2.])
    """
    return landscape.along(_parameters(landscape, patterns), w)


def _parameters(landscape: Landscape, patterns: Sequence[str] | str) -> set[str]:
    """The first names of the tensors that match."""
    known = landscape.parameter_names
    return {known[name] for name in matching_names(list(known), patterns, "trainable parameter")}
