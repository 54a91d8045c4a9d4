"""Products with the Hessian, Gauss-Newton and Fisher matrices at one point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from landscape.autograd.double_backward import use_fast_double_backward
from landscape.autograd.flat import FlatModule, join
from landscape.autograd.preconditions import require_function
from landscape.compute.cost import saved_storages
from landscape.compute.devices import free_memory, memory_size, reproducible_arithmetic
from landscape.compute.distributed import rank_and_world
from landscape.compute.randomness import torch_generator
from landscape.data.batches import Batches, tensors
from landscape.data.micro_batches import MicroBatches
from landscape.errors import FedscapeError
from landscape.tasks import Loss

OutputCurvature = Literal["ggn", "empirical", "mc"]


class _Products:
    """v -> A v for a matrix A that is a mean over micro-batches, at the point ``w``.

    It has a copy of the module, so that the point and the graphs stay what they are.
    """

    def __init__(self, flat: FlatModule, loss: Loss, batches: MicroBatches, w: Tensor) -> None:
        self._flat = FlatModule(flat.module, flat.device, flat.dtype)
        self._flat.load(w)
        use_fast_double_backward(self._flat.module)
        self._loss, self._batches = loss, batches
        self._each = False  # whether A depends on single samples, not on the batch's loss alone

    def __call__(self, v: Tensor) -> Tensor:
        """A v for one vector [d] or stacked ones [k, d], which share each micro-batch's graph; in the shape of ``v``.

        Raises:
            FedscapeError: vectors of another length; at the first call, a loss that is not a function of the parameters
                or not a mean over samples (:mod:`landscape.autograd.preconditions`).
        """
        space = self._flat.space
        space.check(v)
        rows = v.detach().reshape(-1, space.dimension).to(self._flat.buffer)
        return self._batches.sum(lambda: self._over_portion(rows)).reshape(v.shape)

    def _over_portion(self, rows: Tensor) -> Tensor:
        arithmetic = reproducible_arithmetic(self._batches.tf32, cudnn=not self._flat.recurrent)
        # Fused attention kernels have no double backward; the plain kernel has one.
        with arithmetic, torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            require_function(self._flat, self._loss, self._batches, each=self._each)
            return self._multiply(rows)

    def _multiply(self, rows: Tensor) -> Tensor:
        """This rank's part of the products with rows [k, d]."""
        raise NotImplementedError


class HessianProducts(_Products):
    """v -> ∇²L(w) v, exact over all micro-batches.

    It is right for every layer whose double backward in PyTorch is right.  That of ``parametrizations.weight_norm``
    along an axis is wrong (PyTorch 2.13; with ``dim=None`` it is right): the products are then not symmetric, which
    Lanczos sees (:mod:`analysis.hessian.spectrum.symmetry`), and differences of gradients are right
    (:mod:`analysis.hessian.checks.differences`).

    Graphs of the micro-batches' gradients are kept between calls up to ``memory`` (bytes or a text such as ``500MB``; a
    quarter of the free memory if ``None``); the others are computed again in each call.  Of micro-batches of the same
    shape, the memory of the first is measured.  If micro-batches become smaller, all graphs are dropped, and half of
    the memory is used from then on.

    Raises:
        FedscapeError: ``memory`` is not an amount of memory.
    """

    def __init__(
        self, flat: FlatModule, loss: Loss, batches: MicroBatches, w: Tensor, memory: int | str | None
    ) -> None:
        super().__init__(flat, loss, batches, w)
        self._memory = graph_memory(flat.device) if memory is None else memory_size(memory)
        self._begin()

    def _begin(self) -> None:
        self._division = self._batches.division
        self._graphs: dict[int, list[Tensor]] = {}
        self._weights: dict[tuple[torch.Size, ...], int] = {}
        self._held = 0

    @property
    def graphs_kept(self) -> int:
        """The number of micro-batches whose graphs are kept."""
        return len(self._graphs)

    def _over_portion(self, rows: Tensor) -> Tensor:
        division = self._batches.division
        if self._division != division:  # the graphs belong to other micro-batches
            if division[0] < self._division[0]:
                self._memory //= 2  # the graphs may be the reason that memory ran out
            self._begin()
        return super()._over_portion(rows)

    def _multiply(self, rows: Tensor) -> Tensor:
        total = torch.zeros_like(rows)
        for start, x, y, share in self._batches:
            gradients = self._graphs.get(start) or self._gradients(start, x, y)
            total.add_(self._flat.products(gradients, rows, keep=start in self._graphs), alpha=share)
        return total

    def _gradients(self, start: int, x: Any, y: Any) -> list[Tensor]:
        if not self._memory:
            return self._slope(x, y)
        shapes = tuple(tensor.shape for tensor in tensors((x, y)))
        if shapes in self._weights:
            gradients = self._slope(x, y)
        else:
            self._weights[shapes], gradients = self._weigh(x, y)
        if self._held + self._weights[shapes] <= self._memory:
            self._graphs[start] = gradients
            self._held += self._weights[shapes]
        return gradients

    def _slope(self, x: Any, y: Any) -> list[Tensor]:
        loss, _ = self._batches.scored(self._flat.module, self._loss, x, y)
        return self._flat.gradients(loss, create_graph=True)

    def _weigh(self, x: Any, y: Any) -> tuple[int, list[Tensor]]:
        """The bytes that a micro-batch's gradients and their graph keep in memory, and the gradients."""
        with saved_storages() as storages:
            gradients = self._slope(x, y)
        for storage in (gradient.untyped_storage() for gradient in gradients):
            storages[storage.data_ptr()] = storage.nbytes()
        # The parameters and resident samples are in memory anyway.
        for shared in (self._flat.buffer, *self._batches.resident):
            storages.pop(shared.untyped_storage().data_ptr(), None)
        return sum(storages.values()), gradients


def graph_memory(device: torch.device) -> int:
    """The default memory for graphs in bytes: a quarter of what is free, shared by the ranks of one machine's CPU."""
    sharing = rank_and_world()[1] if device.type == "cpu" else 1
    return free_memory(device) // 4 // sharing


class GaussNewtonProducts(_Products):
    """v -> (1/n) Σ_i J_iᵀ C_i J_i v, J_i the outputs' Jacobian at sample i, C_i the loss's curvature in the outputs.

    ``kind`` chooses C_i: ``ggn``, the loss's Hessian in the outputs (generalised Gauss-Newton, Schraudolph,
    Neural Computation 2002); ``empirical``, r_i r_iᵀ with r_i the loss's gradient in the outputs (empirical
    Fisher: the second moment of per-sample gradients); ``mc``, the same with one label per sample drawn from the
    model's softmax (Monte-Carlo Fisher, whose mean over draws is ``ggn`` for cross-entropy).

    J v is computed by two reverse passes, as the transpose of the transposed Jacobian, which is right for every layer
    with a double backward.

    Raises:
        FedscapeError: an unknown kind, a penalty, batches with an objective of their own; in a product, ``mc`` of a
            model that is not a classifier.
    """

    def __init__(
        self,
        flat: FlatModule,
        loss: Loss,
        batches: MicroBatches,
        w: Tensor,
        kind: OutputCurvature,
        seed: int,
    ) -> None:
        if batches.penalty is not None:
            raise FedscapeError(
                "the Gauss-Newton and Fisher matrices are of a loss of the outputs, and MAN's penalty is one of the "
                "activations: take the Hessian, or leave out the penalty"
            )
        if isinstance(batches.data, Batches):
            raise FedscapeError(
                "the Gauss-Newton and Fisher matrices need the model's outputs, which an objective of its own hides: "
                "take the Hessian, or give inputs, targets and a loss of the outputs"
            )
        if kind not in ("ggn", "empirical", "mc"):
            raise FedscapeError(f"unknown curvature '{kind}': give ggn, empirical or mc")
        super().__init__(flat, loss, batches, w)
        self._kind, self._seed, self._each = kind, seed, kind != "ggn"

    def _multiply(self, rows: Tensor) -> Tensor:
        flat, total = self._flat, torch.zeros_like(rows)
        for start, x, y, share in self._batches:
            outputs = self._batches.outputs(flat.module, x)
            curvature = self._curvature(outputs, y, start)
            dummy = torch.zeros_like(outputs, requires_grad=True)
            pulled = flat.gradients(outputs, dummy, create_graph=True)
            for row, vector in zip(total, rows, strict=True):
                pushed = flat.pushed(pulled, dummy, vector)
                row.add_(join(flat.gradients(outputs, curvature(pushed), keep=True)), alpha=share)
        return total

    def _curvature(self, outputs: Tensor, y: Tensor, start: int) -> Callable[[Tensor], Tensor]:
        """C of the mean loss over one micro-batch: u -> C u in the shape of the outputs."""
        at = outputs.detach().requires_grad_()
        if self._kind == "ggn":
            (slope,) = torch.autograd.grad(self._batches.mean_loss(self._loss, at, y), at, create_graph=True)
            if not slope.requires_grad:
                return torch.zeros_like
            return lambda u: torch.autograd.grad(slope, at, u, retain_graph=True)[0]
        if self._kind == "mc":
            y = self._drawn(at.detach(), y, start)
        (slope,) = torch.autograd.grad(self._batches.mean_loss(self._loss, at, y), at)
        # The gradient of the mean loss in sample i's outputs is r_i/n, so n Σ (r_i/n)(r_i/n)ᵀ is the mean of r_i r_iᵀ.
        n, slope = len(at), slope.flatten(1)
        return lambda u: (n * slope * (slope * u.flatten(1)).sum(1, keepdim=True)).view_as(u)

    def _drawn(self, outputs: Tensor, y: Tensor, start: int) -> Tensor:
        if outputs.dim() != 2 or y.shape != outputs.shape[:1] or y.is_floating_point():
            raise FedscapeError("the Monte-Carlo Fisher needs a classifier: outputs [n, classes] and integer targets")
        # One number per sample of the data set: the labels do not depend on micro-batches and ranks.
        drawn = torch.rand(
            len(self._batches.data), generator=torch_generator(self._seed, "labels"), dtype=torch.float64
        )
        chosen = drawn[start : start + len(y), None].to(outputs.device)
        below = outputs.double().softmax(1).cumsum(1)[:, :-1] < chosen
        return below.sum(1).to(y)
