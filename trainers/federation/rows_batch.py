"""The losses and gradients of a mini-batch of each of several clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.func import vmap

from landscape.autograd.cross_entropy import cross_entropies
from landscape.autograd.stacked import StackedModule
from landscape.compute.devices import memory_ran_out, on_device
from landscape.compute.regions import marked
from landscape.errors import FedscapeError
from trainers.federation.local import LocalWork, divergence_slope
from trainers.federation.stacking import DrawnRows
from trainers.parts.adversary import Adversary
from trainers.parts.state import State

Computed = Callable[[Tensor, DrawnRows, "dict[str, Tensor] | None"], tuple[Tensor, Tensor]]


class RowsBatch:
    """The losses and gradients of a mini-batch of each client.

    Only the first points that the gradients are evaluated at update BatchNorm's running statistics.

    Args:
        module: the model.
        drawn: the mini-batches.
        local: what is minimised.
        statistics: BatchNorm's buffers by name, in rows, updated in place.
        apart: whether samples of a batch act on each other, so that none may be filled up.

    Attributes:
        losses: at the first points, without the penalty, [S].
        gradients: how many were taken of each.
        slopes: at the first points, the losses' gradients by the tensors that move the inputs, by name, [S, ...].
    """

    def __init__(
        self,
        module: StackedModule,
        drawn: DrawnRows,
        local: LocalWork,
        statistics: dict[str, Tensor] | None,
        *,
        apart: bool = False,
    ) -> None:
        self._module, self._drawn, self._man, self._statistics = module, drawn, local.parts.man, statistics
        self._apart = apart or statistics is not None or self._man is not None
        self.losses: Tensor | None = None
        self.gradients = 0
        self.slopes: State | None = None
        self._moving: dict[str, Tensor] = {}

    def move_by(self, adversary: Adversary, clients: State) -> None:
        """Move each client's inputs as the adversary does; ``slopes`` are then computed with the first losses.

        Raises:
            FedscapeError: an adversary that ``vmap`` cannot run.
        """
        self._moving = {name: getattr(clients, name).detach().requires_grad_() for name in adversary.moving}
        seen = {**clients.tensors(), **self._moving}
        try:
            with torch.enable_grad():
                moved = vmap(lambda x, own: adversary.move(x, State.of(own)))(self._drawn.inputs, seen)
        except RuntimeError as error:
            if memory_ran_out(error):
                raise
            told = str(error).splitlines()[0][:120]
            raise FedscapeError(
                f"the adversary cannot move the inputs of several clients at once ({told}); give --executor sequential"
            ) from error
        self._drawn = replace(self._drawn, inputs=moved)

    @marked("gradients")
    def gradient(self, w: Tensor) -> Tensor:
        """The gradients at ``w``, [S, d]."""
        losses, slopes = self._by_size(self._computed, w[None])
        if self.losses is None:
            self.losses = losses
            if self._moving:
                self._drawn = replace(self._drawn, inputs=self._drawn.inputs.detach())
        return slopes

    @marked("gradients")
    def divergence(self, w: Tensor, reference: Tensor, temperature: float) -> Tensor:
        """The gradients of KL(softmax(z(reference)/T) ‖ softmax(z(w)/T)) at ``w``; [S, d] all."""

        def computed(points: Tensor, drawn: DrawnRows, statistics: dict[str, Tensor] | None) -> tuple[Tensor, Tensor]:
            own = [{name: b.clone() for name, b in statistics.items()} if statistics else None for _ in points]
            inputs, noise = drawn.inputs.detach(), drawn.noise()  # both points have the same
            # The reference first: a pass may use the workspace of the one before.
            there = self._module.run(points[1], inputs, own[1], noise=noise).outputs.clone()
            here = self._module.run(points[0], inputs, own[0], noise=noise)
            numbers = on_device(torch.tensor(drawn.counts, dtype=w.dtype), w.device)[:, None, None]
            counted = torch.arange(here.outputs.shape[2], device=w.device) < numbers
            pull = divergence_slope(here.outputs, there, temperature, axis=1)  # outputs are [S, classes, n]
            return numbers.flatten(), here.gradient(torch.where(counted, pull, 0.0) / numbers)

        slopes = self._by_size(computed, torch.stack([w, reference]))[1]
        # Where a point lies in memory decides its rounding, of which a unit vector would make a whole step.
        return torch.where((w == reference).all(dim=-1, keepdim=True), 0.0, slopes)

    def _by_size(self, computed: Computed, points: Tensor) -> tuple[Tensor, Tensor]:
        """What is computed at each client's points ([P, S, d]), a number [S] and a gradient [S, d].

        All clients together, or those with as many samples in their batches where samples act on each other: none may
        be there that does not count.
        """
        self.gradients += 1
        counts = self._drawn.counts
        apart = self._apart or not self._drawn.fills_up()
        sizes = sorted(set(counts)) if apart else [max(counts)]
        if len(sizes) == 1:
            return computed(points, self._drawn, self._statistics)
        numbers, slopes = points.new_zeros(points.shape[1]), torch.zeros_like(points[0])
        for size in sizes:
            some = [row for row, count in enumerate(counts) if count == size]
            own = None if self._statistics is None else {k: b[some] for k, b in self._statistics.items()}
            numbers[some], slopes[some] = computed(points[:, some], self._drawn.take(some, size), own)
            for name, buffer in (own or {}).items():
                assert self._statistics is not None
                self._statistics[name][some] = buffer
        return numbers, slopes

    def _computed(
        self, points: Tensor, drawn: DrawnRows, statistics: dict[str, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        (w,) = points
        if statistics is not None and self.losses is not None:
            statistics = {name: buffer.clone() for name, buffer in statistics.items()}
        found = self._module.run(w, drawn.inputs, statistics, self._man, drawn.noise())
        losses, slopes = cross_entropies(found.outputs, drawn.aims)
        if self._moving and self.losses is None:
            by = dict(zip(self._moving, found.gradient_by(list(self._moving.values()), slopes), strict=True))
            # Those of clients that are computed another time are zeros.
            before = {} if self.slopes is None else self.slopes.tensors()
            self.slopes = State.of({name: before.get(name, 0) + slope for name, slope in by.items()})
        return losses, found.gradient(slopes)
