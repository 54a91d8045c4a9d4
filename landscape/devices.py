"""Devices, dtypes and arithmetic by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from landscape.errors import FedscapeError

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """The device called ``name``; ``auto`` is the first CUDA device where there is one, else the CPU.

    Raises:
        FedscapeError: the name is no device, or that device is not on this machine.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise FedscapeError(f"unknown device '{name}': give auto, cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise FedscapeError(f"device '{name}' is not supported: give auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise FedscapeError(
            f"device '{name}' is not on this machine, which has {torch.cuda.device_count()} CUDA devices: "
            "give --device cpu or auto"
        )
    return device


def resolve_dtype(name: str | torch.dtype) -> torch.dtype:
    """The floating-point type called ``name`` (``float32`` or ``float64``).

    Raises:
        FedscapeError: any other name.
    """
    dtype = DTYPES.get(name) if isinstance(name, str) else name
    if dtype is None or dtype not in DTYPES.values():
        raise FedscapeError(f"unknown dtype '{name}': give float32 or float64")
    return dtype


def free_memory(device: torch.device) -> int:
    """Bytes free on a device (of the machine, for the CPU); 2 GiB where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2 << 30


@contextmanager
def reproducible_arithmetic() -> Iterator[None]:
    """Full float32 (no TF32) and deterministic convolutions on CUDA; nothing changes on the CPU.

    cuDNN convolutions use TF32 (10-bit mantissa) unless told otherwise, which is a relative error of
    about 1e-3: enough to spoil small eigenvalues, so measurements and runs switch it off.
    """
    if not torch.backends.cudnn.is_available():
        yield
        return
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield
