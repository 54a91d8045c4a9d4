"""The running statistics of a module's BatchNorm layers, as one flat vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_BatchNorm = nn.modules.batchnorm._BatchNorm


class BatchStatistics:
    """Running means and variances of a module's BatchNorm layers, [b] (b = 0: no layer tracks them).

    The counters ``num_batches_tracked`` are not included: they are set to 0 where statistics are loaded.

    Example:
        >>> import torch
        >>> from landscape.batchnorm import BatchStatistics
        >>> norm = torch.nn.BatchNorm1d(2)
        >>> statistics = BatchStatistics(norm)
        >>> statistics.read(), statistics.variances()
        (tensor([0., 0., 1., 1.]), tensor([False, False,  True,  True]))
        >>> statistics.estimate([torch.tensor([[1.0, 0.0], [3.0, 0.0]])])
        tensor([2., 0., 2., 0.])
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._layers = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]

    def __len__(self) -> int:
        """b, the number of statistics."""
        return sum(buffer.numel() for buffer in self._buffers())

    def _buffers(self) -> Iterator[Tensor]:
        for layer in self._layers:
            assert layer.running_mean is not None
            assert layer.running_var is not None
            yield from (layer.running_mean, layer.running_var)

    def read(self) -> Tensor:
        """A copy of the statistics, [b]."""
        parts = [buffer.detach().reshape(-1) for buffer in self._buffers()]
        return torch.cat(parts) if parts else torch.zeros(0)

    def variances(self) -> Tensor:
        """Which statistics are variances, boolean [b]."""
        return torch.tensor([k % 2 == 1 for k, buffer in enumerate(self._buffers()) for _ in range(buffer.numel())])

    def named(self, statistics: Tensor) -> dict[str, Tensor]:
        """Statistics [..., b] as new buffers by name, [..., *shape], with counters at 0: for a functional call.

        Example:
            >>> import torch
            >>> from landscape.batchnorm import BatchStatistics
            >>> BatchStatistics(torch.nn.BatchNorm1d(1)).named(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))["running_var"]
            tensor([[2.],
                    [4.]])
        """
        names = {id(buffer): name for name, buffer in self._module.named_buffers()}
        found, offset, rows = {}, 0, statistics.shape[:-1]
        for buffer in self._buffers():
            part = statistics[..., offset : offset + buffer.numel()]
            found[names[id(buffer)]] = part.reshape(*rows, *buffer.shape).clone()
            offset += buffer.numel()
        for layer in self._layers:
            if (count := layer.num_batches_tracked) is not None:
                found[names[id(count)]] = count.new_zeros(rows)
        return found

    def joined(self, named: Mapping[str, Tensor]) -> Tensor:
        """The statistics [..., b] of buffers as :meth:`named` gives them."""
        names = {id(buffer): name for name, buffer in self._module.named_buffers()}
        parts = [(named[names[id(buffer)]], buffer.dim()) for buffer in self._buffers()]
        return torch.cat([part.flatten(part.dim() - held) for part, held in parts], dim=-1)

    def load(self, statistics: Tensor) -> None:
        """Set the module's statistics to these, [b]."""
        offset = 0
        for buffer in self._buffers():
            buffer.copy_(statistics[offset : offset + buffer.numel()].view_as(buffer))
            offset += buffer.numel()
        for layer in self._layers:
            if layer.num_batches_tracked is not None:
                layer.num_batches_tracked.zero_()

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Inside, a forward pass in training mode may change the statistics; they are restored on exit."""
        if not self._layers:
            yield
            return
        before, counts = self.read(), [layer.num_batches_tracked for layer in self._layers]
        kept = [None if count is None else count.clone() for count in counts]
        try:
            yield
        finally:
            self.load(before)
            for count, old in zip(counts, kept, strict=True):
                if count is not None and old is not None:
                    count.copy_(old)

    @torch.no_grad()
    def estimate(self, batches: Iterable[Any], run: Callable[[nn.Module, Any], object] | None = None) -> Tensor:
        """Set the statistics to those of these inputs and return them, [b]; the module is left in evaluation mode.

        ``run(module, batch)`` makes the forward pass where a batch is more than the module's input.

        A layer's statistics are the mean over the batches, as in ``torch.optim.swa_utils.update_bn``.
        """
        momenta = [layer.momentum for layer in self._layers]
        for layer in self._layers:
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean over the batches
        self._module.train()
        try:
            for inputs in batches:
                self._module(inputs) if run is None else run(self._module, inputs)
        finally:
            self._module.eval()
            for layer, momentum in zip(self._layers, momenta, strict=True):
                layer.momentum = momentum
        return self.read()
