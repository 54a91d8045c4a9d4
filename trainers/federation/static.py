"""One local step on tensors that stay where they are: what a CUDA graph can hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import proxy

import torch
from torch import Tensor

from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.compute.devices import on_device
from landscape.compute.graphs import Captured, NotCapturable, Record, captured
from landscape.compute.regions import marked, region
from landscape.data.samples import Samples
from trainers.algorithm import Algorithm, Round, State
from trainers.federation.execution import Begun
from trainers.federation.local import Batch, Drawn, LocalWork, ascending, local_step
from trainers.federation.perturbation import Noted, noting
from trainers.parts.ascent import Surroundings
from trainers.parts.augmentation import CROPPED, cut_out, draw_cutout, draw_flip_crop, draw_mixup, flip_cropped, mixed


@dataclass(frozen=True)
class Plan:
    """All that is drawn for a client's local steps in a round, in host memory.

    Attributes:
        counts: samples of each step's mini-batch.
        numbers: [K, rows, B], short mini-batches filled up with 0; the rows are those of :func:`planned_rows`.
        shares: mixup's λ of each step, float64 [K].
    """

    counts: list[int]
    numbers: Tensor
    shares: Tensor


def planned_rows(local: LocalWork) -> dict[str, slice]:
    """The rows of :attr:`Plan.numbers` by name: the samples' positions, and the draws of their augmentation.

    Example:
        >>> from trainers import Parts
        >>> from trainers.federation import LocalWork
        >>> from trainers.federation.static import planned_rows
        >>> planned_rows(LocalWork(1, 4, 0.0, "none", 0, parts=Parts(mixup=True)))
        {'places': slice(0, 1, None), 'partners': slice(1, 2, None)}
    """
    sizes = {"places": 1}
    if local.augment != "none":
        sizes |= {"flipped": 1, "corners": 2}
    if local.parts.cutout:
        sizes["squares"] = 2
    if local.parts.mixup:
        sizes["partners"] = 1
    rows, first = {}, 0
    for name, size in sizes.items():
        rows[name] = slice(first, first + size)
        first += size
    return rows


@marked("data")
def plan(
    mine: Tensor, batches: Iterable[Tensor], local: LocalWork, shape: Sequence[int], generator: torch.Generator
) -> Plan:
    """The mini-batches of a client and the draws of their augmentation, by the generator in the order of ``draw``.

    Args:
        mine: the client's samples, as positions in the data, [n].
        batches: of each step, positions among them.
        local: says what is drawn.
        shape: of a stored input.
        generator: of the augmentation.
    """
    rows = planned_rows(local)
    height = max(row.stop for row in rows.values())
    steps, shares = [], []
    for batch in batches:
        step = torch.empty(height, len(batch), dtype=torch.long)
        step[rows["places"]] = mine[batch]
        if local.augment != "none":
            flipped, corners = draw_flip_crop(len(batch), generator, cropped=CROPPED[local.augment])
            step[rows["flipped"]], step[rows["corners"]] = flipped.long(), corners
        if local.parts.cutout:
            step[rows["squares"]] = draw_cutout(len(batch), (shape[-2], shape[-1]), local.parts.cutout, generator)
        share = 1.0
        if local.parts.mixup:
            share, partners = draw_mixup(len(batch), generator)
            step[rows["partners"]] = partners
        steps.append(step)
        shares.append(share)
    counts = [step.shape[1] for step in steps]
    numbers = torch.zeros(len(steps), height, max(counts), dtype=torch.long)
    for row, step in zip(numbers, steps, strict=True):
        row[:, : step.shape[1]] = step
    return Plan(counts, numbers, torch.tensor(shares, dtype=torch.float64))


@dataclass(frozen=True)
class _NotedRound(Round):
    """A round that notes whether a number is read that a graph keeps as it was when it was recorded."""

    seen: set[str] = field(default_factory=set, compare=False)

    def __getattribute__(self, name: str) -> Any:
        if name in ("number", "participation"):
            object.__getattribute__(self, "seen").add(name)
        return object.__getattribute__(self, name)


class StaticStep:
    """A local step that reads and writes the same memory each time, whatever the client, the step and the round.

    The step gathers its mini-batch by a counter on the device, augments it as planned, and moves the model, what the
    client keeps, the sum of losses and the counter in place.  The rate η, the number k of the step and K are tensors,
    float64 as Python's numbers are, so that the arithmetic is that of the other executors.  Steps of the size
    ``recorded`` are recorded once and replayed; others are computed as they are.  Where an algorithm reads the number
    of the round or the share of clients, which are no tensors, its steps are recorded anew in each round.

    Args:
        model: its parameters are free to be overwritten.
        data: on the model's device.
        algorithm, local: as of executors; the algorithm's own ascent and adversary count.
        statistics: BatchNorm's of the model.
        steps: local steps of a client, at most.
        batch: samples of a step, at most.
        recorded: samples of the steps that are recorded.
        record: how.

    Attributes:
        gradients: gradients of mini-batches that one step takes.
    """

    def __init__(
        self, model: FlatModule, data: Samples, algorithm: Algorithm, local: LocalWork, statistics: BatchStatistics,
        *, steps: int, batch: int, recorded: int, record: Record,
    ) -> None:  # fmt: skip
        self._model, self._data, self._algorithm, self._local = model, data, algorithm, local
        self._statistics, self._recorded, self._record = statistics, recorded, record
        self._ascent = local.parts.ascent or algorithm.ascent
        self._adversary = local.parts.adversary or algorithm.adversary
        self._schedule = local.parts.local_schedule or algorithm.local_schedule
        self._rows = planned_rows(local)
        device = model.device
        height = max(row.stop for row in self._rows.values())
        self._numbers = torch.zeros(steps, height, batch, dtype=torch.long, device=device)
        self._shares = torch.zeros(steps, dtype=torch.float64, device=device)
        self._counter = torch.zeros(1, dtype=torch.long, device=device)
        self._loss, self._lr, self._step, self._steps = torch.zeros(4, dtype=torch.float64, device=device)
        self._share = torch.ones((), dtype=torch.float64, device=device)
        self._w = torch.zeros_like(model.buffer)
        self._client: dict[str, Tensor] = {}
        self._received: dict[str, Tensor] = {}
        self._begun: dict[str, Tensor] = {}  # of what was received, what the algorithm sees otherwise
        self._made: dict[str, Tensor] = {}
        self._noting = noting(algorithm, self._ascent, save_clients=local.save_clients)
        self._perturbation = torch.zeros_like(self._w) if self._noting else None
        self._graphs: dict[int, Captured] = {}
        self._round = _NotedRound(0, 0.0, 1.0)
        self.gradients = 0

    @property
    def changed(self) -> list[Tensor]:
        """The tensors that a step changes and that are read afterwards."""
        own = [self._w, self._counter, self._loss, self._step, *self._client.values(), *self._made.values()]
        own += [] if self._perturbation is None else [self._perturbation]
        return [*own, *self._model.module.buffers()]

    def begin(self, begun: Begun, received: State, plan: Plan) -> None:
        """Take in a client before its first step: where it starts, what it keeps and received, and what it does.

        Args:
            begun: the client; what it received as the algorithm sees it.
            received: the same as it came.
            plan: of its steps.
        """
        round, as_it_came = begun.round, vars(received)
        seen = {name: tensor for name, tensor in vars(begun.received).items() if tensor is not as_it_came.get(name)}
        anew = _fitting(self._client, begun.state) | _fitting(self._received, received)
        anew |= _fitting(self._begun, State.of(seen))
        kept = _kept(self._round)
        if anew or any(getattr(round, name) != getattr(self._round, name) for name in kept):
            self._graphs, kept = {}, set()
        if anew:
            self._made = {}
        self._w.copy_(begun.w)
        for tensor in (self._counter, self._loss, self._step):
            tensor.zero_()
        self._lr.fill_(round.lr)
        self._steps.fill_(cast(int, round.steps))
        count, _, width = plan.numbers.shape
        self._numbers[:count, :, :width].copy_(on_device(plan.numbers, self._w.device))
        self._shares[:count].copy_(on_device(plan.shares, self._w.device))
        lr, step = cast(float, self._lr), cast(int, self._step)
        share = 1.0 if self._schedule is None else self._share
        self._round = _NotedRound(
            **{**vars(round), "lr": lr, "step": step, "steps": self._steps, "share": share}, seen=kept
        )

    def take(self, count: int) -> None:
        """The next step, with ``count`` samples."""
        if count != self._recorded:
            self._advance(count)
            return
        if count not in self._graphs:
            me = proxy(self)  # a recording that held this object, which holds the recording, would never be freed
            self._graphs[count] = captured(lambda: me._advance(count), self.changed, self._record)
        with region("recorded steps"):
            self._graphs[count].replay()

    def result(self) -> tuple[Tensor, State, Tensor, Tensor | None]:
        """The model, what the client keeps, the sum of the losses over the samples seen, and the last step's
        perturbation if it is kept; copies."""
        kept = {name: tensor.clone() for name, tensor in {**self._client, **self._made}.items()}
        perturbation = None if self._perturbation is None else self._perturbation.clone()
        return self._w.clone(), State.of(kept), self._loss.clone(), perturbation

    def _advance(self, count: int) -> None:
        local, round = self._local, self._round
        if self._schedule is not None:
            share = self._schedule.share(cast(int, self._step), self._steps)
            if not isinstance(share, Tensor):
                raise NotCapturable("the local schedule gives a number of Python, which a graph keeps as it was")
            self._share.copy_(share)
        batch = Batch(self._model, self._drawn(count), local, self._statistics)
        client, received = State.of(dict(self._client)), State.of(dict(self._received))
        seen = State.of({**self._received, **self._begun})
        if self._adversary is not None:
            batch.move_by(self._adversary, client)
        around = Surroundings(self._model.space, client, received, round, batch)
        noted = Noted.by(self._algorithm, self._w) if self._noting else None
        gradient = ascending(batch.gradient, self._ascent, local, around, noted)
        clip = local.clip if local.clip_at != "gradient" else 0.0
        w = local_step(
            self._w, gradient, self._algorithm, client, seen, round, local.weight_decay, clip,
            local.parts.local_optimizer, clip_eps=local.clip_eps, linear=local.clip_at == "linear",
        )  # fmt: skip
        assert batch.loss is not None, "an algorithm's direction must ask for a gradient"
        if self._adversary is not None and batch.slopes is not None:
            self._adversary.ascend(batch.slopes, client)
        if noted is not None and self._perturbation is not None:
            self._perturbation.copy_(noted.perturbation)  # before the memory it was taken from is overwritten
        self._keep(w, client)
        self._loss.add_(count * batch.loss)
        self._counter.add_(1)
        self._step.add_(1)
        self.gradients = batch.gradients

    @marked("data")
    def _drawn(self, count: int) -> Drawn:
        """The mini-batch of this step, as ``draw`` makes it."""
        data, local = self._data, self._local
        numbers = self._numbers.index_select(0, self._counter)[0, :, :count]
        named = {name: numbers[rows] for name, rows in self._rows.items()}
        inputs, targets = data.stored(named["places"][0])
        if local.augment == "flip-crop":
            inputs = flip_cropped(inputs, named["flipped"][0] != 0, named["corners"])
        inputs = data.prepare(inputs, self._model.dtype)
        if local.augment == "flip-crop-half":
            inputs = flip_cropped(inputs, named["flipped"][0] != 0, named["corners"])
        if local.parts.cutout:
            inputs = cut_out(inputs, named["squares"], local.parts.cutout)
        if not local.parts.mixup:
            return Drawn(inputs, targets)
        partners, share = named["partners"][0], self._shares.index_select(0, self._counter)[0]
        return Drawn(mixed(inputs, partners, share), targets, targets[partners], cast(float, share))

    def _keep(self, w: Tensor, client: State) -> None:
        """Write a step's results into the memory they stay in."""
        held = {id(tensor) for tensor in (self._w, *self._client.values())}
        moved = {name: tensor for name, tensor in vars(client).items() if tensor is not self._client.get(name)}
        for name, tensor in moved.items():
            if id(tensor) in held or tensor._is_view():  # of memory that is overwritten here, perhaps
                moved[name] = tensor.clone()
        self._w.copy_(w)
        for name, tensor in moved.items():
            if name not in self._client and name not in self._made:
                self._made[name] = torch.empty_like(tensor)
            self._named(name).copy_(tensor)

    def _named(self, name: str) -> Tensor:
        return self._client[name] if name in self._client else self._made[name]


def _kept(round: _NotedRound) -> set[str]:
    """The numbers that were read of a round since its steps were recorded."""
    return set(object.__getattribute__(round, "seen"))


def _fitting(held: dict[str, Tensor], state: State) -> bool:
    """Copy a state into the tensors that are held for it; whether these had to be made anew."""
    found = state.tensors()

    def shapes(tensors: dict[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
        return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}

    anew = shapes(held) != shapes(found)
    if anew:
        held.clear()
        held.update({name: torch.empty_like(tensor) for name, tensor in found.items()})
    for name, tensor in held.items():
        tensor.copy_(found[name])
    return anew
