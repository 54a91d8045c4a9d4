"""Data: samples, batches, data sets and their files.

``python -m landscape.data`` lists, downloads and verifies data sets; :func:`landscape.datasets.load_dataset` loads one.
"""

from landscape.data.batches import Batches, Objective
from landscape.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from landscape.data.dataset import DATASETS, Dataset, Loader, make_dataset
from landscape.data.micro_batches import MicroBatches, micro_batch_size
from landscape.data.samples import Samples, as_samples, random_subset

__all__ = [
    "CORRUPTIONS",
    "DATASETS",
    "SEVERITIES",
    "Batches",
    "Dataset",
    "Loader",
    "MicroBatches",
    "Objective",
    "Samples",
    "as_samples",
    "corrupt",
    "make_dataset",
    "micro_batch_size",
    "random_subset",
]
