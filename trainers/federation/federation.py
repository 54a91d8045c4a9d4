"""The federation: the loop over communication rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from landscape.checkpoints.client_work import ClientWork
from landscape.compute.regions import within
from landscape.errors import FedscapeError
from landscape.storage.plain import Numbers
from landscape.storage.schema import Either, Keyed, Number, Record, require
from trainers.algorithm import Algorithm, Round, State
from trainers.federation.aggregate import Aggregate
from trainers.federation.batches import dual_steps
from trainers.federation.client_store import ClientStore
from trainers.federation.execution import STATISTICS, ClientResult, Executor, ResultRows
from trainers.federation.perturbation import Saved
from trainers.federation.privacy import Protection
from trainers.federation.sampling import sampled_clients
from trainers.federation.weights import client_weights
from trainers.parts.local_optimizers import kept_memory
from trainers.parts.parts import Parts
from trainers.parts.swa import RunningMean
from trainers.settings import Settings


@dataclass(frozen=True)
class RoundRecord:
    """Result of a round.

    Attributes:
        round: its number, 1 for the first.
        train_loss: mean loss of the local steps, over all samples seen.
        clients: ids of the sampled clients, ascending.
        drift: (1/n) Σ ‖w_i − w‖², w the new server model.
        steps: local steps of all sampled clients together.
        gradients: gradients of mini-batches taken for them.
        bytes_down, bytes_up: traffic, counted from the tensors sent; 0 if one machine holds all data.
        lr: the local rate.
        seconds_local: time of the local work of all sampled clients.
        seconds_aggregation: time of the aggregation and of the server's step.
    """

    round: int
    train_loss: float
    clients: list[int]
    drift: float
    steps: int
    gradients: int
    bytes_down: int
    bytes_up: int
    lr: float
    seconds_local: float
    seconds_aggregation: float


class Federation:
    """The state of server and clients, advanced round by round.

    Args:
        algorithm: arithmetic of clients and server.
        executor: computes the local work.
        settings: number of clients, rates, seed, and whether local models are kept.
        w: the initial model, [d].
        parts: added to the algorithm; the executor has its own copy of those for local work.
        statistics: the initial running statistics of BatchNorm, [b]; none unless given.
        folder: the run directory, for the files of ``settings.client_store``.
        store: makes the store of what clients keep; :class:`ClientStore` unless given.

    Attributes:
        weights: the clients' weights p_i in the objective, and the expected ones of their models.
        optimizer_state: the server optimiser's tensors by name; never sent.
        statistics: BatchNorm's running statistics at the server, [b]; the initial ones if clients keep their own.
        local_models: w_i of the last round's sampled clients by id, [d] in host memory; empty unless
            ``settings.save_clients``.
        client_work: what these clients received, where they began, and their perturbations; ``None`` unless
            ``settings.save_clients``.
        averaged: the mean of the server models that SWA captured.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from landscape import Partition, Samples
        >>> from landscape.autograd.flat import FlatModule
        >>> from trainers import FedAvg, Settings
        >>> from trainers.federation import Federation, LocalWork, SequentialExecutor
        >>> data = Samples(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 1, 0]))
        >>> clients = Partition((np.array([0, 1]), np.array([2])))
        >>> model = FlatModule(torch.nn.Linear(1, 2), torch.device("cpu"), torch.float32)
        >>> work = LocalWork(epochs=1, batch_size=None, weight_decay=0.0, augment="none", seed=0)
        >>> settings = Settings(clients=2, per_round=2)
        >>> executor = SequentialExecutor(model, data, clients, FedAvg(), work)
        >>> federation = Federation(FedAvg(), executor, settings, torch.zeros(4))
        >>> record = federation.step()
        >>> record.clients, round(record.train_loss, 4), record.bytes_up  # log 2, and twice four numbers of 4 bytes
        ([0, 1], 0.6931, 32)
        >>> federation.server.w.sum().abs() < 1e-6  # the two classes move opposite ways
        tensor(True)
    """

    def __init__(
        self,
        algorithm: Algorithm,
        executor: Executor,
        settings: Settings,
        w: Tensor,
        parts: Parts | None = None,
        statistics: Tensor | None = None,
        folder: Path | None = None,
        store: Callable[..., ClientStore] = ClientStore,
    ) -> None:
        self.algorithm, self.executor, self.settings, self.parts = algorithm, executor, settings, parts or Parts()
        self.weights = client_weights(executor.sizes, settings)
        self.server = State.of({"w": w.clone(), **algorithm.server_state(w)})
        self.statistics = w.new_zeros(0) if statistics is None else statistics.clone()
        self._protection = Protection(self.parts.dp, algorithm, settings, batchnorm=len(self.statistics) > 0)
        self._silo = len(self.statistics) > 0 and settings.batchnorm == "silo"
        self._initial = w
        self._start = self.parts.start or algorithm.relaxed
        # Neither store holds this object, which holds them: recorded steps would stay in a GPU's memory long after it.
        initial_state = partial(_initial_state, algorithm, self.parts, w, self.statistics if self._silo else None)
        self._optimizer = self.parts.server_optimizer or algorithm.server_optimizer
        where, clients = settings.client_store, settings.clients
        self.store = store(initial_state, w.device, where=where, clients=clients, folder=folder and folder / "clients")
        self.optimizer_state = {} if self._optimizer is None else self._optimizer.state(w)
        size = None if settings.batch_size == "full" else int(settings.batch_size)
        self._dual_steps = dual_steps(
            executor.sizes, size, settings.local_epochs, settings.dual_steps, steps=settings.local_steps
        )
        self.round = 0
        self.local_models: dict[int, Tensor] = {}
        self.client_work: ClientWork | None = None
        self.averaged = RunningMean()
        # Used for all-clients-mean only: the last local models of all clients take N times the memory of one model.
        self._latest = ClientStore(
            lambda: {"model": w},
            w.device,
            where=where if settings.evaluated_model == "all-clients-mean" else "host",
            clients=clients,
            folder=folder and folder / "latest",
        )
        self._evaluated = w.clone()

    def step(self) -> RoundRecord:
        """One round: sample, broadcast, local work, aggregate, server step."""
        settings, number = self.settings, self.round + 1
        sampled = sampled_clients(settings, number)
        round = self._numbers(number, len(sampled))
        sent = State.of(self.algorithm.broadcast(self.server))
        if self._optimizer is not None:
            sent.w = self._optimizer.ahead(sent.w, self.optimizer_state)
        if len(self.statistics) and not self._silo:
            setattr(sent, STATISTICS, self.statistics)
        aggregate = self._protection.aggregate()
        saved, uphill = Saved(), self.algorithm.server_perturbation(self.server) if settings.save_clients else None
        clock = _Clock(sent.w.device)
        bytes_up = self._ask(sampled, sent, round) if self.algorithm.two_phases else 0
        loss, seen, steps, gradients = torch.zeros((), dtype=torch.float64, device=sent.w.device), 0, 0, 0
        for found in within("local arithmetic", self.executor.work(sampled, sent, self.store, round)):
            clock.lap("local")
            result = ResultRows.of(found) if isinstance(found, ClientResult) else found
            uploads = self._protection.uploads(result, number, len(sampled))
            aggregate.add_rows(uploads, [self._weight(c) for c in result.clients], result.models, result.steps)
            loss, seen = loss + result.loss_of_all, seen + sum(result.seen)
            steps, gradients = steps + sum(result.steps), gradients + sum(result.gradients)
            bytes_up += self._traffic(State.of(uploads))
            for row, client in enumerate(result.clients):
                self.store.put(client, result.state(row))
                self._follow(client, result.models[row])
            if settings.save_clients:
                saved.add(result.clients, result.models, result.starts, result.perturbations)
            clock.lap("aggregation")
        mean, before = aggregate.mean(), self.server.w
        if self._start is not None:
            self._start.averaged(mean)
        if self._optimizer is not None:
            mean.delta, self.optimizer_state = self._optimizer.change(mean, self.optimizer_state)
        self.algorithm.server_step(self.server, mean, round)
        if len(self.statistics) and not self._silo:
            self.statistics = getattr(mean, STATISTICS)
        if settings.evaluated_model == "sampled-mean":
            self._evaluated = aggregate.model()
        elif settings.evaluated_model == "last-two-mean":  # the first round has no model of a round before
            self._evaluated = self.server.w if number == 1 else (before + self.server.w) / 2
        if self.parts.swa is not None and self.parts.swa.captures(number, settings.rounds):
            self.averaged.add(self.server.w)
        self.round, self.local_models = number, saved.models
        self.client_work = saved.work(sent.w, before, uphill) if settings.save_clients else None
        drift = aggregate.drift(self.server.w)
        exchanged = 0 if self.algorithm.pooled else 1  # one machine holds all data: no traffic
        clock.lap("aggregation")
        return RoundRecord(
            number,
            (loss / seen).item(),
            sampled,
            drift,
            steps,
            gradients,
            exchanged * len(sampled) * self._traffic(sent),
            exchanged * bytes_up,
            round.lr,
            clock.seconds("local"),
            clock.seconds("aggregation"),
        )

    def _numbers(self, number: int, sampled: int) -> Round:
        """The numbers of a round of so many clients."""
        settings = self.settings
        return Round(
            number,
            self._rate(number),
            self._protection.participation(sampled),
            dual_steps=self._dual_steps,
            dual_lr=self._rate(1) if settings.dual_lr == "first" else None,
            norm_eps=settings.norm_eps,
        )

    def _ask(self, sampled: Sequence[int], sent: State, round: Round) -> int:
        """The first phase of a round of two: adds the answer to what is sent; the bytes that the clients sent."""
        told, bytes_up = Aggregate(), 0
        for each in self.executor.ask(sampled, sent, self.store, round):
            told.add(each.upload, self._weight(each.client), sent.w)
            self.store.put(each.client, each.state)
            bytes_up += State.of(each.upload).nbytes()
        for name, tensor in self.algorithm.answer(self.server, told.mean(), round).items():
            setattr(sent, name, tensor)
        return bytes_up

    def _traffic(self, message: State) -> int:
        """The bytes of a message, but for what the server has itself."""
        return message.nbytes() - sum(getattr(message, name).nbytes for name in self.algorithm.on_server)

    @property
    def model(self) -> Tensor:
        """The model that is evaluated and saved, [d]: the server's, or a mean of local models."""
        return self.server.w if self.settings.evaluated_model == "server" else self._evaluated

    def finite(self) -> bool:
        """Whether every coordinate of the server's model is a finite number."""
        return bool(self.server.w.isfinite().all())

    def export(self) -> dict[str, Any]:
        """The state that resuming needs: tensors and numbers only."""
        server = {name: tensor.cpu() for name, tensor in self.server.tensors().items()}
        optimizer = {name: tensor.cpu() for name, tensor in self.optimizer_state.items()}
        return {
            "round": self.round,
            "server": server,
            "optimizer": optimizer,
            "statistics": self.statistics.cpu(),
            "averaged": self.averaged.export(),
            "evaluated": self._evaluated.cpu(),
            "latest": self._latest.export(),
            "clients": self.store.export(),
        }

    def settle(self) -> None:
        """Remove clients' files that the last export does not need, after that export was saved."""
        self.store.settle()
        self._latest.settle()

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state of :meth:`export`.

        Raises:
            FedscapeError: the state is of another version, damaged or of another run, or a client's file is missing.
        """
        missing = [name for name in self.export() if name not in state]
        if missing:
            raise FedscapeError(
                f"state.pt is of another version of Fedscape (it has no {', '.join(missing)}) and cannot be resumed by "
                "this one: start the run anew with another --out"
            )
        require(state, self._schema(), "state.pt")
        device = self._initial.device
        self.round = int(state["round"])
        self.server = State.of({name: tensor.to(device) for name, tensor in state["server"].items()})
        self.optimizer_state = {name: tensor.to(device) for name, tensor in state["optimizer"].items()}
        self.statistics = state["statistics"].to(device)
        self.averaged.restore(state["averaged"], device)
        self._evaluated = state["evaluated"].to(device)
        self._latest.restore(state["latest"])
        self.store.restore(state["clients"])

    def _schema(self) -> Record:
        """What a state of this run is: tensors of the names, shapes and types that it has now."""
        clients = Number(0, self.settings.clients - 1, whole=True)
        version, w = Number(1, whole=True), self._initial

        def tensors(named: Mapping[str, Tensor]) -> Record:
            return Record({name: Numbers.like(tensor) for name, tensor in named.items()}, extra=False)

        nothing = Record({"count": Number(0, 0, whole=True), "value": Numbers((0,))}, extra=False)
        mean = Record({"count": Number(1, whole=True), "value": Numbers.like(w)}, extra=False)
        return Record(
            {
                "round": Number(0, whole=True),
                "server": tensors(self.server.tensors()),
                "optimizer": tensors(self.optimizer_state),
                "statistics": Numbers(tuple(self.statistics.shape), self.statistics.dtype),
                "averaged": Either((nothing, mean)),
                "evaluated": Numbers.like(w),
                "latest": Keyed(clients, Either((version, self._latest.schema))),
                "clients": Keyed(clients, Either((version, self.store.schema))),
            },
            extra=False,
        )

    def _weight(self, client: int) -> float:
        return float(self.weights.objective[client])

    def _rate(self, number: int) -> float:
        settings, swa = self.settings, self.parts.swa
        rate = settings.schedule.rate(number, settings.rounds, settings.lr)
        return rate if swa is None else swa.rate(number, settings.rounds, rate)

    def _follow(self, client: int, model: Tensor) -> None:
        """Update the mean of all clients' latest models, if that is the model to evaluate."""
        if self.settings.evaluated_model == "all-clients-mean":
            before = self._latest.fetch(client).model
            self._evaluated = self._evaluated + self._weight(client) * (model - before)
            self._latest.put(client, State(model=model))


def _initial_state(algorithm: Algorithm, parts: Parts, w: Tensor, statistics: Tensor | None) -> dict[str, Tensor]:
    """What a client keeps before its first round: the algorithm's, its parts' and, if it keeps any, its statistics."""
    own = algorithm.client_state(w)
    ascent, adversary = parts.ascent or algorithm.ascent, parts.adversary or algorithm.adversary
    for part in (ascent, adversary, parts.start or algorithm.relaxed):
        theirs = {} if part is None else part.client_state(w)
        if twice := own.keys() & theirs.keys():
            names = f"{type(algorithm).__name__} and {type(part).__name__}"
            raise FedscapeError(f"{names} both keep {', '.join(twice)} on the clients: rename one")
        own |= theirs
    own |= kept_memory(parts.local_optimizer, w)
    return own if statistics is None else {**own, STATISTICS: statistics}


class _Clock:
    """Seconds by activity.

    On CUDA the device notes when it gets there, and the host does not wait until it is asked for the seconds.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._cuda = device, device.type == "cuda"
        self._laps: list[tuple[str, Any]] = []
        self._begin = self._now()

    def lap(self, name: str) -> None:
        """Add the time since the last lap to the activity ``name``."""
        self._laps.append((name, self._now()))

    def seconds(self, name: str) -> float:
        """Of all laps of an activity."""
        total, last = 0.0, self._begin
        if self._cuda and self._laps:
            self._laps[-1][1].synchronize()
        for activity, at in self._laps:
            if activity == name:
                total += last.elapsed_time(at) / 1000 if self._cuda else at - last
            last = at
        return total

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event
