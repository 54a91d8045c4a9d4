"""Which tensors of a file are numbers that a model can be given: dense, real, whole in memory, of the expected kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from landscape.errors import FedscapeError
from landscape.storage.schema import Wrong

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def require_plain(tensor: Tensor, where: str, *, weights: bool = False) -> None:
    """Refuse a tensor that is not simply numbers in memory.

    Args:
        tensor: read from a file.
        where: its name and the file's, for the error.
        weights: whether it must hold floating-point numbers; else integers, truth values and complex numbers may be.

    Raises:
        FedscapeError: it is nested, sparse, quantised, without values, or several of its entries are one number in
            memory; with ``weights``, it is complex, or of integers, truth values or another type.

    Example:
        >>> import torch
        >>> from landscape.storage.plain import require_plain
        >>> require_plain(torch.ones(2, 3).t(), "w")
        >>> require_plain(torch.ones(1).expand(3), "w")
        Traceback (most recent call last):
            ...
        landscape.errors.FedscapeError: w is overlapping in memory (of shape (3), strides (0)): a plain tensor is needed
    """
    fault = _fault(tensor)
    if fault is None and weights and tensor.dtype not in _FLOATS:
        fault = f"of {kind(tensor)} numbers ({_dtype(tensor)})"
    if fault is not None:
        wanted = "a plain tensor of floating-point numbers" if weights else "a plain tensor"
        raise FedscapeError(f"{where} is {fault}: {wanted} is needed")


@dataclass(frozen=True)
class Numbers:
    """A rule of :mod:`landscape.storage.schema`: a dense tensor in memory, of a given type and shape where given.

    Attributes:
        shape: sizes of its axes, ``None`` where any will do.
        dtype: of its numbers.
        finite: whether all numbers must be finite.
    """

    shape: tuple[int | None, ...] | None = None
    dtype: torch.dtype | None = None
    finite: bool = False

    @classmethod
    def like(cls, tensor: Tensor) -> Numbers:
        """The type of a tensor and its shape; any shape in place of an empty one, which is yet to be filled."""
        return cls(tuple(tensor.shape) if tensor.numel() else None, tensor.dtype)

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        if not isinstance(value, Tensor) or (fault := _fault(value)) is not None:
            raise Wrong(place, value if not isinstance(value, Tensor) else fault, "a plain tensor")
        sizes = value.shape if self.shape is None else self.shape
        fits = len(sizes) == value.dim() and all(w in (None, n) for w, n in zip(sizes, value.shape, strict=True))
        if not fits or self.dtype not in (None, value.dtype):
            wanted = "any shape" if self.shape is None else ", ".join("n" if n is None else str(n) for n in self.shape)
            raise Wrong(place, value, f"a tensor of {_dtype_name(self.dtype)} ({wanted})")
        if self.finite and not value.isfinite().all():
            raise Wrong(place, value, "one of finite numbers")


@dataclass(frozen=True)
class AnyTensor:
    """A rule: a tensor, plain or not (:func:`require_plain` says more of it)."""

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        if not isinstance(value, Tensor):
            raise Wrong(place, value, "a tensor")


def kind(tensor: Tensor) -> str:
    """``floating-point``, ``complex``, ``integer`` or ``boolean``."""
    if tensor.dtype == torch.bool:
        return "boolean"
    if tensor.is_complex():
        return "complex"
    return "floating-point" if tensor.is_floating_point() else "integer"


def require_kind(tensor: Tensor, wanted: Tensor, where: str) -> None:
    """Refuse numbers that the model's tensor could hold only by losing something, as complex ones their imaginary part.

    Raises:
        FedscapeError: the two are of different kinds.
    """
    if kind(tensor) != kind(wanted):
        raise FedscapeError(
            f"{where} is of {kind(tensor)} numbers ({_dtype(tensor)}), and the model's of {kind(wanted)} ones "
            f"({_dtype(wanted)}): a plain tensor of these is needed"
        )


def _fault(tensor: Tensor) -> str | None:
    if tensor.is_nested:
        return "nested"
    if tensor.is_quantized:
        return f"quantised ({_dtype(tensor)})"
    if tensor.layout != torch.strided:
        return f"sparse ({str(tensor.layout).removeprefix('torch.')})"
    if tensor.is_meta:
        return "without values (on the meta device)"
    if _overlaps(tensor):
        shape, strides = (", ".join(map(str, numbers)) for numbers in (tensor.shape, tensor.stride()))
        return f"overlapping in memory (of shape ({shape}), strides ({strides}))"
    return None


def _overlaps(tensor: Tensor) -> bool:
    """Whether two entries may be one number: in ascending order each stride must step over all axes before it."""
    reach = 0
    if tensor.numel() == 0:
        return False
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _dtype(tensor: Tensor) -> str:
    return _dtype_name(tensor.dtype)


def _dtype_name(dtype: torch.dtype | None) -> str:
    return "numbers" if dtype is None else str(dtype).removeprefix("torch.")
