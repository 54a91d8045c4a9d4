"""Precisions of training and evaluation by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from landscape.compute.devices import reproducible_arithmetic
from landscape.errors import FedscapeError
from landscape.registry import unknown_name

PrecisionName = Literal["float32", "float64", "tf32", "bf16"]


@dataclass(frozen=True)
class Precision:
    """How the numbers of a network are kept and multiplied.

    Attributes:
        name: ``float32`` and ``float64``: all arithmetic in that type, exact to rounding and reproducible; ``tf32``:
            float32, but products and convolutions round their factors to ten-bit mantissas (CUDA only); ``bf16``:
            parameters, gradients, losses and the algorithm's arithmetic in float32, products and convolutions of the
            forward and backward pass in bfloat16 (eight-bit mantissas), as ``torch.autocast`` does.

    Raises:
        FedscapeError: another name.

    Example:
        >>> import torch
        >>> from landscape.compute.precision import Precision
        >>> bf16, layer = Precision("bf16"), torch.nn.Linear(2, 1)
        >>> with bf16.forward(torch.device("cpu")):
        ...     outputs = layer(torch.ones(1, 2))
        >>> outputs.dtype, bf16.raised(outputs).dtype, bf16.dtype
        (torch.bfloat16, torch.float32, torch.float32)
    """

    name: PrecisionName = "float32"

    def __post_init__(self) -> None:
        if self.name not in get_args(PrecisionName):
            raise unknown_name("dtype", self.name, list(get_args(PrecisionName)))

    @property
    def dtype(self) -> torch.dtype:
        """Of parameters."""
        return torch.float64 if self.name == "float64" else torch.float32

    @property
    def bf16(self) -> bool:
        """Whether products are in bfloat16."""
        return self.name == "bf16"

    def check(self, device: torch.device) -> None:
        """Refuse TF32 on a CPU, which has none.

        Raises:
            FedscapeError: it would compute in float32.
        """
        if self.name == "tf32" and device.type != "cuda":
            raise FedscapeError("tf32 is a precision of CUDA devices: give --dtype float32 or bf16, or --device cuda")

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Inside, products and convolutions of float32 numbers are as the name says, and deterministic on CUDA."""
        with reproducible_arithmetic(self.name == "tf32"):
            yield

    @contextmanager
    def forward(self, device: torch.device) -> Iterator[None]:
        """For the forward pass of the network alone; with it its backward pass computes in the same types."""
        with torch.autocast(device.type, torch.bfloat16, enabled=self.bf16):
            yield

    def raised(self, outputs: Tensor) -> Tensor:
        """A network's outputs, for the loss."""
        return outputs.float() if self.bf16 else outputs
