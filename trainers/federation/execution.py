"""Executors: how the local work of clients is computed on a machine, which algorithms know nothing of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol, cast

import torch
from torch import Tensor

from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.compute.cost import threads_for
from landscape.compute.devices import on_device
from landscape.compute.randomness import global_seed, torch_generator
from landscape.data.micro_batches import cost_in
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.partitions.partition import Partition
from trainers.algorithm import Algorithm, Round, State
from trainers.federation.batches import batch_indices, planned_steps
from trainers.federation.local import Batch, LocalWork, WholeData, ascending, draw, local_step
from trainers.federation.perturbation import Noted, noting
from trainers.parts.ascent import Surroundings
from trainers.parts.local_optimizers import begin_round
from trainers.parts.server_optimizers import LocalSteps, ServerOptimizer

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
        start: with ``save_clients``, where the local steps began, if not at the model received, [d].
        perturbation: with ``save_clients``, that of the last local step, if there was one, [d].
    """

    client: int
    model: Tensor
    upload: dict[str, Tensor]
    state: State
    loss: Tensor
    seen: int
    steps: int
    gradients: int
    start: Tensor | None = None
    perturbation: Tensor | None = None


@dataclass(frozen=True)
class ResultRows:
    """Results of several clients that were trained at once, in rows.

    Attributes:
        clients: their ids, [S].
        models: their local models w_i, [S, d].
        uploads: the tensors they send, each [S, ...].
        states: the tensors they keep, each [S, ...].
        losses: mean loss of the local steps of each, [S].
        seen, steps, gradients: of each, as in :class:`ClientResult`.
        starts, perturbations: of each, as there, [S, d].
    """

    clients: list[int]
    models: Tensor
    uploads: dict[str, Tensor]
    states: State
    losses: Tensor
    seen: list[int]
    steps: list[int]
    gradients: list[int]
    starts: Tensor | None = None
    perturbations: Tensor | None = None

    @classmethod
    def of(cls, result: ClientResult) -> ResultRows:
        """One client's result as a row."""
        uploads = {name: tensor[None] for name, tensor in result.upload.items()}
        states = State.of({name: tensor[None] for name, tensor in vars(result.state).items()})
        start, perturbation = (None if one is None else one[None] for one in (result.start, result.perturbation))
        return cls(
            [result.client], result.model[None], uploads, states, result.loss[None], [result.seen], [result.steps],
            [result.gradients], start, perturbation,
        )  # fmt: skip

    def state(self, row: int) -> State:
        """What one client keeps; views."""
        return State.of({name: tensor[row] for name, tensor in vars(self.states).items()})

    @property
    def loss_of_all(self) -> Tensor:
        """The sum of the losses over all samples seen, float64."""
        seen = on_device(torch.tensor(self.seen, dtype=torch.float64), self.losses.device)
        return self.losses.double() @ seen


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
        received: what it received, as the algorithm sees it: with the client's own start in the place of w^t.
        round: with the number of its local steps.
        batches: of each step, positions among its samples.
        augmentation: draws the augmentation of its batches.
    """

    w: Tensor
    state: State
    received: State
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

    def work(
        self, clients: Sequence[int], received: State, store: States, round: Round
    ) -> Iterator[ClientResult | ResultRows]:
        """The results, in the order of ``clients``: one by one, or several in rows."""
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
        self._start = local.parts.start or algorithm.relaxed
        self._schedule = local.parts.local_schedule or algorithm.local_schedule
        self._server_optimizer = local.parts.server_optimizer or algorithm.server_optimizer
        self._noting = noting(algorithm, self._ascent, save_clients=local.save_clients)
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

    def work(
        self, clients: Sequence[int], received: State, store: States, round: Round
    ) -> Iterator[ClientResult | ResultRows]:
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
        self._take_statistics(state, received)
        begun = self._begin(client, received, state, round)
        steps, seen, gradients, w, noted = 0, 0, 0, begun.w, None
        total = torch.zeros((), dtype=torch.float64, device=received.w.device)
        if self._adversary is not None:
            self._adversary.begin(state, tuple(self._data.inputs.shape[1:]))
        clip = local.clip if local.clip_at != "gradient" else 0.0
        eps, linear = local.clip_eps, local.clip_at == "linear"
        optimizer, mine = local.parts.local_optimizer, self._indices[client]
        for positions in begun.batches:
            drawn = draw(
                self._data, mine[on_device(positions, mine.device)], local, begun.augmentation, self._model.dtype
            )
            batch = Batch(self._model, drawn, local, self._statistics)
            if self._adversary is not None:
                batch.move_by(self._adversary, state)
            here = self._here(begun.round, steps)
            around = Surroundings(self._model.space, state, received, here, batch)
            if self._noting and steps + 1 == begun.round.steps:
                noted = Noted.by(self._algorithm, w)
            gradient = ascending(batch.gradient, self._ascent, local, around, noted)
            w = local_step(
                w, gradient, self._algorithm, state, begun.received, here, local.weight_decay, clip, optimizer,
                clip_eps=eps, linear=linear,
            )  # fmt: skip
            assert batch.loss is not None, "an algorithm's direction must ask for a gradient"
            if self._adversary is not None and batch.slopes is not None:
                self._adversary.ascend(batch.slopes, state)
            total += len(positions) * batch.loss
            seen, steps, gradients = seen + len(positions), steps + 1, gradients + batch.gradients
        statistics = self._statistics.read() if len(self._statistics) else None
        upload = self._end(begun.round, w, state, begun.received, received, steps, statistics)
        perturbation = None if noted is None else noted.perturbation
        start = self._start_of(begun.w, received)
        return ClientResult(client, w, upload, state, total / seen, seen, steps, gradients, start, perturbation)

    def _start_of(self, w: Tensor, received: State) -> Tensor | None:
        """Where local steps began, to be kept where that is not the very model received."""
        return w if self._local.save_clients and w is not received.w else None

    def _take_statistics(self, state: State, received: State) -> None:
        """Give the model BatchNorm's running statistics that a client begins with: its own, or those received."""
        if len(self._statistics):
            self._statistics.load(getattr(state if self._local.batchnorm == "silo" else received, STATISTICS))

    def _begin(self, client: int, received: State, state: State, round: Round) -> Begun:
        """A client before its first local step."""
        local = self._local
        batches, planned = self._batches(len(self._indices[client]), round, client)
        round = replace(round, steps=planned)
        augmentation = torch_generator(local.seed, "augmentation", round.number, client)
        self._algorithm.prepare(state, received, self._everything(client, round), round)
        begun = self._seen(state, received)
        w = self._algorithm.start(state, begun, round)
        begin_round(local.parts.local_optimizer, state, w)
        return Begun(w, state, begun, round, batches, augmentation)

    def _seen(self, state: State, received: State) -> State:
        """What a client received, as the algorithm sees it; in rows where the state is."""
        return received if self._start is None else self._start.begun(state, received)

    def _made_of(
        self, optimizer: ServerOptimizer, upload: dict[str, Tensor], round: Round, steps: int | Tensor
    ) -> dict[str, Tensor]:
        """What a server optimiser has clients send in place of the algorithm's upload."""

        def taken(own: int) -> LocalSteps:
            schedule = self._schedule
            shares = [1.0 if schedule is None else float(schedule.share(step, own)) for step in range(own)]
            return LocalSteps(round.lr, shares, self._local.parts.local_optimizer, self._algorithm.proximal_weight)

        if not isinstance(steps, Tensor):
            return optimizer.sent(upload, taken(steps))
        each = [
            optimizer.sent({name: sent if sent.dim() == 1 else sent[row] for name, sent in upload.items()}, taken(own))
            for row, own in enumerate(steps.flatten().int().tolist())
        ]
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}

    def _here(self, round: Round, step: int) -> Round:
        """A local step's number, and its share of the rate."""
        share = 1.0 if self._schedule is None else self._schedule.share(step, round.steps)
        return replace(round, step=step, share=share)

    def _end(
        self,
        round: Round,
        w: Tensor,
        state: State,
        begun: State,
        received: State,
        steps: int | Tensor,
        statistics: Tensor | None,
    ) -> dict[str, Tensor]:
        """What a client sends after its last local step, or several in rows do; its state is what it keeps.

        ``begun`` is what it received as the algorithm sees it, ``received`` as it came; ``statistics`` are BatchNorm's,
        [..., b], where there are some; ``steps`` as in :class:`Round`.
        """
        # A column of several clients' numbers is to an algorithm's text what a number is.
        number = cast(int, steps)
        averaged = round
        if self._schedule is not None:
            share, first = self._schedule.mean(number), round.dual_lr
            averaged = replace(round, lr=round.lr * share, dual_lr=None if first is None else first * share)
        upload = self._algorithm.upload(w, state, begun, averaged, number)
        if self._server_optimizer is not None:
            upload = self._made_of(self._server_optimizer, upload, round, steps)
        if self._start is not None:
            upload = self._start.sent(upload, begun, received)
            self._start.remember(state, w)
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
