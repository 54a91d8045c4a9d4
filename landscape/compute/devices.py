"""Devices, dtypes and arithmetic by name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from landscape.errors import FedscapeError

DTYPES = {"float32": torch.float32, "float64": torch.float64}
TF32 = "tf32"
"""float32 numbers whose products and convolutions round their factors to TF32's ten-bit mantissas, on CUDA only."""
TF32_EPSILON = 2.0**-10


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


def memory_size(text: str | int) -> int:
    """Bytes from a size such as ``0``, ``500MB`` or ``1.5 GB`` (powers of 1000).

    Raises:
        FedscapeError: it is no size.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMGT]?B)?", str(text).strip(), re.IGNORECASE)
    if found is None:
        raise FedscapeError(f"'{text}' is no amount of memory: give a number of bytes, or one such as 500MB or 2GB")
    prefix = (found[2] or "B")[0].upper()
    return int(float(found[1]) * 1000 ** "BKMGT".index(prefix))


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Inside, PyTorch works with ``count`` CPU threads; ``None`` leaves them as they are.

    Raises:
        FedscapeError: fewer than one.
    """
    if count is not None and count < 1:
        raise FedscapeError(f"{count} CPU threads are asked for: give 1 or more")
    before = torch.get_num_threads()
    try:
        if count is not None:
            torch.set_num_threads(count)
        yield
    finally:
        if count is not None:
            torch.set_num_threads(before)


def free_memory(device: torch.device) -> int:
    """Bytes free on a device (of the machine, for the CPU); 2 GiB where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2 << 30


@contextmanager
def reproducible_arithmetic(tf32: bool = False) -> Iterator[None]:
    """Full float32 products and convolutions (unless ``tf32``), and deterministic convolutions on CUDA.

    cuDNN convolutions use TF32 (10-bit mantissa) unless told otherwise, and matrix products do where the user has
    lowered PyTorch's precision, which is a relative error of about 1e-3: enough to spoil small eigenvalues, so
    measurements and runs switch it off.  All is as before on the way out.
    """
    with _matrix_products("high" if tf32 else "highest"):
        if not torch.backends.cudnn.is_available():
            yield
            return
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
            yield


@contextmanager
def _matrix_products(precision: str) -> Iterator[None]:
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # the user has set fp32_precision, PyTorch's newer way, which the older one cannot read
        matmul = torch.backends.cuda.matmul
        newer = matmul.fp32_precision
        matmul.fp32_precision = "tf32" if precision == "high" else "ieee"
        try:
            yield
        finally:
            matmul.fp32_precision = newer
        return
    if before == precision:
        # Setting it again is not nothing: PyTorch's wider fp32_precision would no longer reach the products.
        yield
        return
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
