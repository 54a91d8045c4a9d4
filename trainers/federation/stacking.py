"""Clients side by side: their tensors in rows, their mini-batches in tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.federation.local import Drawn
from trainers.parts.state import State


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


@dataclass(frozen=True)
class Table:
    """The mini-batches of one client: the samples of each step in a row, short rows filled up with sample 0.

    Attributes:
        samples: positions in the data, [K, B] in host memory.
        counts: samples of each step.
    """

    samples: Tensor
    counts: list[int]

    @classmethod
    def of(cls, mine: Tensor, batches: Sequence[Tensor]) -> Table:
        """The table of batches of positions among the client's own samples ``mine``, [n]."""
        counts = [len(batch) for batch in batches]
        widest = max(counts)
        chosen = mine[torch.cat(list(batches))]
        if min(counts) == widest:
            return cls(chosen.view(len(counts), widest), counts)
        samples = mine.new_zeros(len(counts), widest)
        samples[torch.arange(widest) < torch.tensor(counts)[:, None]] = chosen
        return cls(samples, counts)


def beside(tables: Sequence[Table]) -> Tensor:
    """The tables of several clients, [S, K, B], filled up with sample 0."""
    steps, widest = (max(table.samples.shape[axis] for table in tables) for axis in (0, 1))
    together = tables[0].samples.new_zeros(len(tables), steps, widest)
    for place, table in zip(together, tables, strict=True):
        place[: len(table.counts), : table.samples.shape[1]] = table.samples
    return together


@dataclass(frozen=True)
class DrawnRows:
    """A mini-batch of each of several clients, short ones filled up.

    Attributes:
        inputs: [S, B, ...].
        targets: [S, B, ...].
        counts: samples of each client's batch, [S]; the others of its row count for nothing.
        partners: targets of the samples that mixup mixed in, [S, B, ...]; none without it.
        shares: mixup's λ of each client, [S].
    """

    inputs: Tensor
    targets: Tensor
    counts: list[int]
    partners: Tensor | None = None
    shares: Tensor | None = None

    @classmethod
    def of(cls, batches: Sequence[Drawn]) -> DrawnRows:
        """Batches that were drawn one by one."""
        counts = [len(each.inputs) for each in batches]
        inputs, targets = (_filled([getattr(each, name) for each in batches]) for name in ("inputs", "targets"))
        if batches[0].partners is None:
            return cls(inputs, targets, counts)
        partners = _filled([each.partners for each in batches if each.partners is not None])
        shares = inputs.new_tensor([each.share for each in batches])
        return cls(inputs, targets, counts, partners, shares)

    def take(self, rows: Sequence[int], count: int) -> DrawnRows:
        """Some rows, whose batches all have ``count`` samples."""
        chosen = list(rows)

        def cut(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[chosen, :count]

        inputs, targets = self.inputs[chosen, :count], self.targets[chosen, :count]
        shares = None if self.shares is None else self.shares[chosen]
        return DrawnRows(inputs, targets, [count] * len(chosen), cut(self.partners), shares)


def _filled(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors [n_i, ...] in rows as long as the longest, [S, n, ...], zeros behind."""
    return torch.nn.utils.rnn.pad_sequence(list(tensors), batch_first=True)
