"""Executors: how the local work of clients is computed on a machine, which algorithms know nothing of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.compute.cost import threads_for
from landscape.compute.randomness import global_seed, torch_generator
from landscape.data.micro_batches import cost_in
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.partitions.partition import Partition
from trainers.algorithm import Algorithm, Round, State
from trainers.federation.batches import batch_indices, planned_steps
from trainers.federation.local import Batch, LocalWork, WholeData, ascending, draw, local_step
from trainers.parts.ascent import Surroundings
from trainers.parts.local_optimizers import begin_round

STATISTICS = "batchnorm"
"""Name of BatchNorm's running statistics in the states and messages of clients."""


@dataclass(frozen=True)
class ClientResult:
    """Result of one client's local work.

    Attributes:
        client: its id.
        model: its local model w_i, [d].
        upload: the tensors it sends, with BatchNorm's statistics if these are averaged.
        state: the tensors it keeps.
        loss: mean loss of its local steps at the unperturbed points, over the samples seen.
        seen: samples used, counted with repetitions.
        steps: local steps taken, K.
        gradients: gradients of mini-batches taken for them.
    """

    client: int
    model: Tensor
    upload: dict[str, Tensor]
    state: State
    loss: Tensor
    seen: int
    steps: int
    gradients: int


@dataclass(frozen=True)
class Told:
    """What a client sends before its local work, in a round of two phases.

    Attributes:
        client: its id.
        upload: the tensors it sends.
        state: the tensors it keeps.
    """

    client: int
    upload: dict[str, Tensor]
    state: State


@dataclass(frozen=True)
class Begun:
    """A client before its first local step.

    Attributes:
        w: where it starts, [d].
        state: what it keeps.
        round: with the number of its local steps.
        batches: of each step, positions among its samples.
        augmentation: draws the augmentation of its batches.
    """

    w: Tensor
    state: State
    round: Round
    batches: Iterator[Tensor]
    augmentation: torch.Generator


class States(Protocol):
    """Source of clients' states for executors."""

    def fetch(self, client: int) -> State:
        """The state of one client, on the device."""
        ...


class Executor(Protocol):
    """Carries out the local work of the sampled clients."""

    @property
    def sizes(self) -> Sequence[int]:
        """Number of samples of each client, [N]."""
        ...

    def ask(self, clients: Sequence[int], received: State, store: States, round: Round) -> Iterator[Told]:
        """What they send before their local work, in the order of ``clients``."""
        ...

    def work(self, clients: Sequence[int], received: State, store: States, round: Round) -> Iterator[ClientResult]:
        """The results, in the order of ``clients``."""
        ...


class SequentialExecutor:
    """Trains one client after another on one device, with a plain module whose parameters are views of a flat buffer.

    Raises:
        FedscapeError: augmentation that does not fit the data.
    """

    def __init__(
        self, model: FlatModule, data: Samples, partition: Partition, algorithm: Algorithm, local: LocalWork
    ) -> None:
        if data.inputs.dim() != 4 and (local.augment != "none" or local.parts.cutout):
            raise FedscapeError("flip-crop and cutout need images: leave out --augment and --cutout")
        if local.parts.cutout and local.parts.cutout > min(data.inputs.shape[2:]):
            height, width = data.inputs.shape[2:]
            raise FedscapeError(
                f"a cutout square of {local.parts.cutout} pixels would hide whole images of {height} × {width}: "
                "give a smaller --cutout-size"
            )
        if local.parts.mixup and not (data.inputs.is_floating_point() or data.inputs.dtype == torch.uint8):
            raise FedscapeError("mixup takes means of inputs, and these are token ids: leave out --mixup")
        self._model, self._data, self._algorithm, self._local = model, data, algorithm, local
        self._ascent = local.parts.ascent or algorithm.ascent
        self._adversary = local.parts.adversary or algorithm.adversary
        self._statistics = BatchStatistics(model.module)
        self._cost = cost_in(model.module, data, model.dtype)
        self._indices = [torch.from_numpy(indices).to(data.device) for indices in partition.clients]
        self._mean_size = sum(self.sizes) / len(self._indices)

    @property
    def sizes(self) -> list[int]:
        """Number of samples of each client, [N]."""
        return [len(mine) for mine in self._indices]

    def ask(self, clients: Sequence[int], received: State, store: States, round: Round) -> Iterator[Told]:
        """What they send before their local work, in the order of ``clients``."""
        self._model.module.train()
        for client in clients:
            if len(self._statistics) and self._local.batchnorm != "silo":
                self._statistics.load(getattr(received, STATISTICS))
            state = store.fetch(client)
            with self._threads(client), self._local.precision.arithmetic():
                upload = self._algorithm.ask(state, received, self._everything(client, round), round)
            yield Told(client, upload, state)

    def work(self, clients: Sequence[int], received: State, store: States, round: Round) -> Iterator[ClientResult]:
        """The results, in the order of ``clients``."""
        self._model.module.train()
        for client in clients:
            seeded = global_seed(self._local.seed, "dropout", round.number, client)
            with self._threads(client), self._local.precision.arithmetic(), seeded:
                result = self._client(client, received, store.fetch(client), round)
            yield result

    def _threads(self, client: int) -> AbstractContextManager[None]:
        """As many CPU threads as suit the client's mini-batches."""
        held = len(self._indices[client])
        batch = min(held, self._local.batch_size or held)
        return threads_for(math.inf if self._cost is None else self._cost.flops * batch)

    def _client(self, client: int, received: State, state: State, round: Round) -> ClientResult:
        local = self._local
        if len(self._statistics):
            self._statistics.load(getattr(state if local.batchnorm == "silo" else received, STATISTICS))
        begun = self._begin(client, received, state, round)
        steps, seen, gradients, w = 0, 0, 0, begun.w
        total = torch.zeros((), dtype=torch.float64, device=received.w.device)
        if self._adversary is not None:
            self._adversary.begin(state, tuple(self._data.inputs.shape[1:]))
        clip = local.clip if local.clip_at != "gradient" else 0.0
        eps, linear = local.clip_eps, local.clip_at == "linear"
        optimizer, mine = local.parts.local_optimizer, self._indices[client]
        for positions in begun.batches:
            drawn = draw(self._data, mine[positions.to(mine.device)], local, begun.augmentation, self._model.dtype)
            batch = Batch(self._model, drawn, local, self._statistics)
            if self._adversary is not None:
                batch.move_by(self._adversary, state)
            here = replace(begun.round, step=steps)
            around = Surroundings(self._model.space, state, received, here)
            gradient = ascending(batch.gradient, self._ascent, local, around)
            w = local_step(
                w, gradient, self._algorithm, state, received, here, local.weight_decay, clip, optimizer,
                clip_eps=eps, linear=linear,
            )  # fmt: skip
            assert batch.loss is not None, "an algorithm's direction must ask for a gradient"
            if self._adversary is not None and batch.slopes is not None:
                self._adversary.ascend(batch.slopes, state)
            total += len(positions) * batch.loss
            seen, steps, gradients = seen + len(positions), steps + 1, gradients + batch.gradients
        statistics = self._statistics.read() if len(self._statistics) else None
        upload = self._end(begun.round, w, state, received, steps, statistics)
        return ClientResult(client, w, upload, state, total / seen, seen, steps, gradients)

    def _begin(self, client: int, received: State, state: State, round: Round) -> Begun:
        """A client before its first local step."""
        local = self._local
        batches, planned = self._batches(len(self._indices[client]), round, client)
        round = replace(round, steps=planned)
        augmentation = torch_generator(local.seed, "augmentation", round.number, client)
        self._algorithm.prepare(state, received, self._everything(client, round), round)
        w = self._algorithm.start(state, received, round)
        begin_round(local.parts.local_optimizer, state, w)
        return Begun(w, state, round, batches, augmentation)

    def _end(
        self, round: Round, w: Tensor, state: State, received: State, steps: int, statistics: Tensor | None
    ) -> dict[str, Tensor]:
        """What a client sends after its last local step; its state is what it keeps.

        ``statistics`` are BatchNorm's, [b], where there are some.
        """
        upload = self._algorithm.upload(w, state, received, round, steps)
        if self._ascent is not None:
            self._ascent.remember(state, received)
        if statistics is not None and self._local.batchnorm == "silo":
            setattr(state, STATISTICS, statistics)
        elif statistics is not None:
            upload = {**upload, STATISTICS: statistics}
        return upload

    def _everything(self, client: int, round: Round) -> WholeData:
        """All data of a client."""
        stream = (self._local.seed, "full gradient", round.number, client)
        local, held = self._local, len(self._indices[client])
        steps = planned_steps(held, local.batch_size, local.epochs, steps=local.steps, last=local.last_batch)
        epochs = steps / planned_steps(held, local.batch_size, 1, last=local.last_batch)
        return WholeData(
            self._model, self._data, self._indices[client], stream, local.task, self._cost, local.precision,
            size=held / self._mean_size, epochs=epochs,
        )  # fmt: skip

    def _batches(self, held: int, round: Round, client: int) -> tuple[Iterator[Tensor], int]:
        """A client's mini-batches of a round, as positions among the samples it holds, and how many there are, K."""
        local = self._local
        order = torch_generator(local.seed, "batches", round.number, client)
        size, epochs, steps, last = local.batch_size, local.epochs, local.steps, local.last_batch
        batches = batch_indices(held, size, epochs, order, steps=steps, last=last)
        return batches, planned_steps(held, size, epochs, steps=steps, last=last)
