"""Which training sample belongs to which client."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from landscape.errors import FedscapeError
from landscape.files import atomic_write
from landscape.randomness import numpy_generator
from landscape.registry import unknown_name


@dataclass(frozen=True)
class Partition:
    """The training samples of each client: ``clients[i]`` are client i's sample indices (int64, sorted)."""

    clients: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def sizes(self) -> np.ndarray:
        """Samples per client, [clients]."""
        return np.array([len(indices) for indices in self.clients])

    def label_counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Samples per client and class, [clients, classes]."""
        return np.stack([np.bincount(labels[indices], minlength=classes) for indices in self.clients])

    def digest(self) -> str:
        """A SHA-256 over sizes and indices: equal for equal partitions."""
        sha = hashlib.sha256(self.sizes.astype("<i8").tobytes())
        for indices in self.clients:
            sha.update(indices.astype("<i8").tobytes())
        return sha.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write ``.npz`` with one array of indices a client, ``client_00000`` and on.

        Raises:
            FedscapeError: it cannot be written.
        """
        with atomic_write(path) as file:
            arrays = {f"client_{i:05d}": indices for i, indices in enumerate(self.clients)}
            np.savez(file, **cast("Any", arrays))

    @classmethod
    def load(cls, path: str | Path) -> Partition:
        """Read what :meth:`save` wrote.

        Raises:
            FedscapeError: the file is missing or damaged.
        """
        try:
            with np.load(path, allow_pickle=False) as archive:
                names = sorted(archive.files, key=lambda name: (len(name), name))
                return cls(tuple(archive[name].astype(np.int64) for name in names))
        except FileNotFoundError:
            raise FedscapeError(f"there is no file {path}") from None
        except Exception as error:  # a damaged archive can raise almost anything
            raise FedscapeError(f"{path} is not a partition or is damaged: {error}") from error


def _sizes(samples: int, clients: int) -> np.ndarray:
    """Equal sizes; the first clients hold one more where it does not divide."""
    return np.full(clients, samples // clients) + (np.arange(clients) < samples % clients)


def iid(labels: np.ndarray, clients: int, random: np.random.Generator) -> list[np.ndarray]:
    """A random split into parts whose sizes differ by at most one; every sample is used once."""
    return np.split(random.permutation(len(labels)), np.cumsum(_sizes(len(labels), clients))[:-1])


_SMALLEST = np.finfo(np.float64).tiny
"""Below this a total of ratios has too few bits for a draw in proportion to them."""


def dirichlet(labels: np.ndarray, clients: int, random: np.random.Generator, alpha: float) -> list[np.ndarray]:
    """FedDyn's sampler (Acar et al., ICLR 2021, and its code): label ratios ~ Dir(α·1_C), equal sizes.

    Samples go one by one to a random client that is not full, in a class drawn from that client's label
    ratios.  Without replacement: a class that is used up is drawn again among the rest, which is drawing
    from the ratios of the classes that are left; where a client's ratios have no mass left at all, the
    class is drawn by what is left of each.  Every sample is used once.
    """
    classes = int(labels.max()) + 1
    ratios = random.dirichlet(np.full(classes, alpha), size=clients)
    pools = [list(random.permutation(np.flatnonzero(labels == c))) for c in range(classes)]
    left = np.array([len(pool) for pool in pools])
    room = _sizes(len(labels), clients)
    parts: list[list[int]] = [[] for _ in range(clients)]
    open_clients = list(np.flatnonzero(room))
    cumulated = np.cumsum(ratios * (left > 0), axis=1)
    while open_clients:
        place = int(random.integers(len(open_clients)))
        client = open_clients[place]
        mass = cumulated[client]
        if not mass[-1] >= _SMALLEST:
            mass = np.cumsum(left)
        c = int(np.searchsorted(mass, random.random() * mass[-1], side="right"))
        parts[client].append(pools[c].pop())
        left[c] -= 1
        if left[c] == 0:
            cumulated = np.cumsum(ratios * (left > 0), axis=1)
        if len(parts[client]) == room[client]:
            open_clients[place] = open_clients[-1]
            open_clients.pop()
    return [np.array(part) for part in parts]


Sampler = Callable[..., list[np.ndarray]]
_SAMPLERS: dict[str, tuple[Sampler, str]] = {"iid": (iid, ""), "dirichlet": (dirichlet, ":ALPHA")}


def make_partition(spec: str, labels: np.ndarray, clients: int, seed: int) -> Partition:
    """Divide samples among clients.

    Args:
        spec: ``iid``, or ``dirichlet:ALPHA`` with FedDyn's per-class parameter (0.1 is far from iid).
        labels: the class of each training sample, [n].
        clients: how many clients.
        seed: the same seed gives the same partition.

    Raises:
        FedscapeError: an unknown spec, a parameter that is no positive number, no clients, or more
            clients than samples.
    """
    name, _, parameter = spec.partition(":")
    if name not in _SAMPLERS:
        raise unknown_name("partition", name, [key + form for key, (_, form) in _SAMPLERS.items()])
    if not 1 <= clients <= len(labels):
        raise FedscapeError(f"{clients} clients cannot share {len(labels)} samples: give 1 to {len(labels)} clients")
    sampler, form = _SAMPLERS[name]
    arguments = []
    if form:
        try:
            arguments = [float(parameter)]
        except ValueError:
            arguments = [0.0]
        if not 0 < arguments[0] < float("inf"):
            raise FedscapeError(f"the partition '{spec}' needs a positive number, as in {name}:0.1")
    elif parameter:
        raise FedscapeError(f"the partition '{name}' takes no parameter, '{spec}' gives one")
    parts = sampler(labels, clients, numpy_generator(seed, "partition"), *arguments)
    return Partition(tuple(np.sort(part).astype(np.int64) for part in parts))
