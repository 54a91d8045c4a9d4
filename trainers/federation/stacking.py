"""Clients side by side: their tensors and their mini-batches in rows."""

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
class Batches:
    """The mini-batches of one client in a round.

    Attributes:
        samples: positions in the data, one batch after the other, in host memory.
        counts: samples of each batch.
    """

    samples: Tensor
    counts: list[int]

    @classmethod
    def of(cls, mine: Tensor, batches: Sequence[Tensor]) -> Batches:
        """Those of positions among the client's own samples ``mine``, [n]."""
        return cls(mine[torch.cat(list(batches))], [len(batch) for batch in batches])


def beside(clients: Sequence[Batches]) -> Tensor:
    """The samples of each client's batch in each step, [S, K, B], filled up with sample 0.

    Example:
        >>> import torch
        >>> from trainers.federation.stacking import Batches, beside
        >>> mine = torch.tensor([5, 6, 7])
        >>> first = Batches.of(mine, [torch.tensor([2, 0]), torch.tensor([1])])
        >>> beside([first, Batches.of(mine, [torch.tensor([1])])])
        tensor([[[7, 5],
                 [6, 0]],
        <BLANKLINE>
                [[6, 0],
                 [0, 0]]])
    """
    steps = max(len(each.counts) for each in clients)
    counts = torch.tensor([each.counts + [0] * (steps - len(each.counts)) for each in clients])
    filled = torch.arange(int(counts.max())) < counts[:, :, None]
    together = clients[0].samples.new_zeros(filled.shape)
    together[filled] = torch.cat([each.samples for each in clients])
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
