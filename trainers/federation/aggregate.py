"""Means of the tensors that clients send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from landscape.compute.cost import threads_for
from trainers.algorithm import Mean, State

_CHANGES = ("delta", "shift")  # of models: d_i, and a_i − w^t where clients begin at points of their own


class Aggregate:
    """Sums over the sampled clients, taken as they come: memory does not grow with their number.

    Args:
        inclusion: π, the probability that a client is sampled, for the unbiased sum of the models' changes
            Σ_S p_i d_i/π; ``None`` for the ratio Σ_S p_i d_i / Σ_S p_i.

    Example:
        >>> import torch
        >>> from trainers.federation import Aggregate
        >>> aggregate = Aggregate()
        >>> for change, weight in ((1.0, 0.375), (5.0, 0.125)):  # p_i of the objective; both clients began at 0
        ...     aggregate.add({"delta": torch.tensor([change])}, weight, model=torch.tensor([change]), steps=2)
        >>> mean = aggregate.mean()
        >>> mean.delta, mean.steps  # (3 · 1 + 1 · 5)/4
        (tensor([2.]), 2.0)
        >>> mean.all_clients.delta  # 0.375 · 1 + 0.125 · 5: those not sampled count with 0
        tensor([1.])
        >>> aggregate.drift(torch.tensor([2.0]))  # ((1 − 2)² + (5 − 2)²)/2
        5.0
    """

    def __init__(self, inclusion: float | None = None) -> None:
        self._inclusion = inclusion
        self._sums: dict[str, Tensor] = {}
        self._models: Tensor | None = None
        self._weight, self._count, self._steps = 0.0, 0, 0.0
        self._centre: Tensor | None = None
        self._spread = 0.0

    def add(self, upload: dict[str, Tensor], weight: float, model: Tensor, steps: int = 0) -> None:
        """Add one client: the tensors it sent, its p_i, its local model w_i ([d]), its steps K_i."""
        self._count += 1
        self._steps += weight * steps
        self._weight += weight
        for name, tensor in upload.items():
            self._sums[name] = self._sums[name] + weight * tensor if name in self._sums else weight * tensor
        # Welford's updates: means, and the spread about one, without subtracting large numbers.
        if self._centre is None or self._models is None:
            self._centre, self._models = model.clone(), model.clone()
        else:
            before = model - self._centre
            self._centre += before / self._count
            self._spread += _product(before, model - self._centre)
            if self._weight:
                self._models += weight / self._weight * (model - self._models)

    def add_rows(
        self, uploads: Mapping[str, Tensor], weights: Sequence[float], models: Tensor, steps: Sequence[int]
    ) -> None:
        """Add several clients: what they sent in rows [S, ...], their p_i, models [S, d] and steps.

        As :meth:`add` of one after the other, to rounding; of a single one exactly.

        Example:
            >>> import torch
            >>> from trainers.federation import Aggregate
            >>> aggregate, models = Aggregate(), torch.tensor([[1.0], [5.0]])
            >>> aggregate.add_rows({"delta": models}, [0.375, 0.125], models, [2, 2])
            >>> aggregate.mean().delta, round(aggregate.drift(torch.tensor([2.0])), 12)
            (tensor([2.]), 5.0)
        """
        if len(weights) == 1:
            self.add({name: sent[0] for name, sent in uploads.items()}, weights[0], models[0], steps[0])
            return
        count, weight, shares = len(weights), sum(weights), models.new_tensor(weights, dtype=torch.float64)
        self._steps += sum(share * own for share, own in zip(weights, steps, strict=True))
        for name, sent in uploads.items():
            sent = sent if sent.is_floating_point() else sent.to(models.dtype)
            total = (shares.to(sent.dtype) @ sent.reshape(count, -1)).view(sent.shape[1:])
            self._sums[name] = self._sums[name] + total if name in self._sums else total
        centre, model = models.mean(dim=0), shares.to(models.dtype) @ models
        apart = models - centre
        self._spread += _square(apart)
        if self._centre is None or self._models is None:
            self._centre, self._models = centre, model / weight if weight else centre.clone()
        else:  # Chan's merging of means and spreads (Chan, Golub & LeVeque, 1979)
            shift, before = centre - self._centre, self._count
            self._spread += before * count / (before + count) * _square(shift)
            self._centre += count / (before + count) * shift
            if weight:
                self._models += (model - weight * self._models) / (self._weight + weight)
        self._count += count
        self._weight += weight

    def mean(self) -> Mean:
        """The means over the sampled clients, and the changes of means over all clients."""
        sums, whole = self._sums, self._weight if self._inclusion is None else self._inclusion
        means = {name: total / (whole if name in _CHANGES else self._weight) for name, total in sums.items()}
        return Mean(**means, all_clients=State.of(sums), steps=self._steps / whole, clients=self._count)

    def model(self) -> Tensor:
        """Σ_S p_i w_i / Σ_S p_i, the mean of the local models, [d]."""
        assert self._models is not None
        return self._models.clone()

    def drift(self, w: Tensor) -> float:
        """(1/n) Σ ‖w_i − w‖² over the sampled clients (Sun et al., ICML 2023, Table 2, with w = w^{t+1})."""
        assert self._centre is not None
        shift = self._centre - w
        return self._spread / self._count + _product(shift, shift)


def _square(a: Tensor) -> float:
    """‖a‖² in float64."""
    with threads_for(2 * a.numel()):
        return float(torch.linalg.vector_norm(a, dtype=torch.float64)) ** 2


def _product(a: Tensor, b: Tensor) -> float:
    """a·b in float64; BLAS would start all threads for vectors of any length."""
    with threads_for(2 * a.numel()):
        return torch.dot(a.double(), b.double()).item()
