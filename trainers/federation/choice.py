"""Which executor a run takes: by shapes and the device, never by the clock."""

from __future__ import annotations

from dataclasses import dataclass

from landscape.autograd.flat import FlatModule
from landscape.autograd.stacked import StackedModule
from landscape.compute.cost import EXAMPLES, sample_cost, threads_for
from landscape.data.samples import Samples
from landscape.partitions.partition import Partition
from trainers.algorithm import Algorithm
from trainers.federation.batched import WIDTH, BatchedExecutor, adversary_state, refusal, require_at_once
from trainers.federation.execution import SequentialExecutor
from trainers.federation.graphs import GraphsExecutor, ours, require_recorded
from trainers.federation.local import LocalWork
from trainers.settings import ExecutorName, Settings

MOST_FLOPS = {"cpu": 5e7, "cuda": 1e9}
"""``auto`` takes several clients at once below so many operations of a mini-batch's forward pass.

On one CPU thread, steps of ten clients at once beside one after the other: digits_cnn with batches of 8 (1.3e6)
5.4 times as fast, of 32 (5.4e6) 3.6 times, of 128 (2.2e7) 2.3 times, of 256 (4.3e7) 1.6 times; dense 784-64-64-10 with
batches of 20 (2.2e6) 4.1 times, 784-256-256-10 of 100 (5.4e7) 1.5 times; lenet_fed of 5 (1.5e8) 1.0, of 50 0.7 times.
For CUDA nothing has been measured: a step of a small network is the start of its kernels there, and
``benchmarks/gpu.py`` times both.
"""
MOST_PARAMETERS = {"cpu": 500_000, "cuda": 10_000_000}
"""``auto`` takes several clients at once below so many parameters: rows must stay in the caches.

Measured as above: dense 3072-128-10 (400,000) with batches of 32 2.0 times, 784-512-512-10 (670,000) of 20 1.6 times.
"""
_MEMORY = 2**30
"""Bytes of the rows of clients at once at most, counted as twelve vectors a client, and four of an adversary's."""


@dataclass(frozen=True)
class Choice:
    """An executor, and why it was taken.

    Attributes:
        name: ``sequential``, ``batched`` or ``graphs``.
        width: clients at once at most.
        reason: in half a sentence.
    """

    name: ExecutorName
    width: int
    reason: str

    def __str__(self) -> str:
        """The line that a run prints.

        Example:
            >>> from trainers.federation.choice import Choice
            >>> print(Choice("batched", 20, "a step is small"))
            clients are trained up to 20 at once: a step is small (--executor batched)
        """
        how = {
            "sequential": "one after the other",
            "batched": f"up to {self.width} at once",
            "graphs": "one after the other, each step replayed as a CUDA graph",
        }[self.name]
        return f"clients are trained {how}: {self.reason} (--executor {self.name})"


def choose(model: FlatModule, data: Samples, algorithm: Algorithm, local: LocalWork, settings: Settings) -> Choice:
    """The executor that the settings ask for, or the one that suits the shapes and the device.

    ``auto`` never takes CUDA graphs: they have not been measured yet (``benchmarks/gpu.py`` does it).

    Raises:
        FedscapeError: several clients at once, or CUDA graphs, are asked for, and cannot be.
    """
    if settings.executor == "sequential":
        return Choice("sequential", 1, "as asked for")
    if settings.executor == "graphs":
        require_recorded(model, data, algorithm, local)
        return Choice("graphs", 1, "as asked for")
    moved = _moved(model, data, algorithm, local)
    width = settings.clients_at_once or _width(model, settings, moved)
    if settings.executor == "batched":
        require_at_once(StackedModule(model), data, algorithm, local)
        return Choice("batched", width, "as asked for")
    reason = _against(model, data, algorithm, local, width, moved)
    return Choice("batched", width, "a step is small") if reason is None else Choice("sequential", 1, reason)


def executor(
    choice: Choice,
    model: FlatModule,
    data: Samples,
    partition: Partition,
    algorithm: Algorithm,
    local: LocalWork,
) -> SequentialExecutor:
    """The executor that was chosen."""
    if choice.name == "sequential":
        return SequentialExecutor(model, data, partition, algorithm, local)
    if choice.name == "graphs":
        return GraphsExecutor(model, data, partition, algorithm, local)
    return BatchedExecutor(model, data, partition, algorithm, local, choice.width)


def _moved(model: FlatModule, data: Samples, algorithm: Algorithm, local: LocalWork) -> int:
    """Numbers that a client keeps for an adversary of its inputs."""
    adversary = local.parts.adversary or algorithm.adversary
    if adversary is None:
        return 0
    return sum(kept.numel() for kept in adversary_state(adversary, model, data).tensors().values())


def _width(model: FlatModule, settings: Settings, moved: int) -> int:
    size = (12 * model.space.dimension + 4 * moved) * model.dtype.itemsize
    return max(1, min(settings.per_round if settings.sampling == "exact" else settings.clients, _MEMORY // size, WIDTH))


def _against(
    model: FlatModule, data: Samples, algorithm: Algorithm, local: LocalWork, width: int, moved: int
) -> str | None:
    """Why ``auto`` does not take several clients at once."""
    kind = model.device.type
    if width == 1:
        return "there is one at a time"
    if not all(ours(part) for part in (algorithm, *vars(local.parts).values())):
        return "an algorithm or part of your own may not be written for rows of clients"
    cost = sample_cost(model.module, data.batch(slice(0, EXAMPLES), model.dtype)[0])
    batch = local.batch_size or len(data)
    if cost is None or cost.flops * batch >= MOST_FLOPS[kind]:
        return "a step is all arithmetic"
    if model.space.dimension + moved >= MOST_PARAMETERS[kind]:
        return "rows of so many parameters do not stay in the caches"
    with threads_for(cost.flops * batch):  # the trial is as small as the steps
        return refusal(StackedModule(model), data, algorithm, local)
