"""Checkpoints: the Fedscape format, state dicts of other programs, and distinct names for several checkpoints."""

from landscape.checkpoints.checkpoint import Checkpoint, run_files
from landscape.checkpoints.client_work import ClientWork
from landscape.checkpoints.foreign import checkpoint_file, file_and_client, open_checkpoint, opened
from landscape.checkpoints.names import distinct_labels
from landscape.checkpoints.opening import Opened, open_for_measurement

__all__ = [
    "Checkpoint",
    "ClientWork",
    "Opened",
    "checkpoint_file",
    "distinct_labels",
    "file_and_client",
    "open_checkpoint",
    "open_for_measurement",
    "opened",
    "run_files",
]
