"""Statistics of partitions, against counts by hand."""

import numpy as np
import pytest

from landscape import Partition, make_partition
from landscape.partitions.statistics import partition_statistics


def test_a_small_partition_by_hand():
    labels = np.array([0, 0, 1, 1, 2, 2])
    partition = Partition((np.array([0, 1, 1]), np.array([2, 4, 5, 0, 3])))
    assert partition_statistics(partition, labels, 4).to_dict() == pytest.approx(
        {
            "clients": 2, "samples": 6, "drawn": 8, "used": 6, "size_mean": 4, "size_min": 3, "size_max": 5,
            "size_variation": 1 / 4, "classes_mean": 2, "classes_min": 1, "classes_max": 3,
            "distance_mean": (2 / 3 + (2 / 15 + 1 / 15 + 1 / 15) / 2) / 2, "distance_max": 2 / 3,
            "class_deviation": np.std([4, 2, 2, 0]),
        }
    )  # fmt: skip


def test_one_class_a_client_is_as_far_as_can_be():
    labels = np.arange(1000) % 10
    statistics = partition_statistics(make_partition("dirichlet-hsu:0", labels, 20, 0), labels, 10)
    assert (statistics.distance_mean, statistics.distance_max, statistics.classes_max) == pytest.approx((0.9, 0.9, 1))


def test_maps_and_numbers_have_sizes_only():
    for targets in (np.zeros((6, 2, 2), dtype=np.uint8), np.zeros(6)):
        found = partition_statistics(make_partition("iid", targets, 4, 0), targets, 3)
        assert (found.size_min, found.size_max, found.used) == (1, 2, 6)
        assert found.classes_mean is found.distance_mean is found.class_deviation is None
