"""Products with the Hessian and its relatives at one point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

from landscape.devices import reproducible_arithmetic
from landscape.errors import FedscapeError
from landscape.flat import FlatModule, join
from landscape.quicken import quicken
from landscape.randomness import torch_generator
from landscape.samples import MicroBatches

OutputCurvature = Literal["ggn", "empirical", "mc"]

Loss = Callable[[Tensor, Tensor], Tensor]


class HessianProducts:
    """v -> ∇²L(w) v, exact over all micro-batches.

    The gradient's graph of a micro-batch is kept between calls while ``memory`` lasts (the first micro-batch
    is weighed); the others' are made again each time.  Where micro-batches have become smaller, all graphs are
    dropped and half that memory is used from then on.  Graphs hold on to a module of their own, so that nobody can
    move it under them.
    """

    def __init__(
        self,
        flat: FlatModule,
        loss: Loss,
        batches: MicroBatches,
        w: Tensor,
        memory: int,
    ) -> None:
        self._flat = FlatModule(flat.module, flat.device, flat.dtype)
        quicken(self._flat.module)
        self._w, self._loss, self._batches, self._memory = w, loss, batches, memory
        self._graphs: dict[int, list[Tensor]] = {}
        self._cut = self._batches.cut
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
        return self._batches.sum(lambda: self._over_portion(rows)).reshape(v.shape)

    def _over_portion(self, rows: Tensor) -> Tensor:
        total = torch.zeros_like(rows)
        cut = self._batches.cut
        if self._cut != cut:  # the graphs are of other micro-batches
            self._graphs.clear()
            if cut[0] < self._cut[0]:
                self._memory //= 2  # they may be why memory ran out
            self._cut, self._weight = cut, None
        if not self._graphs:
            self._flat.load(self._w)
        # Fused attention kernels have no double backward; the plain one has.
        with reproducible_arithmetic(), torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            for start, x, y, share in self._batches:
                gradients = self._graphs.get(start) or self._gradients(start, x, y)
                total.add_(self._flat.products(gradients, rows, keep=start in self._graphs), alpha=share)
        return total

    def _gradients(self, start: int, x: Any, y: Any) -> list[Tensor]:
        if self._memory and self._weight is None:
            self._weight, gradients = self._weigh(x, y)
        else:
            gradients = self._flat.gradients(
                self._loss(self._batches.outputs(self._flat.module, x), y), create_graph=True
            )
        if self._weight and (len(self._graphs) + 1) * self._weight <= self._memory:
            self._graphs[start] = gradients
        return gradients

    def _weigh(self, x: Any, y: Any) -> tuple[int, list[Tensor]]:
        """The bytes a micro-batch's graph holds on to, and its gradients."""
        storages: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        with saved_tensors_hooks(note, lambda tensor: tensor):
            gradients = self._flat.gradients(
                self._loss(self._batches.outputs(self._flat.module, x), y), create_graph=True
            )
        return sum(storages.values()), gradients


class GaussNewtonProducts:
    """v -> (1/n) Σ_i J_iᵀ C_i J_i v, J_i the outputs' Jacobian at sample i, C_i a curvature of the loss in them.

    ``kind`` chooses C_i: ``ggn``, the loss's Hessian in the outputs (generalised Gauss-Newton, Schraudolph,
    Neural Computation 2002); ``empirical``, r_i r_iᵀ with r_i the loss's gradient in the outputs (empirical
    Fisher: the second moment of per-sample gradients); ``mc``, the same with one label a sample drawn from the
    model's own softmax (Monte-Carlo Fisher, whose mean over draws is ``ggn`` for cross-entropy).

    J v is the transpose of the transposed Jacobian, two reverse passes, so that every layer with a double
    backward is right.
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
        if kind not in ("ggn", "empirical", "mc"):
            raise FedscapeError(f"unknown curvature '{kind}': give ggn, empirical or mc")
        self._flat, self._loss, self._batches, self._kind, self._seed = flat, loss, batches, kind, seed
        self._w = w

    def __call__(self, v: Tensor) -> Tensor:
        """The products with one vector [d] or stacked ones [k, d], in the shape of ``v``."""
        space = self._flat.space
        space.check(v)
        rows = v.detach().reshape(-1, space.dimension).to(self._flat.buffer)
        return self._batches.sum(lambda: self._over_portion(rows)).reshape(v.shape)

    def _over_portion(self, rows: Tensor) -> Tensor:
        flat, total = self._flat, torch.zeros_like(rows)
        flat.load(self._w)
        with reproducible_arithmetic(), torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            for start, x, y, share in self._batches:
                outputs = flat.module(x)
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
            (slope,) = torch.autograd.grad(self._loss(at, y), at, create_graph=True)
            if not slope.requires_grad:
                return torch.zeros_like
            return lambda u: torch.autograd.grad(slope, at, u, retain_graph=True)[0]
        if self._kind == "mc":
            y = self._drawn(at.detach(), y, start)
        (slope,) = torch.autograd.grad(self._loss(at, y), at)
        # The mean loss's gradient in a sample's outputs is r_i/n, so n (r_i/n)(r_i/n)ᵀ is the mean of r_i r_iᵀ.
        n, slope = len(at), slope.flatten(1)
        return lambda u: (n * slope * (slope * u.flatten(1)).sum(1, keepdim=True)).view_as(u)

    def _drawn(self, outputs: Tensor, y: Tensor, start: int) -> Tensor:
        if outputs.dim() != 2 or y.shape != outputs.shape[:1] or y.is_floating_point():
            raise FedscapeError("the Monte-Carlo Fisher needs a classifier: outputs [n, classes] and integer targets")
        # One number a sample of the data set, so that neither micro-batches nor ranks change what is drawn.
        drawn = torch.rand(
            len(self._batches.data), generator=torch_generator(self._seed, "labels"), dtype=torch.float64
        )
        chosen = drawn[start : start + len(y), None].to(outputs.device)
        below = outputs.double().softmax(1).cumsum(1)[:, :-1] < chosen
        return below.sum(1).to(y)
