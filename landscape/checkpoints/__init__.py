"""Checkpoints: our own format, state dicts from elsewhere, and what tells several apart."""

from landscape.checkpoints.checkpoint import Checkpoint, run_files
from landscape.checkpoints.foreign import open_checkpoint, opened
from landscape.checkpoints.names import distinct_labels

__all__ = [
    "Checkpoint",
    "distinct_labels",
    "open_checkpoint",
    "opened",
    "run_files",
]
