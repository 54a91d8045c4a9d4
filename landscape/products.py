"""Hessian-vector products at one point."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

from landscape.devices import reproducible_arithmetic
from landscape.flat import FlatModule
from landscape.groupnorm import quicken

Batches = Callable[[], Iterator[tuple[Tensor, Tensor, float]]]


class HessianProducts:
    """v -> ∇²L(w) v, exact over all micro-batches.

    The gradient's graph of a micro-batch is kept between calls while ``memory`` lasts (the first micro-batch
    is weighed); the others' are made again each time.  Graphs hold on to a module of their own, so that
    nobody can move it under them.
    """

    def __init__(
        self,
        flat: FlatModule,
        loss: Callable[[Tensor, Tensor], Tensor],
        batches: Batches,
        w: Tensor,
        memory: int,
    ) -> None:
        self._flat = FlatModule(flat.module, flat.device, flat.dtype)
        quicken(self._flat.module)
        self._w, self._loss, self._batches, self._memory = w, loss, batches, memory
        self._graphs: dict[int, list[Tensor]] = {}
        self._weight: int | None = None

    @property
    def graphs_kept(self) -> int:
        """How many micro-batches' graphs are kept."""
        return len(self._graphs)

    def __call__(self, v: Tensor) -> Tensor:
        """∇²L(w) v for one vector [d] or stacked ones [k, d], which share each graph; in the shape of ``v``."""
        space = self._flat.space
        space.check(v)
        rows = v.detach().reshape(-1, space.dimension).to(self._flat.buffer)
        total = torch.zeros_like(rows)
        if not self._graphs:
            self._flat.load(self._w)
        # Fused attention kernels have no double backward; the plain one has.
        with reproducible_arithmetic(), torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            for number, (x, y, share) in enumerate(self._batches()):
                gradients = self._graphs.get(number) or self._gradients(number, x, y)
                total.add_(self._flat.products(gradients, rows, keep=number in self._graphs), alpha=share)
        return total.reshape(v.shape)

    def _gradients(self, number: int, x: Tensor, y: Tensor) -> list[Tensor]:
        if self._memory and self._weight is None:
            self._weight, gradients = self._weigh(x, y)
        else:
            gradients = self._flat.gradients(self._loss(self._flat.module(x), y), create_graph=True)
        if self._weight and (len(self._graphs) + 1) * self._weight <= self._memory:
            self._graphs[number] = gradients
        return gradients

    def _weigh(self, x: Tensor, y: Tensor) -> tuple[int, list[Tensor]]:
        """The bytes a micro-batch's graph holds on to, and its gradients."""
        storages: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        with saved_tensors_hooks(note, lambda tensor: tensor):
            gradients = self._flat.gradients(self._loss(self._flat.module(x), y), create_graph=True)
        return sum(storages.values()), gradients
