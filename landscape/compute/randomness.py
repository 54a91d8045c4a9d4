"""Random numbers by purpose: the same seed and purpose give the same draws, whoever asks and when.

No generator lives on between draws, so nothing random has to be saved to resume a run, and neither
the number of workers nor the order of the work can change a result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def stream_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose, e.g. ``stream_seed(0, "batches", round, client)``."""
    parts = [part if isinstance(part, str) else int(part) for part in (int(seed), *purpose)]  # NumPy's integers too
    digest = hashlib.sha256(repr(tuple(parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def torch_generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A CPU generator for one purpose (draws are moved to the device, so devices agree)."""
    return torch.Generator().manual_seed(stream_seed(seed, *purpose))


def numpy_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A NumPy generator (PCG64) for one purpose."""
    return np.random.default_rng(stream_seed(seed, *purpose))


@contextmanager
def global_seed(seed: int, *purpose: str | int) -> Iterator[None]:
    """Seed torch's global generators for one purpose (initialisation, dropout); restored on exit."""
    with torch.random.fork_rng():
        torch.manual_seed(stream_seed(seed, *purpose))
        yield
