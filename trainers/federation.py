"""The federation: one communication round after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from landscape.randomness import numpy_generator
from trainers.algorithm import Algorithm, Round, State
from trainers.execution import Executor
from trainers.settings import Settings
from trainers.states import Aggregate, ClientStore


@dataclass(frozen=True)
class RoundRecord:
    """What a round came to.

    Attributes:
        round: its number, 1 for the first.
        train_loss: mean loss of the local steps, over all samples seen.
        clients: ids of the sampled clients, ascending.
        drift: (1/n) Σ ‖w_i − w‖², w the new server model.
        bytes_down, bytes_up: counted from the tensors sent.
    """

    round: int
    train_loss: float
    clients: list[int]
    drift: float
    bytes_down: int
    bytes_up: int


class Federation:
    """The server, the clients' states and the number of rounds done.

    Args:
        algorithm: what clients and server do.
        executor: how the local work is computed.
        settings: how many clients take part, the rates, the seed; whether local models are kept.
        w: the initial model, [d].

    Attributes:
        local_models: w_i of the last round's sampled clients by id, [d] in host memory; empty unless
            ``settings.save_clients``.
    """

    def __init__(self, algorithm: Algorithm, executor: Executor, settings: Settings, w: Tensor) -> None:
        self.algorithm, self.executor, self.settings = algorithm, executor, settings
        self.server = State.of({"w": w.clone(), **algorithm.server_state(w)})
        self.store = ClientStore(lambda: algorithm.client_state(self._initial), w.device)
        self.round = 0
        self.local_models: dict[int, Tensor] = {}
        self._initial = w

    def step(self) -> RoundRecord:
        """One round: sample, broadcast, local work, aggregate, server step."""
        settings, number = self.settings, self.round + 1
        round = Round(number, settings.lr * settings.lr_decay ** (number - 1), settings.per_round / settings.clients)
        sampled = self._sample(number)
        sent = State.of(self.algorithm.broadcast(self.server))
        weighting = self.algorithm.weighting if settings.weighting == "auto" else settings.weighting
        aggregate = Aggregate(weighting)
        local_models: dict[int, Tensor] = {}
        loss, seen, bytes_up = torch.zeros((), dtype=torch.float64, device=sent.w.device), 0, 0
        for result in self.executor.work(sampled, sent, self.store, round):
            aggregate.add(result.upload, result.samples, result.model)
            self.store.put(result.client, result.state)
            loss, seen = loss + result.seen * result.loss, seen + result.seen
            bytes_up += State.of(result.upload).nbytes()
            if settings.save_clients:
                local_models[result.client] = result.model.detach().to("cpu", copy=True)
        self.algorithm.server_step(self.server, aggregate.mean(), round)
        self.round, self.local_models = number, local_models
        return RoundRecord(
            number,
            (loss / seen).item(),
            sampled,
            aggregate.drift(self.server.w),
            len(sampled) * sent.nbytes(),
            bytes_up,
        )

    def finite(self) -> bool:
        """Whether every coordinate of the server's model is a finite number."""
        return bool(self.server.w.isfinite().all())

    def export(self) -> dict[str, Any]:
        """What resuming needs: tensors and numbers only."""
        server = {name: tensor.cpu() for name, tensor in self.server.tensors().items()}
        return {"round": self.round, "server": server, "clients": self.store.export()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`export` gave."""
        device = self._initial.device
        self.round = int(state["round"])
        self.server = State.of({name: tensor.to(device) for name, tensor in state["server"].items()})
        self.store.restore(state["clients"])

    def _sample(self, number: int) -> list[int]:
        random = numpy_generator(self.settings.seed, "clients", number)
        chosen = random.choice(self.settings.clients, self.settings.per_round, replace=False)
        return sorted(int(client) for client in chosen)
