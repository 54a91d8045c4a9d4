"""What clients keep between rounds, and the mean of what they send."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trainers.algorithm import Mean, State, Weighting


class ClientStore:
    """The clients' states in host memory; a client never sampled takes no memory.

    Args:
        initial: makes the tensors of a client that was never sampled.
        device: where states are handed out.
    """

    def __init__(self, initial: Callable[[], dict[str, Tensor]], device: torch.device) -> None:
        self._initial, self._device = initial, device
        self._kept: dict[int, dict[str, Tensor]] = {}

    def fetch(self, client: int) -> State:
        """The state of one client, on the device."""
        if client in self._kept:
            return State.of({name: tensor.to(self._device) for name, tensor in self._kept[client].items()})
        return State.of(self._initial())

    def put(self, client: int, state: State) -> None:
        """Keep the state of one client; only the names it began with, so temporaries are dropped."""
        names = self._kept[client] if client in self._kept else self._initial()
        if names:
            self._kept[client] = {name: getattr(state, name).to("cpu") for name in names}

    def export(self) -> dict[int, dict[str, Tensor]]:
        """All states that differ from the initial one, to be saved."""
        return self._kept

    def restore(self, kept: dict[int, dict[str, Tensor]]) -> None:
        """Take over what :meth:`export` gave."""
        self._kept = dict(kept)


class Aggregate:
    """Means over the sampled clients, summed as they come in: memory does not grow with their number."""

    def __init__(self, weighting: Weighting) -> None:
        self._weighting = weighting
        self._weighted: dict[str, Tensor] = {}
        self._uniform: dict[str, Tensor] = {}
        self._weight, self._count = 0.0, 0
        self._centre: Tensor | None = None
        self._spread = 0.0

    def add(self, upload: dict[str, Tensor], samples: int, model: Tensor) -> None:
        """Take in one client: what it sent, how many samples it holds, and its local model w_i ([d])."""
        self._count += 1
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
            self._spread += torch.dot(before.double(), (model - self._centre).double()).item()

    def mean(self) -> Mean:
        """The means; the plain ones are at ``uniform``."""
        uniform = {name: total / self._count for name, total in self._uniform.items()}
        if self._weighting == "uniform":
            return Mean(**uniform, uniform=State.of(uniform))
        weighted = {name: total / self._weight for name, total in self._weighted.items()}
        return Mean(**weighted, uniform=State.of(uniform))

    def drift(self, w: Tensor) -> float:
        """(1/n) Σ ‖w_i − w‖² over the sampled clients (Sun et al., ICML 2023, Table 2, with w = w^{t+1})."""
        assert self._centre is not None
        shift = (self._centre - w).double()
        return self._spread / self._count + torch.dot(shift, shift).item()


def _accumulate(totals: dict[str, Tensor], name: str, tensor: Tensor) -> None:
    totals[name] = totals[name] + tensor if name in totals else tensor
