"""Freed memory that a process keeps for its next pass."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEPT = 1 << 30


def keep_freed_memory() -> bool:
    """Let the C library keep up to 1 GiB of freed memory, and serve blocks of up to that size from it.

    The activations of a micro-batch are blocks of megabytes that are freed and wanted again in each pass.  glibc gives
    such blocks back to the system and asks for new ones, whose pages the system has to clear: on ``lenet_fed`` that
    was a third to a half of an evaluation's time.  It holds for the whole process and cannot be undone.

    Returns:
        Whether the C library took it: glibc, no other.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, _KEPT) and mallopt(_M_TRIM_THRESHOLD, _KEPT))
