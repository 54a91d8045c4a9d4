"""Hessian-vector products of one small model on several data sets, all at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from landscape.autograd.dense_chain import DenseChain
from landscape.autograd.flat import FlatModule
from landscape.autograd.memory_format import plain_copy
from landscape.autograd.preconditions import require_function
from landscape.data.batches import Batches
from landscape.data.micro_batches import MicroBatches
from landscape.tasks import Loss

_MOST_FLOPS = 1e7
"""Operations of one data set's forward pass up to which a product's time is that of starting its kernels."""


class ProductsSideBySide:
    """(v_1, ..., v_n) -> (∇²L_1(w) v_1, ..., ∇²L_n(w) v_n), L_i the mean loss over the i-th data set.

    One graph holds n copies of the parameters, each with its samples; the Hessian by all of them is block diagonal.
    Where data sets are small, n products so take little longer than one alone.  Data sets are filled up to the largest
    one by samples of weight 0.

    Args:
        flat: the model.
        loss: of each sample, averaged.
        batches: the data sets, for which :meth:`pays`.
        w: the point, [d].

    Example:
        >>> import torch
        >>> from landscape.autograd.flat import FlatModule
        >>> from landscape.autograd.side_by_side import ProductsSideBySide
        >>> from landscape.data.micro_batches import MicroBatches
        >>> from landscape.data.samples import Samples
        >>> flat = FlatModule(torch.nn.Linear(1, 1, bias=False), torch.device("cpu"), torch.float32)
        >>> one, two = torch.tensor([[1.0]]), torch.tensor([[2.0], [4.0]])
        >>> both = [MicroBatches(Samples(x, x), 2, torch.float32) for x in (one, two)]
        >>> mse = torch.nn.functional.mse_loss  # ∇²L = 2 x² in the mean
        >>> ProductsSideBySide(flat, mse, both, flat.buffer)(torch.tensor([[1.0], [1.0]])).flatten().tolist()
        [2.0, 20.0]
    """

    def __init__(self, flat: FlatModule, loss: Loss, batches: Sequence[MicroBatches], w: Tensor) -> None:
        for each in batches:
            require_function(flat, loss, each, each=True)
        module, most = plain_copy(flat.module).eval(), max(len(each.data) for each in batches)
        x, y, weights = [], [], w.new_zeros(len(batches), most)
        for row, each in zip(weights, batches, strict=True):
            assert not isinstance(each.data, Batches)
            n = len(each.data)
            row[:n] = 1 / n
            inputs, targets = each.data.batch(torch.arange(most, device=each.data.device) % n, flat.dtype)
            x.append(inputs)
            y.append(targets)
        named = flat.space.unflatten(w.expand(len(batches), -1).contiguous())
        self._parameters = [part.detach().requires_grad_() for part in named.values()]
        with torch.enable_grad():
            own = dict(zip(named, self._parameters, strict=True))
            outputs = vmap(lambda mine, batch: functional_call(module, mine, (batch,)))(own, torch.stack(x))
            losses = batches[0].losses_at_once(loss, outputs.flatten(0, 1), torch.cat(y))
            if losses is not None:
                total = (losses.view(weights.shape) * weights).sum()
            else:  # a loss of somebody's own has means of whole data sets alone
                sizes = [len(each.data) for each in batches]
                means = [batches[0].mean_loss(loss, z[:n], t[:n]) for z, t, n in zip(outputs, y, sizes, strict=True)]
                total = torch.stack(means).sum()
            self._gradients = torch.autograd.grad(total, self._parameters, create_graph=True)

    @staticmethod
    def pays(flat: FlatModule, batches: Sequence[MicroBatches]) -> bool:
        """Whether the model is a chain of dense layers, and the data sets are as small as that: shapes decide."""
        plain = all(not isinstance(each.data, Batches) and each.penalty is None for each in batches)
        small = all(each.flops <= _MOST_FLOPS and len(each.data) <= each.size for each in batches)
        return len(batches) > 1 and plain and small and DenseChain.of(plain_copy(flat.module), flat.space) is not None

    def __call__(self, rows: Tensor) -> Tensor:
        """The products with vectors [n, d], [n, d]."""
        sizes = [part[0].numel() for part in self._parameters]
        parts = [piece.reshape(p.shape) for piece, p in zip(rows.split(sizes, 1), self._parameters, strict=True)]
        live = [k for k, slope in enumerate(self._gradients) if slope.requires_grad]
        if not live:  # the losses are linear in the parameters
            return torch.zeros_like(rows)
        found = torch.autograd.grad(
            [self._gradients[k] for k in live],
            self._parameters,
            [parts[k] for k in live],
            retain_graph=True,
            materialize_grads=True,
        )
        return torch.cat([part.flatten(1) for part in found], dim=1)
