"""The loss as a function of a flat vector of parameters: models, data, losses, checkpoints."""

import landscape.starting  # noqa: F401 - first: Ctrl-C is quiet from here on
from landscape.checkpoints.checkpoint import Checkpoint
from landscape.data.samples import Samples
from landscape.datasets import DATASETS, Dataset, load_dataset, make_dataset
from landscape.errors import FedscapeError
from landscape.evaluation import Evaluation
from landscape.landscape import Landscape
from landscape.models import MODELS, build_model
from landscape.partitions.partition import Partition, make_partition
from landscape.space import ParameterSpace
from landscape.version import __version__

__all__ = [
    "DATASETS",
    "MODELS",
    "Checkpoint",
    "Dataset",
    "Evaluation",
    "FedscapeError",
    "Landscape",
    "ParameterSpace",
    "Partition",
    "Samples",
    "__version__",
    "build_model",
    "load_dataset",
    "make_dataset",
    "make_partition",
]
