"""Statistics of a partition: how much the clients' data differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from landscape.partitions.partition import Partition, is_labels


@dataclass(frozen=True)
class PartitionStatistics:
    """Statistics of a partition; means are over the clients, all with the same weight.

    Attributes:
        clients: the number of clients.
        samples: the number of samples to divide.
        drawn: the sum of the clients' sizes, in which a sample counts as often as it was drawn.
        used: the number of different samples that clients have.
        size_mean, size_min, size_max: samples per client.
        size_variation: the standard deviation of the clients' sizes divided by their mean.
        classes_mean, classes_min, classes_max: classes per client.
        distance_mean, distance_max: total variation ½ Σ_c |q_c − p_c| between a client's label ratios q and those of
            the data, p: 0 for equal ratios, near 1 for one class of many.
        class_deviation: standard deviation over the classes of their numbers of samples, of all clients (the number
            below Figure 2 of Sun et al., ICML 2023).

    The statistics of classes are ``None`` if the targets are not classes.
    """

    clients: int
    samples: int
    drawn: int
    used: int
    size_mean: float
    size_min: int
    size_max: int
    size_variation: float
    classes_mean: float | None = None
    classes_min: int | None = None
    classes_max: int | None = None
    distance_mean: float | None = None
    distance_max: float | None = None
    class_deviation: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def partition_statistics(partition: Partition, targets: np.ndarray, classes: int) -> PartitionStatistics:
    """The statistics of a partition of samples with these targets, [n, ...].

    Example:
        >>> import numpy as np
        >>> from landscape.partitions import make_partition, partition_statistics
        >>> labels = np.arange(20) % 4
        >>> partition_statistics(make_partition("pathological:1", labels, 4, seed=0), labels, 4).distance_mean
        0.75
    """
    sizes, all_indices = partition.sizes, np.concatenate(partition.clients)
    size: dict[str, Any] = {
        "clients": len(partition),
        "samples": len(targets),
        "drawn": len(all_indices),
        "used": len(np.unique(all_indices)),
        "size_mean": float(sizes.mean()),
        "size_min": int(sizes.min()),
        "size_max": int(sizes.max()),
        "size_variation": float(sizes.std() / sizes.mean()),
    }
    if not is_labels(targets):
        return PartitionStatistics(**size)
    counts = partition.label_counts(targets, classes)
    held = (counts > 0).sum(axis=1)
    overall = np.bincount(targets, minlength=classes) / len(targets)
    distances = 0.5 * np.abs(counts / sizes[:, None] - overall).sum(axis=1)
    return PartitionStatistics(
        **size,
        classes_mean=float(held.mean()),
        classes_min=int(held.min()),
        classes_max=int(held.max()),
        distance_mean=float(distances.mean()),
        distance_max=float(distances.max()),
        class_deviation=float(counts.sum(axis=0).std()),
    )
