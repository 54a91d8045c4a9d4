"""One communication round after another: sampling, local work, aggregation, what clients keep."""

from trainers.federation.aggregate import Aggregate
from trainers.federation.client_store import ClientStore
from trainers.federation.execution import ClientResult, Executor, SequentialExecutor
from trainers.federation.federation import Federation, RoundRecord
from trainers.federation.local import LocalWork, local_step

__all__ = [
    "Aggregate",
    "ClientResult",
    "ClientStore",
    "Executor",
    "Federation",
    "LocalWork",
    "RoundRecord",
    "SequentialExecutor",
    "local_step",
]
