"""Samples by client and class, and their deviation over the classes (Sun et al., ICML 2023, Figures 2, 5 and 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from landscape.datasets import Dataset
from landscape.errors import FedscapeError
from landscape.partitions.partition import Partition, is_labels, partition_dataset


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """How many samples of each class each client has.

    Attributes:
        counts: [clients, classes]; a sample counts as often as it was drawn.
        available: samples of each class in the data, [classes].
    """

    counts: np.ndarray
    available: np.ndarray

    @classmethod
    def of(cls, partition: Partition, targets: np.ndarray, classes: int) -> ClassCounts:
        """The counts of a partition of samples with these targets, [n].

        Raises:
            FedscapeError: the targets are not one class a sample.
        """
        if not is_labels(targets):
            raise FedscapeError("these data have no classes to count: give data with one class a sample")
        return cls(partition.label_counts(targets, classes), np.bincount(targets, minlength=classes))

    @classmethod
    def draw(cls, spec: str, dataset: Dataset, clients: int, seed: int) -> ClassCounts:
        """The counts of the partition that a training run with this ``--partition`` and seed has.

        Raises:
            FedscapeError: as :func:`landscape.partitions.partition.make_partition`, and where there are no classes.
        """
        partition = partition_dataset(spec, dataset, clients, seed)
        return cls.of(partition, dataset.train.targets.cpu().numpy(), dataset.classes)

    @property
    def totals(self) -> np.ndarray:
        """Samples of each class that all clients have together, [classes]."""
        return self.counts.sum(axis=0)

    @property
    def deviation(self) -> float:
        """Standard deviation of the totals over the classes, with divisor C (ddof 0).

        It is :attr:`landscape.partitions.statistics.PartitionStatistics.class_deviation`.
        """
        return float(self.totals.std())
