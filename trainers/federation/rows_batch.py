"""The losses and gradients of a mini-batch of each of several clients."""

from __future__ import annotations

import torch
from torch import Tensor

from landscape.autograd.cross_entropy import cross_entropies
from landscape.autograd.stacked import StackedModule
from landscape.compute.regions import marked
from trainers.federation.local import LocalWork
from trainers.federation.stacking import DrawnRows


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

    @marked("gradients")
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
        found = self._module.run(w, drawn.inputs, statistics, self._man)
        losses, slopes = cross_entropies(found.outputs, drawn.aims)
        return losses, found.gradient(slopes)
