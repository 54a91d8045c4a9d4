"""Which sample belongs to which client."""

from landscape.partitions.label_matching import matching_partition
from landscape.partitions.partition import Partition, make_partition, partition_dataset
from landscape.partitions.spec import Spec, read_spec
from landscape.partitions.statistics import PartitionStatistics, partition_statistics

__all__ = [
    "Partition",
    "PartitionStatistics",
    "Spec",
    "make_partition",
    "matching_partition",
    "partition_dataset",
    "partition_statistics",
    "read_spec",
]
