"""Hessian-vector products whose passes are recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable
from weakref import proxy

import torch
from torch import Tensor

from landscape.autograd.flat import FlatModule
from landscape.autograd.products import HessianProducts
from landscape.compute.graphs import NotCapturable, OnlyCapturable, Record, captured
from landscape.data.batches import Batches
from landscape.data.micro_batches import MicroBatches
from landscape.errors import FedscapeError
from landscape.tasks import Loss

Multiply = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(inputs, targets, vectors [k, d]) -> the products of a micro-batch, [k, d]."""


class RecordedProducts(HessianProducts):
    """v -> ∇²L(w) v by recorded passes: for each shape of a micro-batch and number of vectors one recording.

    A recording holds the forward pass, the gradient and the second backward pass, on inputs, targets and vectors that
    are copied to where it reads them.  So each product starts one CUDA graph a micro-batch, where the kernels of the
    three passes would be started by Python one by one.  No graphs of gradients are kept between calls: where these fit
    into memory and kernels are large, :class:`HessianProducts` computes less.

    Args:
        flat, loss, batches, w: as of :class:`HessianProducts`.
        record: how passes are recorded.

    Raises:
        FedscapeError: the data are not ``Samples``; in a product, a pass that cannot be recorded.

    Example:
        >>> import torch
        >>> from landscape.autograd.flat import FlatModule
        >>> from landscape.autograd.recorded import RecordedProducts
        >>> from landscape.compute.graphs import Again
        >>> from landscape.data.micro_batches import MicroBatches
        >>> from landscape.data.samples import Samples
        >>> flat = FlatModule(torch.nn.Linear(2, 1, bias=False), torch.device("cpu"), torch.float32)
        >>> batches = MicroBatches(Samples(torch.eye(2), torch.ones(2, 1)), 1, torch.float32)
        >>> mse = torch.nn.functional.mse_loss  # ∇²L = I, the mean of 2 x xᵀ over both samples
        >>> RecordedProducts(flat, mse, batches, flat.buffer.clone(), Again.record)(torch.tensor([1.0, 3.0]))
        tensor([1., 3.])
    """

    def __init__(self, flat: FlatModule, loss: Loss, batches: MicroBatches, w: Tensor, record: Record) -> None:
        if isinstance(batches.data, Batches):
            raise FedscapeError(
                "recorded products need micro-batches of a fixed shape: give inputs and targets, not batches with an "
                "objective of their own"
            )
        self._record = record
        super().__init__(flat, loss, batches, w, memory=0)

    def _begin(self) -> None:
        super()._begin()
        self._passes: dict[tuple[torch.Size, torch.Size, int], _Pass] = {}

    def _multiply(self, rows: Tensor) -> Tensor:
        total = torch.zeros_like(rows)
        for _, x, y, share in self._batches:
            shapes = x.shape, y.shape, len(rows)
            if shapes not in self._passes:
                self._passes[shapes] = self._pass(x, y, rows)
            total.add_(self._passes[shapes].of(x, y, rows), alpha=share)
        return total

    def _pass(self, x: Tensor, y: Tensor, rows: Tensor) -> _Pass:
        me = proxy(self)  # a recording that held this object, which holds the recording, would never be freed
        return _Pass(lambda *given: me._once(*given), x, y, rows, self._record)

    def _once(self, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        return self._flat.products(self._slope(x, y), rows)


class _Pass:
    """The products of a micro-batch of one shape, recorded."""

    def __init__(self, multiply: Multiply, x: Tensor, y: Tensor, rows: Tensor, record: Record) -> None:
        self._x, self._y, self._rows = x, y, rows = x.clone(), y.clone(), rows.clone()
        self._found = found = torch.zeros_like(rows)

        def work() -> None:
            found.copy_(multiply(x, y, rows))

        work()  # what is decided once, such as the memory format of images, is decided here
        try:
            with OnlyCapturable():
                work()
        except NotCapturable as error:
            raise FedscapeError(
                f"a pass of this model cannot be recorded: {error}; take products that are not recorded"
            ) from error
        found.zero_()
        self._recorded = captured(work, [found], record)

    def of(self, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """The products, [k, d]; the next call overwrites them."""
        self._x.copy_(x)
        self._y.copy_(y)
        self._rows.copy_(rows)
        self._recorded.replay()
        return self._found
