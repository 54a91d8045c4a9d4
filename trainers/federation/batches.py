"""Mini-batches of a client's samples, in random order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import cycle, islice

import torch
from torch import Tensor

from trainers.settings import DualSteps, LastBatch


def batch_indices(
    samples: int,
    size: int | None,
    epochs: int,
    generator: torch.Generator,
    *,
    steps: int | None = None,
    last: LastBatch = "keep",
) -> Iterator[Tensor]:
    """Positions 0..samples−1 in shuffled mini-batches, the last of an epoch shorter where it does not divide.

    Args:
        samples: number of samples.
        size: samples per batch; ``None`` is the full batch: one step an epoch, in order.
        epochs: passes over the samples.
        generator: of the order, drawn anew in each epoch.
        steps: number of batches, over as many epochs as they take, in place of ``epochs``.
        last: drop the short batch at an epoch's end, unless it is the epoch's only one.

    Example:
        >>> import torch
        >>> from trainers.federation.batches import batch_indices
        >>> draw = torch.Generator().manual_seed(0)
        >>> [len(batch) for batch in batch_indices(5, 2, 2, draw)]
        [2, 2, 1, 2, 2, 1]
        >>> [len(batch) for batch in batch_indices(5, 2, 2, draw, last="drop")]
        [2, 2, 2, 2]
        >>> [len(batch) for batch in batch_indices(5, 2, 1, draw, steps=4)]
        [2, 2, 1, 2]
        >>> list(batch_indices(3, None, 1, draw))
        [tensor([0, 1, 2])]
    """
    if steps is not None:
        yield from islice(_endless(samples, size, generator, last), steps)
        return
    for _ in range(epochs):
        yield from _epoch(samples, size, generator, last)


def planned_steps(
    samples: int, size: int | None, epochs: int, *, steps: int | None = None, last: LastBatch = "keep"
) -> int:
    """K, the number of mini-batches that :func:`batch_indices` gives with the same arguments.

    Example:
        >>> from trainers.federation.batches import planned_steps
        >>> planned_steps(5, 2, 2), planned_steps(5, 2, 2, last="drop"), planned_steps(5, 2, 1, steps=4)
        (6, 4, 4)
    """
    if steps is not None:
        return steps
    if size is None:
        return epochs
    whole, rest = divmod(samples, size)
    return epochs * (whole + (rest > 0 and (last == "keep" or whole == 0)))


def batch_counts(
    samples: int, size: int | None, epochs: int, *, steps: int | None = None, last: LastBatch = "keep"
) -> list[int]:
    """The number of samples in each mini-batch that :func:`batch_indices` gives with the same arguments.

    Example:
        >>> from trainers.federation.batches import batch_counts
        >>> batch_counts(5, 2, 2), batch_counts(5, 2, 1, steps=4)
        ([2, 2, 1, 2, 2, 1], [2, 2, 1, 2])
    """
    each = samples if size is None else size
    whole, rest = divmod(samples, each)
    epoch = [each] * whole + [rest] * (rest > 0 and (last == "keep" or whole == 0))
    return epoch * epochs if steps is None else list(islice(cycle(epoch), steps))


def batch_order(
    samples: int, size: int | None, counts: Sequence[int], generator: torch.Generator, last: LastBatch = "keep"
) -> list[Tensor]:
    """The mini-batches of :func:`batch_indices`, drawn at once: joined, then cut by their :func:`batch_counts`.

    Example:
        >>> import torch
        >>> from trainers.federation.batches import batch_counts, batch_indices, batch_order
        >>> drawn = batch_order(5, 2, batch_counts(5, 2, 2), torch.Generator().manual_seed(0))
        >>> torch.equal(torch.cat(drawn), torch.cat(list(batch_indices(5, 2, 2, torch.Generator().manual_seed(0)))))
        True
    """
    left, drawn = sum(counts), []
    used = samples - samples % size if size is not None and last == "drop" and samples > size else samples
    while left > 0:
        order = torch.arange(samples) if size is None else torch.randperm(samples, generator=generator)
        taken = min(used, left)
        drawn.append(order if taken == samples else order[:taken])
        left -= taken
    return drawn


def dual_steps(
    sizes: Sequence[int], size: int | None, epochs: int, which: DualSteps, *, steps: int | None = None
) -> float:
    """K by which all clients' changes are divided, or 0 where it is each client's own.

    Args:
        sizes: number of samples of each client.
        size, epochs, steps: as :func:`batch_indices`.
        which: ``own``; ``first``: E n_0/B; ``mean``: E ⌈(n/N)/B⌉.

    Example:
        >>> from trainers.federation.batches import dual_steps
        >>> [dual_steps([5, 10], 2, 3, which) for which in ("own", "first", "mean")]  # 0, 3 · 5/2, 3 · ⌈7.5/2⌉
        [0.0, 7.5, 12.0]
    """
    if which == "own":
        return 0.0
    if steps is not None or size is None:
        return float(epochs if steps is None else steps)
    if which == "first":
        return epochs * (sizes[0] / size)
    return float(epochs * math.ceil(sum(sizes) / len(sizes) / size))


def _endless(samples: int, size: int | None, generator: torch.Generator, last: LastBatch) -> Iterator[Tensor]:
    while True:
        yield from _epoch(samples, size, generator, last)


def _epoch(samples: int, size: int | None, generator: torch.Generator, last: LastBatch) -> Iterator[Tensor]:
    if size is None:
        yield torch.arange(samples)
        return
    batches = torch.randperm(samples, generator=generator).split(size)
    if last == "drop" and len(batches) > 1 and len(batches[-1]) < size:
        batches = batches[:-1]
    yield from batches
