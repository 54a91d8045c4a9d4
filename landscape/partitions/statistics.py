"""How uneven a partition is, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from landscape.partitions.partition import Partition, is_labels


@dataclass(frozen=True)
class PartitionStatistics:
    """What a partition does to the data; means are over the clients, each as one.

    Attributes:
        clients: how many.
        samples: there are to divide; ``drawn``: of all clients together, a sample as often as it was dealt;
            ``used``: different ones among them.
        size_mean, size_min, size_max: samples a client.
        size_variation: their standard deviation as a share of their mean.
        classes_mean, classes_min, classes_max: classes a client has.
        distance_mean, distance_max: total variation ½ Σ_c |q_c − p_c| between a client's label ratios q and those of
            the data, p: 0 for equal ratios, near 1 for one class of many.
        class_deviation: standard deviation over the classes of their samples with all clients together (the number
            below Figure 2 of Sun et al., ICML 2023).

    What is about classes is ``None`` where the targets are no classes.
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
    """The statistics of a partition of samples with these targets, [n, ...]."""
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
