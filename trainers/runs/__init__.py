"""A run from its settings to its directory: training, evaluation, resuming, reports."""

from trainers.runs.directory import RunDirectory
from trainers.runs.report import RecordedRun, read_runs
from trainers.runs.run import Run, train

__all__ = [
    "RecordedRun",
    "Run",
    "RunDirectory",
    "read_runs",
    "train",
]
