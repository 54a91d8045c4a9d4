"""Random numbers by purpose: the same seed and purpose always give the same numbers.

No generator is kept between draws, so no random state must be saved to resume a run, and neither the number of
workers nor the order of the work changes a result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def stream_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose, e.g. ``stream_seed(0, "batches", round, client)``.

    Example:
        >>> from landscape.compute.randomness import stream_seed
        >>> stream_seed(0, "batches", 1) == stream_seed(0, "batches", 1) != stream_seed(0, "batches", 2)
        True
    """
    parts = [part if isinstance(part, str) else int(part) for part in (int(seed), *purpose)]  # NumPy's integers too
    digest = hashlib.sha256(repr(tuple(parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def torch_generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A CPU generator for one purpose; draws are moved to the device, so that all devices use the same numbers.

    Example:
        >>> import torch
        >>> from landscape.compute.randomness import torch_generator
        >>> first, again = (torch.randn(3, generator=torch_generator(7, "directions")) for _ in range(2))
        >>> torch.equal(first, again)
        True
    """
    return torch.Generator().manual_seed(stream_seed(seed, *purpose))


def numpy_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A NumPy generator (PCG64) for one purpose.

    Example:
        >>> from landscape.compute.randomness import numpy_generator
        >>> bool(numpy_generator(7, "order").random() == numpy_generator(7, "order").random())
        True
    """
    return np.random.default_rng(stream_seed(seed, *purpose))


@contextmanager
def global_seed(seed: int, *purpose: str | int) -> Iterator[None]:
    """Seed torch's global generators for one purpose (initialisation, dropout); they are restored on exit.

    Those of CUDA where it is in use already: it is not begun for this, which would take memory of a GPU for work on the
    CPU, and which a process that was forked from one that uses CUDA cannot do at all.

    Example:
        >>> import torch
        >>> from landscape.compute.randomness import global_seed
        >>> with global_seed(0, "initialisation"):
        ...     first = torch.nn.Linear(2, 2)
        >>> with global_seed(0, "initialisation"):
        ...     again = torch.nn.Linear(2, 2)
        >>> torch.equal(first.weight, again.weight)
        True
    """
    value = stream_seed(seed, *purpose)
    # Not torch.manual_seed, which formats stack traces for devices that are not there (70 μs a call).
    before = torch.random.get_rng_state()
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        torch.default_generator.manual_seed(value)
        if on_devices:
            torch.cuda.manual_seed_all(value)
        yield
    finally:
        torch.random.set_rng_state(before)
        if on_devices:
            torch.cuda.set_rng_state_all(on_devices)
