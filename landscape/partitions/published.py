"""The sampler of FL-Simulator's code (``dataset.py``), draw by draw."""

from __future__ import annotations

import numpy as np

from landscape.errors import FedscapeError


def fl_simulator(
    labels: np.ndarray, clients: int, seed: int, parameter: float, *, pathological: bool = False
) -> list[np.ndarray]:
    """FL-Simulator's clients, of n/N samples each (rounded down; the first lacks or has what is left over).

    Samples are shuffled; label ratios of each client are drawn from Dir(α·1_C), or equal for c random classes.  Then
    one sample after another goes to a random client that is not full, of a class drawn by its ratios.  A class is dealt
    from its last sample to its first; when it is used up, it is refilled and the class *drawn again*, so that
    classes that are asked for more often lose one draw a refill.

    All of NumPy's old random numbers are drawn as there, so that the same seed gives the same clients.

    Args:
        labels: of the samples, [n].
        clients: N.
        seed: as FL-Simulator's ``--seed``, whose default is 20.
        parameter: α, or c.
        pathological: whether the parameter is c.

    Raises:
        FedscapeError: more classes a client than there are, or a seed below 0 or above 2³² − 1.

    Example:
        >>> import numpy as np
        >>> from landscape.partitions.published import fl_simulator
        >>> labels = np.arange(40) % 4
        >>> [set((p % 4).tolist()) for p in fl_simulator(labels, 3, seed=20, parameter=1, pathological=True)]
        [{3}, {0}, {0}]
    """
    if not 0 <= seed < 1 << 32:
        raise FedscapeError(f"FL-Simulator's sampler takes a seed from 0 to {(1 << 32) - 1}, not {seed}")
    classes = int(labels.max()) + 1
    if pathological and parameter > classes:
        raise FedscapeError(f"{parameter:g} classes a client are more than the {classes} there are")
    random = np.random.RandomState(seed)
    order = random.permutation(len(labels))
    room = np.full(clients, len(labels) // clients)
    room[0] += len(labels) - room.sum()
    cumulated = (
        _pathological(clients, classes, int(parameter), random)
        if pathological
        else np.cumsum(random.dirichlet([parameter] * classes, size=clients), axis=1)
    )
    shuffled = labels[order]
    pools = [order[np.flatnonzero(shuffled == c)] for c in range(classes)]
    left = [len(pool) for pool in pools]
    parts: list[list[int]] = [[] for _ in range(clients)]
    missing = int(room.sum())
    while missing:
        client = random.randint(clients)
        if room[client] <= 0:
            continue
        room[client] -= 1
        missing -= 1
        while True:
            c = int(np.argmax(random.uniform() <= cumulated[client]))
            if left[c] > 0:
                break
            left[c] = len(pools[c])
            if not left[c]:
                raise FedscapeError(f"FL-Simulator's sampler needs samples of every class, and class {c} has none")
        left[c] -= 1
        parts[client].append(int(pools[c][left[c]]))
    return [np.array(part, dtype=np.int64) for part in parts]


def _pathological(clients: int, classes: int, count: int, random: np.random.RandomState) -> np.ndarray:
    """Cumulated ratios of ``count`` random classes a client, 0 where the client has not the class, [N, C]."""
    chosen = np.ones((clients, classes))
    chosen[:, count:] = 0
    for row in chosen:
        random.shuffle(row)
    return np.where(chosen != 0, np.cumsum(chosen, axis=1) / count, 0.0)
