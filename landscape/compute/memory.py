"""Keep freed memory in the process, for use in the next pass."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEPT = 1 << 30
KEEP = "FEDSCAPE_KEEP_MEMORY"
"""The environment variable that, set to 0, leaves the C library as it is."""


@functools.cache
def keep_freed_memory() -> bool:
    """Let the C library keep up to 1 GiB of freed memory, and serve blocks of up to that size from it.

    The activations of a micro-batch are blocks of megabytes, freed and allocated again in each pass.  By default glibc
    returns such blocks to the system and requests new ones, whose pages the system must clear: for ``lenet_fed`` this
    took a third to a half of the time of an evaluation.  The first evaluation, gradient, product or training run of
    a process does this, in commands and in notebooks.  The setting is for the whole process and cannot be undone;
    ``FEDSCAPE_KEEP_MEMORY=0`` leaves it out.

    Returns:
        Whether the C library accepted the setting: only glibc does.
    """
    if os.environ.get(KEEP) == "0" or not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, _KEPT) and mallopt(_M_TRIM_THRESHOLD, _KEPT))


def release_freed_memory() -> bool:
    """Give freed memory that was kept back to the system.

    For before passes whose blocks are of other sizes: they would not fit into it, and the process would hold both.

    Returns:
        Whether the C library gave any back.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if keep_freed_memory() else None
    return trim is not None and bool(trim(0))
