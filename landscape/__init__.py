"""The loss as a function of a flat vector of parameters: models, data, losses, checkpoints."""

from typing import TYPE_CHECKING

import landscape.terminal.starting  # noqa: F401 - first: Ctrl-C is quiet from here on
from landscape.lazy import lazily

if TYPE_CHECKING:
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
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Checkpoint": "landscape.checkpoints.checkpoint",
            "DATASETS": "landscape.datasets",
            "Dataset": "landscape.datasets",
            "Evaluation": "landscape.evaluation",
            "FedscapeError": "landscape.errors",
            "Landscape": "landscape.landscape",
            "MODELS": "landscape.models",
            "ParameterSpace": "landscape.space",
            "Partition": "landscape.partitions.partition",
            "Samples": "landscape.data.samples",
            "__version__": "landscape.version",
            "build_model": "landscape.models",
            "load_dataset": "landscape.datasets",
            "make_dataset": "landscape.datasets",
            "make_partition": "landscape.partitions.partition",
        },
    )

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
