"""Means of the tensors that clients send."""

from __future__ import annotations

import torch
from torch import Tensor

from landscape.compute.cost import threads_for
from trainers.algorithm import Mean, State, Weighting


class Aggregate:
    """Means over the sampled clients, summed one client at a time: memory does not grow with their number.

    Example:
        >>> import torch
        >>> from trainers.federation import Aggregate
        >>> aggregate = Aggregate("samples")
        >>> for change, samples in ((1.0, 3), (5.0, 1)):  # both clients began at 0
        ...     aggregate.add({"delta": torch.tensor([change])}, samples, model=torch.tensor([change]), steps=2)
        >>> mean = aggregate.mean()
        >>> mean.delta, mean.uniform.delta, mean.steps  # (3 · 1 + 1 · 5)/4, and (1 + 5)/2
        (tensor([2.]), tensor([3.]), 2.0)
        >>> aggregate.drift(torch.tensor([2.0]))  # ((1 − 2)² + (5 − 2)²)/2
        5.0
    """

    def __init__(self, weighting: Weighting) -> None:
        self._weighting = weighting
        self._weighted: dict[str, Tensor] = {}
        self._uniform: dict[str, Tensor] = {}
        self._weight, self._count, self._steps = 0.0, 0, 0
        self._centre: Tensor | None = None
        self._spread = 0.0

    def add(self, upload: dict[str, Tensor], samples: int, model: Tensor, steps: int = 0) -> None:
        """Add one client: the tensors it sent, its number of samples, its local model w_i ([d]), its steps K."""
        self._count += 1
        self._steps += steps
        self._weight += samples
        for name, tensor in upload.items():
            _accumulate(self._uniform, name, tensor)
            if self._weighting == "samples":
                _accumulate(self._weighted, name, samples * tensor)
        # Welford's update: the spread about the running mean, without subtracting large numbers.
        if self._centre is None:
            self._centre = model.clone()
        else:
            before = model - self._centre
            self._centre += before / self._count
            self._spread += _product(before, model - self._centre)

    def mean(self) -> Mean:
        """The means in the weighting asked for; the unweighted ones are in ``uniform``."""
        uniform = {name: total / self._count for name, total in self._uniform.items()}
        if self._weighting == "uniform":
            return Mean(**uniform, uniform=State.of(uniform), steps=self._steps / self._count)
        weighted = {name: total / self._weight for name, total in self._weighted.items()}
        return Mean(**weighted, uniform=State.of(uniform), steps=self._steps / self._count)

    def centre(self) -> Tensor:
        """The plain mean of the local models, [d]."""
        assert self._centre is not None
        return self._centre.clone()

    def drift(self, w: Tensor) -> float:
        """(1/n) Σ ‖w_i − w‖² over the sampled clients (Sun et al., ICML 2023, Table 2, with w = w^{t+1})."""
        assert self._centre is not None
        shift = self._centre - w
        return self._spread / self._count + _product(shift, shift)


def _product(a: Tensor, b: Tensor) -> float:
    """a·b in float64; BLAS would start all threads for vectors of any length."""
    with threads_for(2 * a.numel()):
        return torch.dot(a.double(), b.double()).item()


def _accumulate(totals: dict[str, Tensor], name: str, tensor: Tensor) -> None:
    totals[name] = totals[name] + tensor if name in totals else tensor
