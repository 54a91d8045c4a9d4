"""Distribute samples to clients: by label ratios of each client, with or without replacement."""

from __future__ import annotations

import numpy as np

from landscape.errors import FedscapeError

_SMALLEST = np.finfo(np.float64).tiny
"""A total of ratios below this has too few bits for a draw in proportion to the ratios."""


class Pools:
    """The samples of each class in random order, taken one after another.

    With replacement a class that is used up starts again from its first sample, as in FedSMOO's code: no sample is
    taken a second time before all others of its class were taken.

    Attributes:
        left: the number of samples not yet taken, [classes]; with replacement, of all samples.
    """

    def __init__(self, labels: np.ndarray, random: np.random.Generator, *, replacement: bool = False) -> None:
        classes = int(labels.max()) + 1
        self._pools = [random.permutation(np.flatnonzero(labels == c))[::-1] for c in range(classes)]
        self.left = np.array([len(pool) for pool in self._pools])
        self._dealt = np.zeros(classes, dtype=np.int64)
        self._replacement = replacement

    def take(self, c: int, count: int = 1) -> np.ndarray:
        """The next ``count`` samples of class c, [count]."""
        pool, start = self._pools[c], self._dealt[c]
        self._dealt[c] += count
        if self._replacement:
            return pool[np.arange(start, start + count) % len(pool)]
        self.left[c] -= count
        return pool[start : start + count]

    def hand(self, counts: np.ndarray) -> np.ndarray:
        """Take ``counts`` [classes] samples of the classes, for one client, [Σ counts]."""
        return np.concatenate([self.take(int(c), int(counts[c])) for c in np.flatnonzero(counts)])

    @property
    def present(self) -> np.ndarray:
        """The classes with samples left, ascending."""
        return np.flatnonzero(self.left)


def iid(
    labels: np.ndarray, sizes: np.ndarray, random: np.random.Generator, replacement: bool = False
) -> list[np.ndarray]:
    """A random split; every sample is used once (with replacement: drawn with the label ratios of all data)."""
    if replacement:
        pools = Pools(labels, random, replacement=True)
        return _drawn(np.tile(pools.left / len(labels), (len(sizes), 1)), pools, sizes, random)
    return np.split(random.permutation(len(labels)), np.cumsum(sizes)[:-1])


def dirichlet(
    labels: np.ndarray, sizes: np.ndarray, random: np.random.Generator, replacement: bool, alpha: float
) -> list[np.ndarray]:
    """FedDyn's sampler (Acar et al., ICLR 2021, and its code): label ratios ~ Dir(α·1_C).

    Without replacement samples go one by one to a random client that is not full, in a class drawn by that client's
    label ratios, restricted to the classes that are not used up; if these ratios are all 0, the class is drawn in
    proportion to the samples left of each.  Every sample is used once.
    """
    if replacement:
        pools = Pools(labels, random, replacement=True)
        weights = np.full(len(pools.present), alpha)
        return _drawn(_spread(random.dirichlet(weights, size=len(sizes)), pools), pools, sizes, random)
    clients, classes = len(sizes), int(labels.max()) + 1
    ratios = random.dirichlet(np.full(classes, alpha), size=clients)
    pools = Pools(labels, random)
    room = sizes.copy()
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    open_clients = list(np.flatnonzero(room))
    cumulated = np.cumsum(ratios * (pools.left > 0), axis=1)
    while open_clients:
        place = int(random.integers(len(open_clients)))
        client = open_clients[place]
        c = _class_of(random, cumulated[client], pools)
        parts[client].append(pools.take(c))
        room[client] -= 1
        if pools.left[c] == 0:
            cumulated = np.cumsum(ratios * (pools.left > 0), axis=1)
        if room[client] == 0:
            open_clients[place] = open_clients[-1]
            open_clients.pop()
    return [np.concatenate(part) if part else np.empty(0, dtype=np.int64) for part in parts]


def dirichlet_hsu(
    labels: np.ndarray, sizes: np.ndarray, random: np.random.Generator, replacement: bool, alpha: float
) -> list[np.ndarray]:
    """Hsu et al., 2019: label ratios q ~ Dir(α·p), with p the label ratios of all data and α the total concentration.

    Without replacement clients are filled one after another.  When a class of a client is used up, the client draws
    new ratios over the classes that are left, for the rest of its samples.  Every sample is used once.

    The code of Caldarola et al., ECCV 2022, contains splits of this kind, but not the rule that made them.  Classes per
    client (100 clients of 500 samples) here / there: 1.3 / 1.3 at α = 0.05 of 10 classes, 4.9 / 5.1 at 0.5 of 100,
    3.2 / 3.6 at 0.5 of 10; the other simple rule, rescaling the old ratios, gives 3.8 of 100.

    α = 0 is one class per client: without replacement as in :func:`pathological`, with replacement drawn by p.
    """
    if alpha == 0 and not replacement:
        return pathological(labels, sizes, random, False, 1)
    pools = Pools(labels, random, replacement=replacement)
    prior = pools.left / len(labels)
    if replacement and alpha == 0:
        return _drawn(random.multinomial(1, prior, size=len(sizes)).astype(float), pools, sizes, random)
    if replacement:
        ratios = random.dirichlet(alpha * prior[pools.present], size=len(sizes))
        return _drawn(_spread(ratios, pools), pools, sizes, random)
    return [_filled(pools, int(size), alpha * prior, random) for size in sizes]


def _filled(pools: Pools, size: int, weights: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """One client's samples: ratios ~ Dir(weights) over the classes left, drawn again when a class is used up."""
    parts = [np.empty(0, dtype=np.int64)]
    while size:
        here = pools.present
        wanted = np.zeros(len(weights), dtype=np.int64)
        ratios = random.dirichlet(weights[here])
        wanted[here] = np.minimum(random.multinomial(size, ratios / ratios.sum()), pools.left[here])
        parts.append(pools.hand(wanted))
        size -= int(wanted.sum())
    return np.concatenate(parts)


def pathological(
    labels: np.ndarray, sizes: np.ndarray, random: np.random.Generator, replacement: bool, count: int
) -> list[np.ndarray]:
    """``count`` classes per client.

    With replacement as FedSMOO's (Sun et al., ICML 2023): random classes, and samples evenly from them.

    Without replacement the number of clients of a class is in proportion to its samples, at least one, and the class's
    samples are divided evenly among its clients.  Every sample is used once.  The clients' sizes follow from that: they
    are equal, up to rounding, if the classes are equal and their number divides ``clients · count``.

    Raises:
        FedscapeError: more classes per client than there are; without replacement, too few clients for all classes.
    """
    pools = Pools(labels, random, replacement=replacement)
    here, clients = pools.present, len(sizes)
    if count > len(here):
        raise FedscapeError(f"{count} classes a client are more than the {len(here)} there are")
    if replacement:
        chosen = np.stack([random.permutation(len(here)) < count for _ in range(clients)])
        return _drawn(_spread(chosen / count, pools), pools, sizes, random)
    if clients * count < len(here):
        raise FedscapeError(
            f"{clients} clients with {count} of the classes each cannot hold all {len(here)} classes: give at least "
            f"{-(-len(here) // count)} clients, or +replacement, which need not use every sample"
        )
    return _shared(pools, _holders(pools.left, clients, count, random), random)


def _holders(amounts: np.ndarray, clients: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Which client has which class, bool [clients, classes]: ``count`` per client, by Adams' apportionment.

    The next class is one with the most samples per client that has it so far; ties are broken at random.
    """
    holds = np.zeros((clients, len(amounts)), dtype=bool)
    for client in random.permutation(clients):
        held = holds.sum(axis=0)
        # Classes without a client come first, the largest first; a class without samples is never taken.
        load = np.where(held, amounts / np.maximum(held, 1), amounts * float(amounts.sum() + 1))
        order = np.lexsort((random.random(len(amounts)), -load))
        holds[client, order[:count]] = True
    return holds


def _shared(pools: Pools, holds: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Divide each class's samples evenly among its clients; remainders go to the clients rounded down most so far."""
    counts = np.zeros(holds.shape, dtype=np.int64)
    gained = np.zeros(len(holds))
    for c in pools.present:
        holders = np.flatnonzero(holds[:, c])
        first = holders[np.lexsort((random.random(len(holders)), gained[holders]))]
        counts[first, c] = equal_sizes(int(pools.left[c]), len(holders))
        gained[holders] += counts[holders, c] - pools.left[c] / len(holders)
    return [pools.hand(row) for row in counts]


def pam(
    labels: np.ndarray,
    sizes: np.ndarray,
    random: np.random.Generator,
    replacement: bool,
    alpha: float,
    beta: float,
    superclasses: np.ndarray,
) -> list[np.ndarray]:
    """Pachinko allocation in two levels (Reddi et al., ICLR 2021, Appendix F): coarse labels, then fine labels.

    A client draws ratios θ ~ Dir(α·1) of the coarse labels and, below each of them, ratios ~ Dir(β·1) of its classes.
    Without replacement clients are filled one after another; draws are restricted to the classes and coarse labels
    that are not used up.  Every sample is used once.

    ``superclasses`` are the coarse labels of the classes, [classes].
    """
    pools = Pools(labels, random, replacement=replacement)
    groups = [pools.present[superclasses[pools.present] == g] for g in np.unique(superclasses[pools.present])]
    upper = random.dirichlet(np.full(len(groups), alpha), size=len(sizes))
    lower = [random.dirichlet(np.full(len(group), beta), size=len(sizes)) for group in groups]
    if replacement:
        ratios = np.zeros((len(sizes), len(pools.left)))
        for g, group in enumerate(groups):
            ratios[:, group] = upper[:, g, None] * lower[g]
        return _drawn(ratios, pools, sizes, random)
    parts = []
    for client, size in enumerate(sizes):
        taken = []
        fine = [ratios[client] for ratios in lower]
        cumulated = _tree(upper[client], fine, groups, pools)
        for _ in range(size):
            c = _class_of(random, cumulated, pools)
            taken.append(pools.take(c))
            if pools.left[c] == 0:
                cumulated = _tree(upper[client], fine, groups, pools)
        parts.append(np.concatenate(taken) if taken else np.empty(0, dtype=np.int64))
    return parts


def _tree(upper: np.ndarray, lower: list[np.ndarray], groups: list[np.ndarray], pools: Pools) -> np.ndarray:
    """Cumulative ratios of the classes left, the ratios below each coarse label rescaled to 1, [classes]."""
    ratios = np.zeros(len(pools.left))
    for share, fine, group in zip(upper, lower, groups, strict=True):
        there = pools.left[group] > 0
        mass = (fine * there).sum()
        if mass >= _SMALLEST:
            ratios[group] = share * (fine * there / mass)
        elif there.any():  # all of its ratios are of classes that are used up
            ratios[group] = share * there / there.sum()
    return np.cumsum(ratios)


def natural(owners: np.ndarray, clients: int, random: np.random.Generator) -> list[np.ndarray]:
    """The data set's own clients in the order of their ids; a random choice of them if fewer are wanted.

    Raises:
        FedscapeError: more clients than there are.
    """
    ids, inverse = np.unique(owners, return_inverse=True)
    if clients > len(ids):
        raise FedscapeError(f"the data set has {len(ids)} clients of its own: give --clients 1 to {len(ids)}")
    samples = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    return [samples[i] for i in np.sort(random.permutation(len(ids))[:clients])]


def equal_sizes(samples: int, clients: int) -> np.ndarray:
    """Equal sizes, [clients]; the first clients have one sample more if the number does not divide."""
    return np.full(clients, samples // clients) + (np.arange(clients) < samples % clients)


def log_normal_sizes(samples: int, clients: int, deviation: float, random: np.random.Generator) -> np.ndarray:
    """Sizes ∝ exp(N(0, deviation²)), as in FedDyn's unbalanced splits, that sum to ``samples`` exactly.

    Sizes are rounded down; the samples left over go to the largest remainders.
    """
    weights = random.lognormal(0, deviation, clients)
    exact = samples * (weights / weights.sum())
    sizes = np.floor(exact).astype(np.int64)
    sizes[np.argsort(sizes - exact, kind="stable")[: samples - sizes.sum()]] += 1
    return sizes


def _class_of(random: np.random.Generator, mass: np.ndarray, pools: Pools) -> int:
    """A class drawn by cumulative ratios, or in proportion to the samples left if the ratios are all 0."""
    if not mass[-1] >= _SMALLEST:
        mass = np.cumsum(pools.left)
    return int(np.searchsorted(mass, random.random() * mass[-1], side="right"))


def _drawn(ratios: np.ndarray, pools: Pools, sizes: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """With replacement: the class counts of each client are multinomial with its ratios [clients, classes]."""
    return [pools.hand(row) for row in random.multinomial(sizes, ratios)]


def _spread(ratios: np.ndarray, pools: Pools) -> np.ndarray:
    """Ratios over the classes that have samples -> over all classes, [clients, classes]."""
    whole = np.zeros((len(ratios), len(pools.left)))
    whole[:, pools.present] = ratios
    return whole
