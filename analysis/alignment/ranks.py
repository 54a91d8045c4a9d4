"""Independent pieces of work divided over the ranks of ``torchrun``, and their results told to all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from landscape.autograd.products import graph_memory
from landscape.compute.distributed import apart, rank_and_world, sum_over_ranks

Shape = tuple[int, ...]


def divided(
    count: int,
    work: Callable[[range], Iterable[Sequence[Tensor]]],
    shapes: Sequence[Shape],
    like: Sequence[Tensor],
    told: Callable[[int], None] = lambda done: None,
) -> list[list[Tensor]]:
    """The results of pieces of work 0, ..., count − 1, on every rank.

    Rank r of w does r, r + w, r + 2w, ... by itself, each over all of its samples.  Every rank must call it.

    Args:
        count: how many there are.
        work: called once with a rank's own pieces: yields for each of them a tensor for each of the shapes.
        shapes: of what a piece of work gives.
        like: tensors whose type and device these have.
        told: called with the number done, about.

    Raises:
        RanksLostError: another rank has stopped.

    Example:
        >>> import torch
        >>> from analysis.alignment.ranks import divided
        >>> divided(2, lambda own: ([torch.tensor([i, i * i])] for i in own), [(2,)], [torch.tensor(0)])
        [[tensor([0, 0])], [tensor([1, 1])]]
    """
    rank, world = rank_and_world()
    found = [[one.new_zeros(shape) for shape, one in zip(shapes, like, strict=True)] for _ in range(count)]
    with apart():
        own = range(rank, count, world)
        for i, values in zip(own, work(own), strict=True):
            for mine, value in zip(found[i], values, strict=True):
                mine.copy_(value)
            told(min(i + world, count))
    for each in found:
        for tensor in each:
            sum_over_ranks(tensor)
    return found


def rank_graph_memory(device: torch.device) -> int | None:
    """Bytes for the graphs of one rank's products where each rank has its own; ``None``: as for a process alone."""
    return None if rank_and_world()[1] == 1 else graph_memory(device)
