"""The executor that advances several clients at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from landscape.autograd.flat import FlatModule
from landscape.autograd.stacked import StackedModule
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.partitions.partition import Partition
from trainers.algorithm import Algorithm, Round, State
from trainers.federation.execution import STATISTICS, ClientResult, SequentialExecutor, States
from trainers.federation.local import LocalWork, ascending, draw, local_step
from trainers.federation.stacking import Batches, DrawnRows, beside, rows, stacked
from trainers.parts.ascent import Surroundings

WIDTH = 64
"""Clients at once at most, unless their number is given: beyond it a step of small networks is all arithmetic."""


@dataclass(frozen=True)
class Leaver:
    """A client after its last local step, with all that it has computed."""

    client: int
    w: Tensor
    state: State
    round: Round
    steps: int
    loss: Tensor
    seen: int
    gradients: int
    statistics: dict[str, Tensor] | None


@dataclass
class Crowd:
    """The clients that are under way, those with the most local steps first.

    Attributes:
        clients: their ids, [S].
        w: their models, [S, d].
        state: what they keep, in rows.
        rounds: of each, before its first step.
        batches: their mini-batches.
        places: the samples of each step on the data's device, [S, K, B].
        augmentation: of each.
        statistics: BatchNorm's buffers by name, in rows; ``None`` without BatchNorm.
        loss: sum over the samples seen, float64 [S].
        gradients: gradients that each has taken.
    """

    clients: list[int]
    w: Tensor
    state: State
    rounds: list[Round]
    batches: list[Batches]
    places: Tensor
    augmentation: list[torch.Generator]
    statistics: dict[str, Tensor] | None
    loss: Tensor = field(init=False)
    gradients: int = 0

    def __post_init__(self) -> None:
        self.loss = torch.zeros(len(self.clients), dtype=torch.float64, device=self.w.device)

    @property
    def steps(self) -> list[int]:
        """Local steps of each."""
        return [len(each.counts) for each in self.batches]

    @property
    def round(self) -> Round:
        """The round with K of all, or with each one's in a column [S, 1] where they differ."""
        steps = self.steps
        same = steps[0] == steps[-1]
        return replace(self.rounds[0], steps=steps[0] if same else self.w.new_tensor(steps)[:, None])

    def note(self, batch: RowsBatch, step: int) -> None:
        """Add a step's losses."""
        assert batch.losses is not None
        counts = [each.counts[step] for each in self.batches]
        same = counts[0] if min(counts) == max(counts) else self.loss.new_tensor(counts)
        self.loss += same * batch.losses
        self.gradients += batch.gradients

    def leaving(self, step: int) -> list[Leaver]:
        """Those that have taken all their steps before this one; the others stay."""
        stay = sum(steps > step for steps in self.steps)
        if stay == len(self.clients):
            return []
        leavers = [self._leaver(row) for row in range(stay, len(self.clients))]
        self.clients, self.rounds, self.batches = self.clients[:stay], self.rounds[:stay], self.batches[:stay]
        self.w, self.state, self.places = self.w[:stay], rows(self.state, slice(stay)), self.places[:stay]
        self.augmentation, self.loss = self.augmentation[:stay], self.loss[:stay]
        if self.statistics is not None:
            self.statistics = {name: buffer[:stay] for name, buffer in self.statistics.items()}
        return leavers

    def _leaver(self, row: int) -> Leaver:
        # Copies: a view would keep the rows of all clients in memory as long as one of them is kept.
        state = State.of({name: tensor.clone() for name, tensor in vars(rows(self.state, row)).items()})
        own = None if self.statistics is None else {name: b[row].clone() for name, b in self.statistics.items()}
        seen = sum(self.batches[row].counts)
        steps = len(self.batches[row].counts)
        return Leaver(
            self.clients[row], self.w[row].clone(), state, self.rounds[row], steps, self.loss[row] / seen, seen,
            self.gradients, own,
        )  # fmt: skip


class RowsBatch:
    """The losses and gradients of a mini-batch of each client.

    Only the first points that the gradients are evaluated at update BatchNorm's running statistics.

    Args:
        module: the model.
        drawn: the mini-batches.
        local: what is minimised.
        statistics: BatchNorm's buffers by name, in rows, updated in place.

    Attributes:
        losses: at the first points, without the penalty, [S].
        gradients: how many were taken of each.
    """

    def __init__(
        self, module: StackedModule, drawn: DrawnRows, local: LocalWork, statistics: dict[str, Tensor] | None
    ) -> None:
        self._module, self._drawn, self._man, self._statistics = module, drawn, local.parts.man, statistics
        self._apart = statistics is not None or self._man is not None
        self.losses: Tensor | None = None
        self.gradients = 0

    def gradient(self, w: Tensor) -> Tensor:
        """The gradients at ``w``, [S, d]."""
        self.gradients += 1
        counts = self._drawn.counts
        sizes = sorted(set(counts)) if self._apart else [max(counts)]
        if len(sizes) == 1:
            losses, slopes = self._computed(w, self._drawn, self._statistics)
        else:  # samples of a batch act on each other: none may be there that does not count
            losses, slopes = w.new_zeros(len(w)), torch.zeros_like(w)
            for size in sizes:
                some = [row for row, count in enumerate(counts) if count == size]
                own = None if self._statistics is None else {k: b[some] for k, b in self._statistics.items()}
                losses[some], slopes[some] = self._computed(w[some], self._drawn.take(some, size), own)
                for name, buffer in (own or {}).items():
                    assert self._statistics is not None
                    self._statistics[name][some] = buffer
        if self.losses is None:
            self.losses = losses
        return slopes

    def _computed(self, w: Tensor, drawn: DrawnRows, statistics: dict[str, Tensor] | None) -> tuple[Tensor, Tensor]:
        if statistics is not None and self.losses is not None:
            statistics = {name: buffer.clone() for name, buffer in statistics.items()}
        with torch.enable_grad():
            found = self._module.run(w, drawn.inputs, statistics, self._man)
            losses = _mean_losses(found.outputs, drawn.targets, drawn.counts)
            if drawn.partners is not None and drawn.shares is not None:
                others = _mean_losses(found.outputs, drawn.partners, drawn.counts)
                losses = drawn.shares * losses + (1 - drawn.shares) * others
            slopes = found.gradient(losses if found.penalty is None else losses + found.penalty)
        return losses.detach(), slopes


def _mean_losses(outputs: Tensor, targets: Tensor, counts: Sequence[int]) -> Tensor:
    """The mean cross-entropy of the first ``counts`` samples of each row: [S, B, classes] and [S, B] -> [S]."""
    each = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
    if min(counts) == each.shape[1]:
        return each.mean(dim=1)
    numbers = each.new_tensor(counts)
    counted = torch.arange(each.shape[1], device=each.device) < numbers[:, None]
    return torch.where(counted, each, 0.0).sum(dim=1) / numbers


def refusal(module: StackedModule, data: Samples, algorithm: Algorithm, local: LocalWork) -> str | None:
    """Why clients cannot be trained at once, in half a sentence; ``None`` where they can."""
    if local.task != "classification":
        return f"the task is {local.task}, whose loss is computed for one client after the other"
    if local.precision.bf16:
        return "bf16 is for one client after the other"
    if (local.parts.adversary or algorithm.adversary) is not None:
        return "an adversary moves each client's inputs by tensors of its own"
    reason = module.refusal(data.batch(slice(0, 2), module.dtype)[0])
    return None if reason is None else f"the model is not fit for it: {reason}"


def require_at_once(module: StackedModule, data: Samples, algorithm: Algorithm, local: LocalWork) -> None:
    """Refuse what :func:`refusal` has a reason against.

    Raises:
        FedscapeError: clients cannot be trained at once.
    """
    if reason := refusal(module, data, algorithm, local):
        raise FedscapeError(f"clients cannot be trained at once: {reason}; give --executor sequential")


class BatchedExecutor(SequentialExecutor):
    """Trains several clients at once, as rows of one state [S, d]; equal to the sequential one to rounding.

    The algorithm's text is the same: its arithmetic is by element and its norms over the last axis.  Clients with fewer
    local steps leave when they have taken them, so that no row waits.  A short mini-batch is filled up with samples of
    weight 0; where samples of a batch act on each other (BatchNorm, MAN), those of the same size are computed together.
    What a client does before and after its steps is done for one after the other.

    Args:
        width: clients at once; :data:`WIDTH` at most unless given.

    Raises:
        FedscapeError: the model, or a part, cannot be computed for several clients at once; the reason is told.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from landscape import Partition, Samples
        >>> from landscape.autograd.flat import FlatModule
        >>> from trainers import FedAvg, Settings
        >>> from trainers.federation import BatchedExecutor, Federation, LocalWork
        >>> data = Samples(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 1, 0]))
        >>> clients = Partition((np.array([0, 1]), np.array([2])))
        >>> model = FlatModule(torch.nn.Linear(1, 2), torch.device("cpu"), torch.float32)
        >>> work = LocalWork(epochs=1, batch_size=None, weight_decay=0.0, augment="none", seed=0)
        >>> executor = BatchedExecutor(model, data, clients, FedAvg(), work)
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
        width: int | None = None,
    ) -> None:
        super().__init__(model, data, partition, algorithm, local)
        self._stacked = StackedModule(model)
        require_at_once(self._stacked, data, algorithm, local)
        self._width = width or WIDTH
        self._held = [torch.from_numpy(indices).to("cpu", torch.long) for indices in partition.clients]
        parts = local.parts
        self._drawn_apart = local.augment != "none" or bool(parts.cutout) or parts.mixup

    def work(self, clients: Sequence[int], received: State, store: States, round: Round) -> Iterator[ClientResult]:
        """The results, in the order of ``clients``."""
        self._model.module.train()
        local = self._local
        for first in range(0, len(clients), self._width):
            some = clients[first : first + self._width]
            with self._threads(max(some, key=lambda client: len(self._held[client]))), local.precision.arithmetic():
                results = self._together(some, received, store, round)
            yield from results

    def _together(self, clients: Sequence[int], received: State, store: States, round: Round) -> list[ClientResult]:
        local, found = self._local, {}
        crowd = self._gather(clients, received, store, round)
        clip = local.clip if local.clip_at != "gradient" else 0.0
        for step in range(max(crowd.steps)):
            for leaver in crowd.leaving(step):
                found[leaver.client] = self._result(leaver, received)
            batch = RowsBatch(self._stacked, self._rows(crowd, step), local, crowd.statistics)
            here = replace(crowd.round, step=step)
            around = Surroundings(self._model.space, crowd.state, received, here)
            gradient = ascending(batch.gradient, self._ascent, local, around)
            crowd.w = local_step(
                crowd.w, gradient, self._algorithm, crowd.state, received, here, local.weight_decay, clip,
                local.parts.local_optimizer, clip_eps=local.clip_eps, linear=local.clip_at == "linear",
            )  # fmt: skip
            assert batch.losses is not None, "an algorithm's direction must ask for a gradient"
            crowd.note(batch, step)
        for leaver in crowd.leaving(max(crowd.steps)):
            found[leaver.client] = self._result(leaver, received)
        return [found[client] for client in clients]

    def _gather(self, clients: Sequence[int], received: State, store: States, round: Round) -> Crowd:
        begun = []
        for client in clients:
            state = store.fetch(client)
            if len(self._statistics):
                self._statistics.load(getattr(state if self._local.batchnorm == "silo" else received, STATISTICS))
            begun.append((client, self._begin(client, received, state, round)))
        begun.sort(key=lambda pair: -pair[1].round.steps)
        all_statistics = None
        if len(self._statistics):
            silo = self._local.batchnorm == "silo"
            each = [getattr(one.state if silo else received, STATISTICS) for _, one in begun]
            all_statistics = self._statistics.named(torch.stack(each))
        batches = [Batches.of(self._held[client], list(one.batches)) for client, one in begun]
        return Crowd(
            [client for client, _ in begun],
            torch.stack([one.w for _, one in begun]),
            stacked([one.state for _, one in begun]),
            [one.round for _, one in begun],
            batches,
            beside(batches).to(self._data.device),
            [one.augmentation for _, one in begun],
            all_statistics,
        )

    def _rows(self, crowd: Crowd, step: int) -> DrawnRows:
        """The mini-batches of a step."""
        counts = [each.counts[step] for each in crowd.batches]
        if self._drawn_apart:
            return DrawnRows.of(
                [
                    draw(self._data, places[step, :count], self._local, generator, self._model.dtype)
                    for places, count, generator in zip(crowd.places, counts, crowd.augmentation, strict=True)
                ]
            )
        places = crowd.places[:, step, : max(counts)]
        inputs, targets = self._data.batch(places.reshape(-1), self._model.dtype)
        return DrawnRows(inputs.unflatten(0, places.shape), targets.unflatten(0, places.shape), counts)

    def _result(self, leaver: Leaver, received: State) -> ClientResult:
        statistics = None if leaver.statistics is None else self._statistics.joined(leaver.statistics)
        upload = self._end(leaver.round, leaver.w, leaver.state, received, leaver.steps, statistics)
        return ClientResult(
            leaver.client, leaver.w, upload, leaver.state, leaver.loss, leaver.seen, leaver.steps, leaver.gradients
        )
