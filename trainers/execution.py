"""How local work is computed: executors know machines, algorithms do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from landscape.devices import reproducible_arithmetic
from landscape.errors import FedscapeError
from landscape.flat import FlatModule
from landscape.partition import Partition
from landscape.randomness import global_seed, torch_generator
from landscape.samples import Samples
from trainers.algorithm import Algorithm, Gradient, Round, State
from trainers.batches import Augmentation, batch_indices, flip_crop
from trainers.states import ClientStore


@dataclass(frozen=True)
class LocalWork:
    """What every client does in a round: ``batch_size=None`` is the full batch."""

    epochs: int
    batch_size: int | None
    weight_decay: float
    augment: Augmentation
    seed: int


@dataclass(frozen=True)
class ClientResult:
    """What one client's local work came to.

    Attributes:
        client: its id.
        samples: how many samples it holds.
        model: its local model w_i, [d].
        upload: the tensors it sends.
        state: what it keeps.
        loss: mean loss of its local steps at the unperturbed points, over the samples seen.
        seen: samples seen, with repetitions.
    """

    client: int
    samples: int
    model: Tensor
    upload: dict[str, Tensor]
    state: State
    loss: Tensor
    seen: int


class Executor(Protocol):
    """Carries out the local work of the sampled clients."""

    def work(self, clients: Sequence[int], received: State, store: ClientStore, round: Round) -> Iterator[ClientResult]:
        """The results, in the order of ``clients``."""
        ...


def local_step(
    w: Tensor,
    gradient: Gradient,
    algorithm: Algorithm,
    client: State,
    server: State,
    round: Round,
    weight_decay: float,
) -> Tensor:
    """One local step, [..., d] -> [..., d].

    The order is fixed: the mini-batch gradient (through the ascent part, if any), the algorithm's own
    correction, weight decay (so that no ascent sees it), the step.
    """
    direction = algorithm.direction(w, gradient, client, server, round)
    if weight_decay:
        direction = direction + weight_decay * w
    return w - round.lr * direction


class SequentialExecutor:
    """One client after another on one device, each with a plain module reading from one flat buffer.

    Raises:
        FedscapeError: the model keeps running batch statistics, which this executor cannot federate.
    """

    def __init__(
        self, model: FlatModule, data: Samples, partition: Partition, algorithm: Algorithm, local: LocalWork
    ) -> None:
        for name, module in model.module.named_modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
                raise FedscapeError(
                    f"the model's layer '{name}' is a BatchNorm with running statistics, which clients cannot "
                    "share yet: take GroupNorm (as resnet18_gn does)"
                )
        if local.augment == "flip-crop" and data.inputs.dim() != 4:
            raise FedscapeError("augmentation 'flip-crop' needs images: give --augment none")
        self._model, self._data, self._algorithm, self._local = model, data, algorithm, local
        self._indices = [torch.from_numpy(indices).to(data.device) for indices in partition.clients]

    def work(self, clients: Sequence[int], received: State, store: ClientStore, round: Round) -> Iterator[ClientResult]:
        """The results, in the order of ``clients``."""
        self._model.module.train()
        for client in clients:
            with reproducible_arithmetic(), global_seed(self._local.seed, "dropout", round.number, client):
                result = self._client(client, received, store.fetch(client), round)
            yield result

    def _client(self, client: int, received: State, state: State, round: Round) -> ClientResult:
        mine, seed = self._indices[client], self._local.seed
        w, steps, seen = received.w, 0, 0
        total = torch.zeros((), dtype=torch.float64, device=w.device)
        order = torch_generator(seed, "batches", round.number, client)
        augmentation = torch_generator(seed, "augmentation", round.number, client)
        for positions in batch_indices(len(mine), self._local.batch_size, self._local.epochs, order):
            batch = _Batch(self._model, self._data, mine[positions.to(mine.device)], self._local, augmentation)
            gradient = self._ascending(batch)
            w = local_step(w, gradient, self._algorithm, state, received, round, self._local.weight_decay)
            assert batch.loss is not None, "an algorithm's direction must ask for a gradient"
            total += len(positions) * batch.loss
            seen, steps = seen + len(positions), steps + 1
        upload = self._algorithm.upload(w, state, received, round, steps)
        return ClientResult(client, len(mine), w, upload, state, total / seen, seen)

    def _ascending(self, batch: _Batch) -> Gradient:
        ascent = self._algorithm.ascent
        if ascent is None:
            return batch.gradient
        return lambda w: ascent.gradient(w, batch.gradient, self._model.space)


class _Batch:
    """The loss and gradient of one mini-batch; ``loss`` is that of the first point asked for."""

    def __init__(
        self, model: FlatModule, data: Samples, indices: Tensor, local: LocalWork, generator: torch.Generator
    ) -> None:
        self._model = model
        inputs = data.inputs[indices]
        if local.augment == "flip-crop":
            inputs = flip_crop(inputs, generator)
        self._inputs, self._targets = data.prepare(inputs, model.dtype), data.targets[indices]
        self.loss: Tensor | None = None

    def gradient(self, w: Tensor) -> Tensor:
        """The mini-batch gradient at ``w``, [d]."""
        self._model.load(w)
        with torch.enable_grad():
            loss = nn.functional.cross_entropy(self._model.module(self._inputs), self._targets)
        if self.loss is None:
            self.loss = loss.detach()
        return self._model.gradient(loss)
