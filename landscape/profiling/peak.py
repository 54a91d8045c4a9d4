"""What the machine can do, measured: products of large matrices, and copies of memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from landscape.compute.devices import reproducible_arithmetic

_SECONDS = 0.2
"""Of each of the two measurements."""
_SIDE = {"cpu": 1024, "cuda": 8192}
"""Of the square matrices."""
_BYTES = 256 << 20
"""Of the copied block: far more than the caches hold."""


@dataclass(frozen=True)
class Peak:
    """The highest rates that were measured.

    Attributes:
        flops: floating-point operations a second in the product of two large square matrices.
        bandwidth: bytes a second, read and written, in the copy of a large block.
        threads: CPU threads of both.
    """

    flops: float
    bandwidth: float
    threads: int


def measured_peak(device: torch.device, precision: str, threads: int) -> Peak:
    """Measure for half a second.

    Args:
        device: where.
        precision: ``float32``, ``float64``, ``tf32`` or ``bf16`` (then of bfloat16 matrices).
        threads: CPU threads.
    """
    kinds = {"float64": torch.float64, "bf16": torch.bfloat16}
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad(), reproducible_arithmetic(precision == "tf32"):
            side = _SIDE[device.type]
            a = torch.full((side, side), 0.5, dtype=kinds.get(precision, torch.float32), device=device)
            out = torch.empty_like(a)
            product = _fastest(lambda: torch.mm(a, a, out=out), device)
            block = torch.zeros(_BYTES, dtype=torch.uint8, device=device)
            other = torch.empty_like(block)
            copy = _fastest(lambda: other.copy_(block), device)
    finally:
        torch.set_num_threads(before)
    return Peak(2.0 * side**3 / product, 2.0 * _BYTES / copy, threads)


def _fastest(work: Callable[[], object], device: torch.device) -> float:
    """The seconds of the fastest of some repetitions, after one that counts for nothing."""
    work()
    best, end = float("inf"), time.perf_counter() + _SECONDS
    while best == float("inf") or time.perf_counter() < end:
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        best = min(best, time.perf_counter() - start)
    return best


def wait(device: torch.device) -> None:
    """Wait until a GPU has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
