"""Data: samples, data sets and where they come from.

``python -m landscape.data`` lists, fetches and verifies data sets; :func:`landscape.datasets.load_dataset` loads one.
"""

from landscape.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from landscape.data.dataset import DATASETS, Dataset, Loader, make_dataset
from landscape.data.samples import Batches, MicroBatches, Objective, Samples

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
    "corrupt",
    "make_dataset",
]
