"""Communication rounds: sampling of clients, local work, aggregation, and storage of clients' states."""

from trainers.federation.aggregate import Aggregate
from trainers.federation.batched import BatchedExecutor
from trainers.federation.batches import batch_indices
from trainers.federation.client_store import ClientStore
from trainers.federation.execution import ClientResult, Executor, SequentialExecutor
from trainers.federation.federation import Federation, RoundRecord
from trainers.federation.graphs import GraphsExecutor
from trainers.federation.local import LocalWork, local_step
from trainers.federation.sampling import sampled_clients

__all__ = [
    "Aggregate",
    "BatchedExecutor",
    "ClientResult",
    "ClientStore",
    "Executor",
    "Federation",
    "GraphsExecutor",
    "LocalWork",
    "RoundRecord",
    "SequentialExecutor",
    "batch_indices",
    "local_step",
    "sampled_clients",
]
