"""Clients side by side: their tensors and their mini-batches in rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from landscape.autograd.cross_entropy import Aims
from landscape.autograd.dropout import Plan, alike, drawn
from landscape.compute.devices import on_device
from landscape.compute.regions import marked
from landscape.data.samples import Samples
from trainers.federation.local import Drawn
from trainers.parts.state import State

_GATHERED = 16 << 20
"""Bytes of inputs of several steps that are gathered at once: a gather for each step costs more than its copying."""
_PREPARED = 64 << 20
"""Bytes of all inputs, as the model takes them, up to which they are prepared once and kept."""


def stacked(states: Sequence[State]) -> State:
    """Tensors of the same names in rows, [S, ...].

    Example:
        >>> import torch
        >>> from trainers import State
        >>> from trainers.federation.stacking import rows, stacked
        >>> both = stacked([State(c=torch.tensor([1.0])), State(c=torch.tensor([2.0]))])
        >>> both.c, rows(both, slice(0, 1)).c
        (tensor([[1.],
                [2.]]), tensor([[1.]]))
    """
    return State.of({name: torch.stack([getattr(each, name) for each in states]) for name in vars(states[0])})


def rows(state: State, which: slice | int) -> State:
    """Some rows of all tensors; views."""
    return State.of({name: tensor[which] for name, tensor in vars(state).items()})


def beside(samples: Tensor, counts: Sequence[Sequence[int]]) -> Tensor:
    """The samples of each client's batch in each step, [K, S, B], filled up with the client's first one.

    Args:
        samples: positions in the data, one client and one batch after the other, in host memory.
        counts: of each client, samples of each batch.

    Example:
        >>> import torch
        >>> from trainers.federation.stacking import beside
        >>> beside(torch.tensor([7, 5, 6, 8]), [[2, 1], [1]])
        tensor([[[7, 5],
                 [8, 8]],
        <BLANKLINE>
                [[6, 7],
                 [8, 8]]])
    """
    lengths: NDArray[np.int64] = padded(counts)
    together, size = samples.numpy(), int(lengths.max())
    if int(lengths.min()) == size:
        return torch.from_numpy(together.reshape(len(counts), -1, size).swapaxes(0, 1).copy())
    starts = np.cumsum(lengths.sum(axis=1)) - lengths.sum(axis=1)
    found = np.repeat(together[starts], lengths.shape[1] * size).reshape(*lengths.shape, size)
    found[np.arange(size) < lengths[:, :, None]] = together
    return torch.from_numpy(found.swapaxes(0, 1).copy())


def padded(counts: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Lists of numbers in rows, zeros behind, [S, K].

    Example:
        >>> from trainers.federation.stacking import padded
        >>> padded([[2, 1], [1]])
        array([[2, 1],
               [1, 0]])
    """
    longest = max(map(len, counts))
    return np.array([[*own, *[0] * (longest - len(own))] for own in counts], dtype=np.int64)


@dataclass(frozen=True)
class Dropout:
    """What clients draw for dropout: each the random numbers that it draws where it is trained alone.

    Attributes:
        plan: what a forward pass draws for a mini-batch of so many samples.
        generators: of each client in its round.
    """

    plan: Callable[[int], Plan]
    generators: list[torch.Generator]

    def fills_up(self, counts: Sequence[int]) -> bool:
        """Whether mini-batches of these sizes may be filled up to the largest."""
        return alike([self.plan(count) for count in counts], counts)

    def noise(self, counts: Sequence[int]) -> list[Tensor]:
        """The draws of the clients' next forward passes, of so many samples each, in rows."""
        return drawn([self.plan(count) for count in counts], self.generators)

    def take(self, rows: Sequence[int]) -> Dropout:
        """That of some clients."""
        return Dropout(self.plan, [self.generators[row] for row in rows])


@dataclass(frozen=True)
class DrawnRows:
    """A mini-batch of each of several clients, short ones filled up.

    Attributes:
        inputs: [S, B, ...].
        aims: the targets, and what each sample counts.
        counts: samples of each client's batch, [S]; the others of its row count for nothing.
        dropout: of the clients; ``None`` where the model has none.
    """

    inputs: Tensor
    aims: Aims
    counts: list[int]
    dropout: Dropout | None = None

    @classmethod
    def of(cls, batches: Sequence[Drawn], classes: int, dtype: torch.dtype) -> DrawnRows:
        """Batches that were drawn one by one, for a model of so many classes and this type."""
        counts = [len(each.inputs) for each in batches]
        inputs, targets = (_filled([getattr(each, name) for each in batches]) for name in ("inputs", "targets"))
        partners = shares = None
        if batches[0].partners is not None:
            partners = _filled([each.partners for each in batches if each.partners is not None])
            shares = on_device(torch.tensor([each.share for each in batches], dtype=inputs.dtype), inputs.device)
        return cls(inputs, Aims.of(targets, counts, classes, dtype, partners, shares), counts)

    def take(self, rows: list[int], count: int) -> DrawnRows:
        """Some rows, whose batches all have ``count`` samples."""
        dropout = None if self.dropout is None else self.dropout.take(rows)
        return DrawnRows(self.inputs[rows, :count], self.aims.take(rows, count), [count] * len(rows), dropout)

    def fills_up(self) -> bool:
        """Whether dropout allows that short mini-batches are filled up."""
        return self.dropout is None or self.dropout.fills_up(self.counts)

    def noise(self) -> list[Tensor]:
        """What dropout draws for the next forward pass, in rows; each call draws anew."""
        return [] if self.dropout is None else self.dropout.noise(self.counts)


class Stock:
    """The samples of a federation, of which the mini-batches of several clients and steps are taken at once.

    Small data are kept as the model takes them, normalised once.

    Args:
        data: all samples.
        dtype: of the model.
        classes: of the model.
    """

    def __init__(self, data: Samples, dtype: torch.dtype, classes: int) -> None:
        self._data, self.dtype, self.classes = data, dtype, classes
        size = data.inputs.numel() * dtype.itemsize
        self._each = size // len(data)
        small = size <= _PREPARED and not data.streams
        self._prepared = data.prepare(data.inputs, dtype).contiguous() if small else None

    def take(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets at these positions ([...], on the device of the data), [..., *shape]."""
        flat = places.reshape(-1)
        if self._prepared is None:
            inputs, targets = self._data.batch(flat, self.dtype)
        else:  # index_select copies whole samples, where indexing goes number by number: a sixth of the time
            inputs, targets = self._prepared.index_select(0, flat), self._data.targets.index_select(0, flat)
        return inputs.unflatten(0, places.shape), targets.unflatten(0, places.shape)

    def at_once(self, batch: int) -> int:
        """Steps whose inputs are taken together, for so many samples a step."""
        return max(1, _GATHERED // (batch * self._each))


class Supply:
    """The mini-batches of a round without augmentation, gathered for several steps at once.

    Args:
        stock: where they are taken from.
        places: [K, S, B], the samples of each client's batch in each step, on the data's device.
        counts: of each step, samples of each batch.
    """

    def __init__(self, stock: Stock, places: Tensor, counts: Sequence[Sequence[int]]) -> None:
        self._stock, self._places, self._counts = stock, places, counts
        self._first, self._held = 0, 0
        self._inputs: Sequence[Tensor] = ()
        self._slopes: Sequence[Tensor] = ()
        self._weights: Sequence[Tensor] = ()

    @marked("data")
    def at(self, step: int) -> DrawnRows:
        """The batches of the clients that take this step; steps are asked for in order."""
        if step >= self._first + self._held:
            self._gather(step)
        counts, k = list(self._counts[step]), step - self._first
        inputs, slopes, s, n = self._inputs[k], self._slopes[k], len(counts), max(counts)
        if inputs.shape[:2] != (s, n):
            inputs, slopes = inputs[:s, :n], slopes[:s, :, :n]
        weights = 1 / n if min(counts) == n else self._weights[k][:s, :, :n]
        return DrawnRows(inputs, Aims(slopes, weights), counts)

    def _gather(self, step: int) -> None:
        """Take the samples of this step and some more."""
        places = self._places[step:, : len(self._counts[step])]
        self._first, self._held = step, self._stock.at_once(places[0].numel())
        inputs, targets = self._stock.take(places[: self._held])
        k, s, n = targets.shape
        rest = self._counts[step : step + k]
        counts = [own for row in rest for own in (*row, *[n] * (s - len(row)))]  # those of who has left: any
        aims = Aims.of(targets.flatten(0, 1), counts, self._stock.classes, self._stock.dtype)
        self._inputs, self._slopes = inputs.unbind(), aims.slopes.unflatten(0, (k, s)).unbind()
        self._weights = () if isinstance(aims.weights, float) else aims.weights.unflatten(0, (k, s)).unbind()


def _filled(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors [n_i, ...] in rows as long as the longest, [S, n, ...], filled up with their first ones.

    Not with zeros, of which a model may make what is not a number.
    """
    size = max(map(len, tensors))
    return torch.stack([
        each if len(each) == size else torch.cat([each, each[:1].expand(size - len(each), *each.shape[1:])])
        for each in tensors
    ])  # fmt: skip
