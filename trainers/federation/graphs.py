"""The executor that records one local step as a CUDA graph and replays it for each step of each client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.compute.graphs import Again, CudaGraph, NotCapturable, OnlyCapturable, Record, Work
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.partitions.partition import Partition
from trainers.algorithm import Algorithm, Round, State
from trainers.federation.batches import planned_steps
from trainers.federation.execution import ClientResult, SequentialExecutor, States
from trainers.federation.federation import Federation
from trainers.federation.local import LocalWork
from trainers.federation.static import StaticStep, plan
from trainers.settings import Settings

_TRIAL = 32
"""Samples of the mini-batches that a step is tried on where a client's are all of its own."""


class GraphsExecutor(SequentialExecutor):
    """Trains one client after another by steps that are recorded once: the host starts a graph a step and waits for
    nothing in a round.

    A client's mini-batches and the draws of its augmentation come to the device in one copy before its first step, by
    the same generators as in the other executors, so that results are those of :class:`SequentialExecutor` to rounding.
    What a client does before and after its steps is as there.  Steps with a full mini-batch are recorded, shorter ones
    computed as they are; where mini-batches are all of a client's samples, the most common number of samples counts.

    Args:
        record: how steps are recorded: as CUDA graphs unless given; elsewhere they can be done again (:class:`Again`).

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from landscape import Partition, Samples
        >>> from landscape.autograd.flat import FlatModule
        >>> from landscape.compute.graphs import Again
        >>> from trainers import FedAvg, Settings
        >>> from trainers.federation import Federation, GraphsExecutor, LocalWork
        >>> data = Samples(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 1, 0]))
        >>> clients = Partition((np.array([0, 1]), np.array([2])))
        >>> model = FlatModule(torch.nn.Linear(1, 2), torch.device("cpu"), torch.float32)
        >>> work = LocalWork(epochs=1, batch_size=None, weight_decay=0.0, augment="none", seed=0)
        >>> executor = GraphsExecutor(model, data, clients, FedAvg(), work, Again.record)
        >>> federation = Federation(FedAvg(), executor, Settings(clients=2, per_round=2), torch.zeros(4))
        >>> record = federation.step()
        >>> record.clients, round(record.train_loss, 4), record.steps
        ([0, 1], 0.6931, 2)
    """

    def __init__(
        self,
        model: FlatModule,
        data: Samples,
        partition: Partition,
        algorithm: Algorithm,
        local: LocalWork,
        record: Record | None = None,
    ) -> None:
        super().__init__(model, data, partition, algorithm, local)
        self._held = [torch.from_numpy(indices).to("cpu", torch.long) for indices in partition.clients]
        sizes, batch = self.sizes, local.batch_size
        planned = [planned_steps(size, batch, local.epochs, steps=local.steps, last=local.last_batch) for size in sizes]
        common = np.bincount(sizes).argmax()
        self._static = StaticStep(
            model, data, algorithm, local, self._statistics,
            steps=max(planned), batch=min(max(sizes), batch or max(sizes)), recorded=batch or int(common),
            record=record or partial(CudaGraph, device=model.device),
        )  # fmt: skip

    def work(self, clients: Sequence[int], received: State, store: States, round: Round) -> Iterator[ClientResult]:
        """The results, in the order of ``clients``."""
        self._model.module.train()
        for client in clients:
            with self._threads(client), self._local.precision.arithmetic():
                result = self._client(client, received, store.fetch(client), round)
            yield result

    def _client(self, client: int, received: State, state: State, round: Round) -> ClientResult:
        local, static = self._local, self._static
        self._take_statistics(state, received)
        begun = self._begin(client, received, state, round)
        if self._adversary is not None:
            self._adversary.begin(state, tuple(self._data.inputs.shape[1:]))
        shape = self._data.inputs.shape[1:]
        planned = plan(self._held[client], begun.batches, local, shape, begun.augmentation)
        static.begin(begun, received, planned)
        for count in planned.counts:
            static.take(count)
        w, kept, total, perturbation = static.result()
        statistics = self._statistics.read() if len(self._statistics) else None
        steps, seen = len(planned.counts), sum(planned.counts)
        upload = self._end(begun.round, w, kept, begun.received, received, steps, statistics)
        return ClientResult(
            client, w, upload, kept, total / seen, seen, steps, steps * static.gradients,
            self._start_of(begun.w, received), perturbation,
        )  # fmt: skip


class _Watched(Again):
    """Work that is done again, where nothing may happen that a CUDA graph cannot hold."""

    def replay(self) -> None:
        with OnlyCapturable():
            self.work()

    @classmethod
    def record(cls, work: Work, warm: Work) -> _Watched:
        return cls(work)


def refusal(model: FlatModule, data: Samples, algorithm: Algorithm, local: LocalWork) -> str | None:
    """Why a local step cannot be recorded, in half a sentence; ``None`` where it can.

    A round of one client with two steps is tried, on the model's device; the model is left as it was.
    """
    if local.task != "classification":
        return f"the task is {local.task}, whose labels are augmented with its images"
    if data.streams:
        return "the samples stay in host memory"
    if not all(ours(part) for part in (algorithm, *vars(local.parts).values())):
        return "an algorithm or part of your own may decide in Python, at each step, what a graph decides once"
    held = np.arange(min(len(data), local.batch_size or _TRIAL))
    # What is sent is no part of a step, and a client alone cannot be hidden.
    trial = replace(local, epochs=1, steps=2, batch_size=len(held), parts=replace(local.parts, dp=None))
    statistics, before = BatchStatistics(model.module), model.buffer.clone()
    with statistics.untouched():
        executor = GraphsExecutor(model, data, Partition((held,)), algorithm, trial, _Watched.record)
        settings = Settings(clients=1, per_round=1, batchnorm=local.batchnorm)
        start = statistics.read().to(model.device)
        try:
            Federation(algorithm, executor, settings, before, trial.parts, start).step()
        except NotCapturable as error:
            return str(error)
        finally:
            model.load(before)
    return None


def require_recorded(model: FlatModule, data: Samples, algorithm: Algorithm, local: LocalWork) -> None:
    """Refuse what :func:`refusal` has a reason against, and devices without CUDA graphs.

    Raises:
        FedscapeError: local steps cannot be recorded as CUDA graphs.
    """
    if model.device.type != "cuda":
        raise FedscapeError(
            f"CUDA graphs are of CUDA devices, and the run is on {model.device}: give --device cuda, or another "
            "--executor"
        )
    if reason := refusal(model, data, algorithm, local):
        raise FedscapeError(f"local steps cannot be recorded as CUDA graphs: {reason}; give --executor sequential")


def ours(part: object) -> bool:
    """Whether an algorithm or part is one of this package's."""
    return type(part).__module__.partition(".")[0] in ("trainers", "landscape", "builtins")
