"""The objective of a federation, f = Σ p_i f_i, client by client: values, gradients, Hessians."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from analysis.hessian.spectrum.operators import Hessian, Multiplying, Operator, Product, in_float64, precision_of
from landscape import FedscapeError, Landscape
from landscape.evaluation import Evaluation

Parts = tuple[tuple[float, Landscape], ...]
"""A weighted sum of losses: Σ share · loss."""


@dataclass(frozen=True)
class Federation:
    """f_i(w), the mean loss over client i's data, and f = Σ p_i f_i over all clients that have data.

    What is asked of f and of measured clients at one point costs a pass over all data, not two: f is the measured
    clients' sum and that of the others, which are joined where they have the same weight for each sample.

    Attributes:
        whole: a landscape over data that hold everybody's; its loss is that of the clients, not their weights.
        indices: the places of each client's samples (or batches) in these data, by client; none is empty.
        weights: p_i of the same clients, above 0; they are divided by their sum.
        measured: the clients that are looked at one by one, in their order.

    Raises:
        FedscapeError: no client is measured, or one without data; a weight that is not above 0; a loss that is no mean
            over samples (:meth:`landscape.Landscape.require_samples`).

    Example:
        Two clients of a line with the slopes 1 and 3, the second with three times the weight:

        >>> import torch
        >>> from analysis.alignment import Federation
        >>> from landscape import Landscape
        >>> line = torch.nn.Linear(1, 1, bias=False)
        >>> steep = torch.tensor([[1.0], [3.0]])
        >>> whole = Landscape(line, (steep, steep), lambda out, _: out.mean(), device="cpu")
        >>> both = {0: torch.tensor([0]), 1: torch.tensor([1])}
        >>> federation = Federation(whole, both, {0: 1.0, 1: 3.0}, (0, 1))
        >>> each, f = federation.gradients(torch.tensor([2.0]))
        >>> each.tolist(), f.tolist()
        ([[1.0], [3.0]], [2.5])
    """

    whole: Landscape
    indices: Mapping[int, Tensor]
    weights: Mapping[int, float]
    measured: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.measured:
            raise FedscapeError("no client is measured: name at least one that has data")
        for client in self.measured:
            if client not in self.indices:
                raise FedscapeError(f"client {client} has no data: name clients that have some")
        for client in self.indices:
            if not 0 < self.weights.get(client, 0.0) < float("inf"):
                raise FedscapeError(
                    f"client {client} has data and the weight {self.weights.get(client)}: above 0 is due"
                )
        self.whole.require_samples()  # clients are joined

    @cached_property
    def p(self) -> dict[int, float]:
        """p_i of all clients with data: their sum is 1."""
        total = sum(self.weights[client] for client in self.indices)
        return {client: self.weights[client] / total for client in self.indices}

    @property
    def population(self) -> int:
        """How many clients have data."""
        return len(self.indices)

    @cached_property
    def shares(self) -> np.ndarray:
        """p_i of the measured clients among themselves, [n]: their sum is 1."""
        own = np.array([self.p[client] for client in self.measured])
        return own / own.sum()

    @cached_property
    def clients(self) -> tuple[Landscape, ...]:
        """The landscapes of the measured clients."""
        return tuple(self.whole.subset(self.indices[client]) for client in self.measured)

    @cached_property
    def together(self) -> Parts:
        """f as a sum over groups of clients with one weight for each sample: where p_i ∝ n_i, one landscape."""
        return self._joined(list(self.indices))

    @cached_property
    def others(self) -> Parts:
        """The part of f that the clients that are not measured have."""
        return self._joined([client for client in self.indices if client not in self.measured])

    def _joined(self, clients: Sequence[int]) -> Parts:
        groups: dict[float, list[int]] = {}
        for client in clients:
            each = self.p[client] / len(self.indices[client])
            known = next((weight for weight in groups if abs(each / weight - 1) < 1e-9), each)
            groups.setdefault(known, []).append(client)
        return tuple(
            (
                sum(self.p[client] for client in group),
                self.whole.subset(torch.cat([self.indices[client] for client in group])),
            )
            for group in groups.values()
        )

    def evaluate(self, w: Tensor) -> tuple[list[Evaluation], float, float | None]:
        """Loss and accuracy of the measured clients, and those of f (accuracies: Σ p_i a_i, ``None`` without classes).

        Where batches have sizes of their own, a client's joined loss is their mean by size.
        """
        each = [client.evaluate(w) for client in self.clients]
        rest = [(share, part.evaluate(w)) for share, part in self.others]
        every = [(self.p[client], found) for client, found in zip(self.measured, each, strict=True)] + rest
        loss = sum(share * found.loss for share, found in every)
        accuracies = [(share, found.accuracy) for share, found in every]
        known = [share * a for share, a in accuracies if a is not None]
        return each, float(loss), float(sum(known)) if len(known) == len(accuracies) else None

    def values(self, w: Tensor) -> tuple[np.ndarray, float]:
        """f_i(w) of the measured clients, [n], and f(w)."""
        each, loss, _ = self.evaluate(w)
        return np.array([found.loss for found in each]), loss

    def gradients(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """∇f_i(w) of the measured clients, [n, d], and ∇f(w), [d]."""
        each = torch.stack([client.gradient(w) for client in self.clients])
        own = torch.tensor([self.p[client] for client in self.measured], dtype=torch.float64).to(each)
        total = own @ each
        for share, part in self.others:
            total.add_(part.gradient(w), alpha=share)
        return each, total

    def gradient(self, w: Tensor) -> Tensor:
        """∇f(w), [d]."""
        total = torch.zeros_like(self.whole.weights)
        for share, part in self.together:
            total.add_(part.gradient(w), alpha=share)
        return total

    def hessian(self, w: Tensor, *, graph_memory: int | None = None) -> WeightedSum:
        """∇²f(w); ``graph_memory`` as in :meth:`landscape.Landscape.hessian`."""
        parts = ((share, Hessian(part, w, graph_memory=graph_memory)) for share, part in self.together)
        return WeightedSum(tuple(parts))


class WeightedSum(Multiplying):
    """Σ s_g A_g of symmetric operators of one size.

    Example:
        >>> import torch
        >>> from analysis import Dense
        >>> from analysis.alignment.federation import WeightedSum
        >>> a, b = Dense(torch.eye(2)), Dense(torch.ones(2, 2))
        >>> WeightedSum(((0.5, a), (0.25, b))) @ torch.tensor([1.0, 0.0])
        tensor([0.7500, 0.2500])
    """

    product: Product | None = "autograd"

    def __init__(self, parts: tuple[tuple[float, Operator], ...]) -> None:
        self.parts = parts
        self.products = 0

    @property
    def precision(self) -> str:
        """That of its operators."""
        return precision_of(self.parts[0][1])

    @property
    def shape(self) -> tuple[int, int]:
        """(d, d)."""
        return self.parts[0][1].shape

    @property
    def dtype(self) -> torch.dtype:
        """The type of vectors and products."""
        return self.parts[0][1].dtype

    @property
    def device(self) -> torch.device:
        """The device of vectors and products."""
        return self.parts[0][1].device

    def in_float64(self) -> Operator | None:
        """The same sum in float64, where its operators are of landscapes in float32 or TF32."""
        precise = [(share, in_float64(part)) for share, part in self.parts]
        found = tuple((share, part) for share, part in precise if part is not None)
        return WeightedSum(found) if len(found) == len(self.parts) else None

    def matmat(self, vectors: Tensor) -> Tensor:
        """A V for V of shape [d, k] -> [d, k]."""
        self.products += vectors.shape[1]
        (share, first), *others = self.parts
        total = share * first.matmat(vectors)
        for share, part in others:
            total = total.add(part.matmat(vectors), alpha=share)
        return total
