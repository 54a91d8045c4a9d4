"""Divide other samples, such as test data, with the label ratios of a partition of the training samples."""

from __future__ import annotations

import numpy as np

from landscape.compute.randomness import numpy_generator
from landscape.errors import FedscapeError
from landscape.partitions.partition import Partition, is_labels


def matching_partition(partition: Partition, labels: np.ndarray, others: np.ndarray, seed: int) -> Partition:
    """Divide other samples, such as the test data, by the label ratios that each client has in training.

    Client i gets s·n_ic of the other samples of class c, where n_ic are its training samples of it and s is the
    largest factor that the other samples allow.  Each number is rounded up or down at random, with the exact value as
    its mean.  No sample goes to two clients.  All are used if the classes of both sets have the same ratios and the
    partition uses each training sample once.

    Args:
        partition: of the training samples.
        labels: the training samples' classes, [n].
        others: the other samples' classes, [m].
        seed: the same seed gives the same division.

    Raises:
        FedscapeError: targets that are not classes, a class that the other samples lack, or so few of them that a
            client has none.

    Example:
        >>> import numpy as np
        >>> from landscape.partitions.label_matching import matching_partition
        >>> from landscape.partitions.partition import Partition
        >>> labels = np.array([0, 0, 1, 1])
        >>> training = Partition((np.array([0, 1]), np.array([2, 3])))
        >>> test = np.array([1, 0, 1, 0])
        >>> [test[mine].tolist() for mine in matching_partition(training, labels, test, seed=0).clients]
        [[0, 0], [1, 1]]
    """
    if not (is_labels(labels) and is_labels(others)):
        raise FedscapeError("test data are split by one class a sample, these have targets of another kind")
    classes = int(max(labels.max(), others.max())) + 1
    counts = partition.label_counts(labels, classes)
    available, wanted = np.bincount(others, minlength=classes), counts.sum(axis=0)
    lacking = np.flatnonzero((wanted > 0) & (available == 0))
    if len(lacking):
        raise FedscapeError(f"the test data have no samples of class {lacking[0]}, so they cannot be split as clients")
    scale = (available[wanted > 0] / wanted[wanted > 0]).min()
    random = numpy_generator(seed, "matching partition")
    parts: list[list[np.ndarray]] = [[] for _ in range(len(partition))]
    for c in np.flatnonzero(wanted):
        order = random.permutation(len(partition))
        # Systematic rounding with a random offset: each number, and their sum, is rounded down or up.
        steps = np.floor(np.cumsum(scale * counts[order, c]) + random.random()).astype(np.int64)
        pool = random.permutation(np.flatnonzero(others == c))
        for client, mine in zip(order, np.split(pool, np.minimum(steps, len(pool))), strict=False):
            parts[client].append(mine)
    clients = tuple(np.sort(np.concatenate(part)) for part in parts)
    empty = [client for client, mine in enumerate(clients) if not len(mine)]
    if empty:
        raise FedscapeError(
            f"{len(others)} test samples are too few to split over {len(partition)} clients: client {empty[0]} has "
            "none; give fewer clients, or --client-test reweighted"
        )
    return Partition(clients)
