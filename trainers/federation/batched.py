"""The executor that advances several clients at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from landscape.autograd.dropout import OtherDraws, Plan
from landscape.autograd.flat import FlatModule
from landscape.autograd.stacked import StackedModule
from landscape.compute.devices import on_device
from landscape.compute.randomness import stream_seed, torch_generator
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.partitions.partition import Partition
from trainers.algorithm import Algorithm, Round, State
from trainers.federation.batches import batch_counts, batch_order
from trainers.federation.execution import STATISTICS, ResultRows, SequentialExecutor, States
from trainers.federation.local import SINGLE, LocalWork, ascending, draw, local_step
from trainers.federation.perturbation import Noted
from trainers.federation.rows_batch import RowsBatch
from trainers.federation.stacking import DrawnRows, Dropout, Stock, Supply, beside, padded, rows, stacked
from trainers.parts.adversary import Adversary
from trainers.parts.ascent import Surroundings
from trainers.parts.local_optimizers import begin_round

WIDTH = 64
"""Clients at once at most, unless their number is given: beyond it a step of small networks is all arithmetic."""
_TRIED = 64
"""Samples at most on which it is tried whether those of a batch act on each other."""


@dataclass
class Crowd:
    """Clients trained at once, those with the most local steps first; who has taken all of them leaves.

    Attributes:
        clients: the ids of all, [S], those that have left too.
        counts: of each, samples of each of its mini-batches.
        w: the models of those under way, [S', d].
        state: what they keep, in rows.
        statistics: BatchNorm's buffers by name, in rows; ``None`` without BatchNorm.
        losses: of each step taken, [S'].
        gradients: taken in each step.
        start: where the steps began, if that is to be kept, [S, d].
        noted: what has noted the perturbations of the step just taken, if they are.
    """

    clients: list[int]
    counts: list[list[int]]
    w: Tensor
    state: State
    statistics: dict[str, Tensor] | None
    losses: list[Tensor] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)
    start: Tensor | None = None
    noted: Noted | None = None
    _left: list[tuple[Tensor, State, dict[str, Tensor] | None, Tensor | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steps = [len(own) for own in self.counts]

    def by_step(self) -> list[list[int]]:
        """Samples in the mini-batches of each step, of the clients that take it."""
        if all(own == self.counts[0] for own in self.counts):
            return [[count] * len(self.counts) for count in self.counts[0]]
        return [[own[step] for own in self.counts if len(own) > step] for step in range(self.steps[0])]

    def leave(self, staying: int) -> bool:
        """Let all but the first clients leave; whether anybody did."""
        if staying == len(self.w):
            return False
        # Copies, unless all leave: a view would keep the rows of all clients in memory.
        gone = slice(staying, None)
        w, state = self.w[gone], rows(self.state, gone)
        statistics = None if self.statistics is None else {name: b[gone] for name, b in self.statistics.items()}
        perturbations = None if self.noted is None else self.noted.perturbation[gone]
        if staying:
            w, state = w.clone(), State.of({name: tensor.clone() for name, tensor in vars(state).items()})
            statistics = None if statistics is None else {name: b.clone() for name, b in statistics.items()}
            perturbations = None if perturbations is None else perturbations.clone()
        self._left.append((w, state, statistics, perturbations))
        self.w, self.state = self.w[:staying], rows(self.state, slice(staying))
        if self.statistics is not None:
            self.statistics = {name: buffer[:staying] for name, buffer in self.statistics.items()}
        return True

    def left(self, order: Sequence[int]) -> tuple[Tensor, State, dict[str, Tensor] | None, Tensor | None]:
        """Models, states, statistics and perturbations of all clients after their last steps, in this order of ids."""
        if len(self._left) == 1:
            w, state, statistics, perturbations = self._left[0]
        else:
            w = torch.cat([each[0] for each in reversed(self._left)])
            state = State.of(_joined([vars(each[1]) for each in reversed(self._left)]))
            buffers = [each[2] for each in reversed(self._left) if each[2] is not None]
            statistics = _joined(buffers) if buffers else None
            noted = [each[3] for each in reversed(self._left) if each[3] is not None]
            perturbations = torch.cat(noted) if noted else None
        if list(order) == self.clients:
            return w, state, statistics, perturbations
        places = on_device(torch.tensor([self.clients.index(client) for client in order]), w.device)
        statistics = None if statistics is None else {name: b[places] for name, b in statistics.items()}
        state = State.of({name: tensor[places] for name, tensor in vars(state).items()})
        return w[places], state, statistics, None if perturbations is None else perturbations[places]

    def mean_losses(self) -> Tensor:
        """Of each client over the samples it has seen, float64 [S], in the order of ``clients``."""
        losses = torch.nn.utils.rnn.pad_sequence(self.losses).double()  # [S, K]
        weights = on_device(torch.from_numpy(padded(self.counts)).to(losses.dtype), losses.device)
        return (weights * losses).sum(dim=1) / weights.sum(dim=1)


def _joined(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors of the same names one below the other.

    Raises:
        FedscapeError: other names.
    """
    for part in parts:
        if differing := part.keys() ^ parts[0].keys():
            raise FedscapeError(
                f"clients that took different numbers of local steps keep different tensors ({', '.join(differing)}): "
                "set them at every step, or give --executor sequential"
            )
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def refusal(module: StackedModule, data: Samples, algorithm: Algorithm, local: LocalWork) -> str | None:
    """Why clients cannot be trained at once, in half a sentence; ``None`` where they can."""
    if local.task != "classification":
        return f"the task is {local.task}, whose loss is computed for one client after the other"
    if local.precision.bf16:
        return "bf16 is for one client after the other"
    reason = module.refusal(data.batch(slice(0, 2), module.dtype)[0])
    return None if reason is None else f"the model is not fit for it: {reason}"


def adversary_state(adversary: Adversary, model: FlatModule, data: Samples) -> State:
    """What a client keeps for an adversary before its first round."""
    state = State.of(adversary.client_state(model.buffer))
    adversary.begin(state, tuple(data.inputs.shape[1:]))
    return state


def require_at_once(module: StackedModule, data: Samples, algorithm: Algorithm, local: LocalWork) -> None:
    """Refuse what :func:`refusal` has a reason against.

    Raises:
        FedscapeError: clients cannot be trained at once.
    """
    if reason := refusal(module, data, algorithm, local):
        raise FedscapeError(_not_at_once(reason))


def _not_at_once(reason: str) -> str:
    return f"clients cannot be trained at once: {reason}; give --executor sequential"


class BatchedExecutor(SequentialExecutor):
    """Trains several clients at once, as rows of one state [S, d]; equal to the sequential one to rounding.

    The algorithm's text is the same: its arithmetic is by element and its norms over the last axis.  Clients with fewer
    local steps leave when they have taken them, so that no row waits.  A short mini-batch is filled up with samples of
    weight 0; where samples of a batch act on each other (BatchNorm, MAN, a mean over them), those of the same size are
    computed together.
    Dropout drops for each client what it would drop alone.
    What a client computes from all of its data is done for one after the other, the start of the steps and the upload
    at once.

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
        self._held = [len(indices) for indices in partition.clients]
        self._samples = torch.from_numpy(np.concatenate(partition.clients)).to(torch.long)
        self._begins = [0, *accumulate(self._held)]
        some = data.batch(slice(0, 2), model.dtype)[0]
        self._stock = Stock(data, model.dtype, self._stacked.classes(some))
        self._order = torch.Generator()
        self._prepares = type(algorithm).prepare is not Algorithm.prepare
        parts = local.parts
        self._drawn_apart = local.augment != "none" or bool(parts.cutout) or parts.mixup
        self._plans: dict[int, Plan] = {}
        sizes = {count for held in set(self._held) for count in self._counts(held)}
        self._drops = any(self._plan(count) for count in {len(some), max(*sizes, len(some))})
        few, many = min(sizes), min(max(sizes), _TRIED)
        tried = few < many and not len(self._statistics)
        self._apart = tried and not self._stacked.by_sample(data.batch(slice(0, many), model.dtype)[0], few)

    def work(self, clients: Sequence[int], received: State, store: States, round: Round) -> Iterator[ResultRows]:
        """The results, in the order of ``clients``, in rows of as many as are trained at once."""
        self._model.module.train()
        for first in range(0, len(clients), self._width):
            some = clients[first : first + self._width]
            largest = max(some, key=lambda client: self._held[client])
            with self._threads(largest), self._local.precision.arithmetic():
                try:
                    results = self._together(some, received, store, round)
                except (OtherDraws, ValueError, RuntimeError) as error:
                    if (sentence := self._sentence(error, some)) is None:
                        raise
                    raise FedscapeError(sentence) from error
            yield results

    def _sentence(self, error: Exception, clients: Sequence[int]) -> str | None:
        """What to tell of an error in the work of these clients; ``None``: what it says itself."""
        if isinstance(error, OtherDraws):
            return _not_at_once(str(error))
        if "randomness error mode" in str(error):
            return _not_at_once("the model draws random numbers for mini-batches of some sizes only")
        if isinstance(error, FedscapeError) or not isinstance(error, ValueError):
            return None
        single = any(1 in self._counts(self._held[client]) for client in clients)
        return SINGLE if single and len(self._statistics) else None

    def _together(self, clients: Sequence[int], received: State, store: States, round: Round) -> ResultRows:
        local = self._local
        crowd, round = self._begun(clients, received, store, round)
        drawn_at, seen = self._batches_of(crowd, round), self._seen(crowd.state, received)
        clip = local.clip if local.clip_at != "gradient" else 0.0
        for step in range(crowd.steps[0]):
            drawn = drawn_at(step)
            if crowd.leave(len(drawn.counts)):
                round = replace(round, steps=_steps(crowd.steps[: len(crowd.w)], crowd.w))
                seen = self._seen(crowd.state, received)
            batch = RowsBatch(self._stacked, drawn, local, crowd.statistics, apart=self._apart)
            if self._adversary is not None:
                batch.move_by(self._adversary, crowd.state)
            here = self._here(round, step)
            around = Surroundings(self._model.space, crowd.state, received, here, batch)
            crowd.noted = Noted.by(self._algorithm, crowd.w) if self._noting else None
            gradient = ascending(batch.gradient, self._ascent, local, around, crowd.noted)
            crowd.w = local_step(
                crowd.w, gradient, self._algorithm, crowd.state, seen, here, local.weight_decay, clip,
                local.parts.local_optimizer, fused=True, clip_eps=local.clip_eps, linear=local.clip_at == "linear",
            )  # fmt: skip
            assert batch.losses is not None, "an algorithm's direction must ask for a gradient"
            if self._adversary is not None and batch.slopes is not None:
                self._adversary.ascend(batch.slopes, crowd.state)
            crowd.losses.append(batch.losses)
            crowd.gradients.append(batch.gradients)
        crowd.leave(0)
        return self._results(crowd, clients, received, round)

    def _begun(self, clients: Sequence[int], received: State, store: States, round: Round) -> tuple[Crowd, Round]:
        """Clients before their first step, and the round with their numbers of steps."""
        local, tracked = self._local, len(self._statistics) > 0
        counts = {client: self._counts(self._held[client]) for client in clients}
        ordered = sorted(clients, key=lambda client: -len(counts[client]))
        states = []
        for client in ordered:
            states.append(state := store.fetch(client))
            self._take_statistics(state, received)
            if self._prepares:
                own = replace(round, steps=len(counts[client]))
                self._algorithm.prepare(state, received, self._everything(client, round), own)
            if self._adversary is not None:
                self._adversary.begin(state, tuple(self._data.inputs.shape[1:]))
        state = stacked(states)
        statistics = None
        if tracked:
            silo = local.batchnorm == "silo"
            each = getattr(state, STATISTICS) if silo else getattr(received, STATISTICS).expand(len(ordered), -1)
            statistics = self._statistics.named(each)
        steps = [len(counts[client]) for client in ordered]
        round = replace(round, steps=_steps(steps, received.w))
        first = self._algorithm.start(state, self._seen(state, received), round)
        w = first.expand(len(ordered), -1)
        begin_round(local.parts.local_optimizer, state, w)
        start = None if self._start_of(first, received) is None else w
        return Crowd(ordered, [counts[client] for client in ordered], w, state, statistics, start=start), round

    def _counts(self, held: int) -> list[int]:
        local = self._local
        return batch_counts(held, local.batch_size, local.epochs, steps=local.steps, last=local.last_batch)

    def _batches_of(self, crowd: Crowd, round: Round) -> Callable[[int], DrawnRows]:
        """What gives the mini-batches of a step; steps are asked for in order."""
        local = self._local
        orders: list[Tensor] = []
        for client, counts in zip(crowd.clients, crowd.counts, strict=True):
            self._order.manual_seed(stream_seed(local.seed, "batches", round.number, client))
            held = self._held[client]
            orders += batch_order(held, local.batch_size, counts, self._order, local.last_batch)
        begins = np.repeat([self._begins[client] for client in crowd.clients], [sum(own) for own in crowd.counts])
        samples = self._samples.index_select(0, torch.cat(orders).add_(torch.from_numpy(begins)))
        places = on_device(beside(samples, crowd.counts), self._data.device)
        by_step = crowd.by_step()
        at = self._at(crowd, round, places, by_step)
        if not self._drops:
            return at
        generators = [torch_generator(local.seed, "dropout", round.number, client) for client in crowd.clients]
        return lambda step: replace(at(step), dropout=Dropout(self._plan, generators[: len(by_step[step])]))

    def _at(self, crowd: Crowd, round: Round, places: Tensor, by_step: list[list[int]]) -> Callable[[int], DrawnRows]:
        """Mini-batches of a step from the places of their samples."""
        local = self._local
        if not self._drawn_apart:
            return Supply(self._stock, places, by_step).at
        generators = [torch_generator(local.seed, "augmentation", round.number, client) for client in crowd.clients]

        def apart(step: int) -> DrawnRows:
            each = zip(places[step], by_step[step], generators, strict=False)  # those that have left come last
            return DrawnRows.of(
                [draw(self._data, own[:count], local, drawing, self._model.dtype) for own, count, drawing in each],
                self._stock.classes,
                self._model.dtype,
            )

        return apart

    def _plan(self, count: int) -> Plan:
        """What the model draws for dropout in a forward pass of one client's mini-batch, whose memory format counts."""
        if count not in self._plans:
            some = torch.arange(count, device=self._data.device)
            inputs = draw(self._data, some, self._local, torch.Generator(), self._model.dtype).inputs
            if self._adversary is not None:
                moved = self._adversary.move(inputs, adversary_state(self._adversary, self._model, self._data))
                inputs = moved.requires_grad_()  # as they do in a step: GroupNorm keeps their memory format only then
            self._plans[count] = self._stacked.plan(inputs)
        return self._plans[count]

    def _results(self, crowd: Crowd, clients: Sequence[int], received: State, round: Round) -> ResultRows:
        w, state, buffers, perturbations = crowd.left(clients)
        places = [crowd.clients.index(client) for client in clients]
        steps, taken = [crowd.steps[place] for place in places], list(accumulate(crowd.gradients))
        statistics = None if buffers is None else self._statistics.joined(buffers)
        together = _steps(steps, w)
        seen = self._seen(state, received)
        upload = self._end(replace(round, steps=together), w, state, seen, received, together, statistics)
        return ResultRows(
            list(clients), w, {name: _row_each(name, sent, w) for name, sent in upload.items()}, state,
            crowd.mean_losses()[places], [sum(crowd.counts[place]) for place in places], steps,
            [taken[each - 1] for each in steps], None if crowd.start is None else crowd.start[places], perturbations,
        )  # fmt: skip


def _steps(steps: Sequence[int], like: Tensor) -> int | Tensor:
    """K of all, or that of each in a column [S, 1] where they differ."""
    if min(steps) == max(steps):
        return steps[0]
    return on_device(torch.tensor(steps, dtype=like.dtype), like.device)[:, None]


def _row_each(name: str, sent: Tensor, w: Tensor) -> Tensor:
    """What each client sends, [S, ...]; a vector that is the same for all is repeated.

    Raises:
        FedscapeError: a tensor without a row for each.
    """
    if sent.shape == w.shape[1:]:
        return sent.expand(w.shape)
    if sent.shape[:1] != w.shape[:1]:
        raise FedscapeError(
            f"clients trained at once send '{name}' of shape {list(sent.shape)}, which has no row for each of the "
            f"{len(w)}: take norms and sums over the last axis, or give --executor sequential"
        )
    return sent
