"""Samples by client and class, and their deviation over the classes."""

import numpy as np
import pytest

from figures.statistics import ClassCounts
from landscape import FedscapeError, Partition, load_dataset, make_dataset
from landscape.partitions import partition_statistics
from landscape.partitions.partition import partition_dataset


def test_a_drawn_sample_counts_as_often_as_it_was_drawn():
    partition = Partition((np.array([0, 0, 1]), np.array([2, 3])))
    found = ClassCounts.of(partition, np.array([0, 1, 1, 1]), 3)
    assert found.counts.tolist() == [[2, 1, 0], [0, 2, 0]]
    assert found.totals.tolist() == [2, 3, 0]
    assert found.available.tolist() == [1, 3, 0]
    assert found.deviation == pytest.approx(np.sqrt(((1 / 3) ** 2 + (4 / 3) ** 2 + (5 / 3) ** 2) / 3))


def test_the_deviation_is_fedsmoos():
    """The counts of the released sampler at seed 20 (recipes/fedsmoo.md, F2), whose deviation has divisor C."""
    counts = np.array([[6119, 5752, 5607, 4156, 5041, 4836, 6272, 3957, 3249, 5011]])
    assert round(ClassCounts(counts, np.full(10, 5000)).deviation, 2) == 932.68


def test_the_partition_is_a_training_runs():
    data = load_dataset("digits")
    found = ClassCounts.draw("dirichlet:0.1+replacement", data, 20, 3)
    partition = partition_dataset("dirichlet:0.1+replacement", data, 20, 3)
    targets = data.train.targets.numpy()
    assert (found.counts == partition.label_counts(targets, 10)).all()
    assert found.deviation == partition_statistics(partition, targets, 10).class_deviation


def test_labels_of_pixels_are_no_classes_of_samples():
    x, maps = np.zeros((4, 3, 4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8)
    data = make_dataset("own", (x, maps), (x, maps), classes=3, task="segmentation")
    with pytest.raises(FedscapeError, match="these data have no classes to count"):
        ClassCounts.draw("iid", data, 2, 0)
