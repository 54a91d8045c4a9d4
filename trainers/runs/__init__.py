"""A run from its settings to its directory: training, evaluation, resuming, recorded runs."""

from trainers.runs.directory import RunDirectory
from trainers.runs.evaluation import Evaluator
from trainers.runs.planned import PlannedRun, RunStore
from trainers.runs.records import RecordedRun, read_runs
from trainers.runs.run import Run, train

__all__ = [
    "Evaluator",
    "PlannedRun",
    "RecordedRun",
    "Run",
    "RunDirectory",
    "RunStore",
    "read_runs",
    "train",
]
