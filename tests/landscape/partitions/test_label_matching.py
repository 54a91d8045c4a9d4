"""Test data split over clients with the label ratios of their training data."""

import numpy as np
import pytest

from landscape import FedscapeError, Partition, make_partition
from landscape.partitions.label_matching import matching_partition

TRAIN, TEST = np.arange(6000) % 10, np.arange(1000) * 3 % 10


@pytest.mark.parametrize("spec", ["iid", "dirichlet:0.3", "dirichlet-hsu:0.5", "pathological:3", "iid+sizes:0.5"])
def test_each_client_has_its_ratios_and_every_test_sample_is_used_once(spec):
    partition = make_partition(spec, TRAIN, 20, 0)
    split = matching_partition(partition, TRAIN, TEST, 0)
    counts, expected = split.label_counts(TEST, 10), partition.label_counts(TRAIN, 10) / 6
    assert np.abs(counts - expected).max() < 1
    assert np.array_equal(np.sort(np.concatenate(split.clients)), np.arange(1000))
    assert all((np.diff(mine) > 0).all() for mine in split.clients)


def test_rounding_has_the_right_mean():
    partition = make_partition("dirichlet:0.3", TRAIN, 20, 0)
    counts = np.mean([matching_partition(partition, TRAIN, TEST, s).label_counts(TEST, 10) for s in range(400)], axis=0)
    assert np.abs(counts - partition.label_counts(TRAIN, 10) / 6).max() < 4.5 * np.sqrt(0.25 / 400)


def test_where_replacement_bends_the_classes_the_ratios_stay_and_no_sample_has_two_clients():
    partition = make_partition("dirichlet:0.3+replacement", TRAIN, 20, 0)
    split = matching_partition(partition, TRAIN, TEST, 0)
    wanted = partition.label_counts(TRAIN, 10)
    scale = (100 / wanted.sum(axis=0)).min()
    assert np.abs(split.label_counts(TEST, 10) - scale * wanted).max() < 1
    used = np.concatenate(split.clients)
    assert len(np.unique(used)) == len(used) < 1000


def test_a_class_that_only_the_test_data_have_is_left_out():
    partition = Partition((np.array([0, 1]), np.array([2, 3])))
    split = matching_partition(partition, np.array([0, 1, 0, 1]), np.array([0, 1, 2, 0, 1, 2]), 0)
    assert sorted(np.concatenate(split.clients)) == [0, 1, 3, 4]


def test_the_seed_decides():
    partition = make_partition("dirichlet:0.3", TRAIN, 20, 0)
    one, again, other = (matching_partition(partition, TRAIN, TEST, seed).digest() for seed in (1, 1, 2))
    assert one == again != other


def test_what_cannot_be_split_is_refused():
    maps = np.zeros((6, 2, 2), dtype=np.uint8)
    with pytest.raises(FedscapeError, match="test data are split by one class a sample"):
        matching_partition(make_partition("iid", maps, 2, 0), maps, maps, 0)
    partition = make_partition("dirichlet:0.3", TRAIN, 20, 0)
    with pytest.raises(FedscapeError, match="the test data have no samples of class 7"):
        matching_partition(partition, TRAIN, TEST[TEST != 7], 0)
    with pytest.raises(
        FedscapeError, match=r"10 test samples are too few to split over 20 clients: client \d+ has none"
    ):
        matching_partition(partition, TRAIN, np.arange(10), 0)
