"""What a training loop that is not ours computes, written as the files of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from landscape.checkpoints.checkpoint import Checkpoint
from landscape.checkpoints.fitting import fitted, renamed, state_tensors
from landscape.compute.devices import DTYPES
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.landscape import Landscape
from landscape.space import ParameterSpace
from landscape.storage.files import json_ready
from landscape.terminal.notices import notice
from trainers.runs.directory import RunDirectory

Weights = nn.Module | Mapping[str, Tensor]
"""A module, or its state dict."""
Callback = Callable[[nn.Module, int], Mapping[str, float]]
"""(model, step) -> numbers by name, for the step's record."""


@dataclass(frozen=True)
class Recipe:
    """What every checkpoint of a recorded loop says beside the weights."""

    model: dict[str, Any]
    data: dict[str, Any]
    algorithm: dict[str, Any]
    seed: int


class Recorder:
    """Writes what a loop computes; made by :func:`recording`, called once a step.

    Attributes:
        path: the run directory.
        step: the last step whose model is kept, where the loop goes on; 0 at the start.
    """

    def __init__(
        self,
        directory: RunDirectory,
        recipe: Recipe,
        test: Samples | None,
        module: nn.Module,
        every: int,
        callback: Callback | None,
    ) -> None:
        self.path, self.step = directory.path, 0
        self._directory, self._recipe, self._test, self._module = directory, recipe, test, module
        self._every, self._callback, self._released = every, callback, False
        self._latest: tuple[int, dict[str, Any], Weights, list[int]] | None = None
        self._before: int | None = None
        self._diverged: tuple[int, str] | None = None
        self._clock = time.perf_counter()

    def __call__(
        self,
        model: Weights,
        step: int,
        *,
        clients: Mapping[int, Weights] | None = None,
        keep: bool | None = None,
        **values: float | Tensor,
    ) -> dict[str, Any]:
        """Record a step: a line of ``metrics.jsonl``, and where the step is kept a checkpoint.

        Args:
            model: after the step; a module (also in DataParallel, DistributedDataParallel or ``torch.compile``), or its
                state dict.
            step: its number, greater than the one before; 0 for the initial model.  It is what the files call a round.
            clients: local models by client, for a federated loop.
            keep: whether the model is kept; every ``every`` steps unless given.
            values: numbers by name.  ``loss`` is written as ``train_loss``; ``test_loss``, ``test_accuracy`` (a share),
                ``lr`` and the like are drawn as those of our own runs.

        Returns:
            The record.

        Raises:
            FedscapeError: a step that is not greater than the last one, a value that is no number, weights that are not
                those of the model named at the start; a file cannot be written; the ``with`` block has ended.
        """
        if self._released:
            raise FedscapeError(
                f"the recording of {self.path} has ended: call record inside of its with block, or go on with "
                "resume=True"
            )
        self._require_next(step)
        now = time.perf_counter()
        numbers = {"train_loss" if name == "loss" else name: number(name, value) for name, value in values.items()}
        record: dict[str, Any] = {"round": step, **numbers}
        loss = numbers.get("train_loss")
        if loss is not None and not math.isfinite(loss) and self._diverged is None:
            self._diverged = step, f"the training loss is {loss}"
        kept = keep if keep is not None else self._every > 0 and step % self._every == 0
        if kept:
            record |= self._measured(model, step, record)
        record["seconds"] = now - self._clock
        self._directory.append(record)
        self._before, self._latest = step, (step, record, model, _changes(model))
        if kept:
            self._save(model, step, record, clients or {}, kept=True)
        self._clock = time.perf_counter()
        return record

    def restore(self, model: nn.Module) -> int:
        """Give a module the last kept weights (``resume=True``), and return their step; 0 where none was kept.

        What else a loop has (its optimiser, its random numbers, its place in the data) it must restore itself.

        Raises:
            FedscapeError: the weights do not fit the module.
        """
        if self.step:
            found = Checkpoint.load(self.path / "ckpt.pt")
            self._fitting(model)
            _write(model, {**found.parameters, **found.buffers})
        return self.step

    def close(self) -> None:
        """Write the last model and how the loop ended."""
        if self._latest is not None:
            step, record, model, changes = self._latest
            if step != self.step and changes == _changes(model):
                self._save(model, step, record, {}, kept=False)
            elif step != self.step:
                notice(
                    f"{self.path}: the model was changed after step {step}, the last one recorded, so ckpt.pt is of "
                    f"step {self.step}: record the last step, or give keep=True"
                )
        ended: dict[str, Any] = {"status": "finished", "round": self._before or 0, "reason": None}
        if self._diverged is not None:
            ended = {"status": "diverged", "round": self._diverged[0], "reason": self._diverged[1]}
        self._directory.save_result(ended)

    def release(self) -> None:
        """Take no more records, and let go what may be large, although the recorder stays: the loop's model, the data.

        Another process may write into the directory from now on.
        """
        self._latest, self._test, self._callback, self._released = None, None, None, True

    def _require_next(self, step: int) -> None:
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise FedscapeError(f"the step is {step!r}: give a whole number, 0 or greater")
        last = self.step if self._before is None and self.step else self._before
        if last is not None and step <= last:
            raise FedscapeError(f"step {step} comes after step {last}, which is recorded: give ascending steps")

    def _measured(self, model: Weights, step: int, record: Mapping[str, Any]) -> dict[str, float]:
        """Test loss, accuracy and mIoU, unless the loop gave its own, and what the callback measures."""
        module = self._as_module(model)
        found: dict[str, float] = {}
        if self._test is not None and not {"test_loss", "test_accuracy"} & record.keys():
            device = next(module.parameters()).device
            here = Landscape(module, self._test, device=device, task=self._recipe.data["task"]).evaluate()
            scores = {"test_loss": here.loss, "test_accuracy": here.accuracy, "test_miou": here.mean_iou}
            found = {name: value for name, value in scores.items() if value is not None}
        own = {} if self._callback is None else dict(self._callback(module, step))
        return {**found, **{name: number(name, value) for name, value in own.items()}}

    def _save(
        self, model: Weights, step: int, record: Mapping[str, Any], clients: Mapping[int, Weights], *, kept: bool
    ) -> None:
        parameters, buffers = self._fitting(model)
        if not all(bool(tensor.isfinite().all()) for tensor in parameters.values()):
            self._diverged = self._diverged or (step, "the model is no longer finite")
            return
        checkpoint = Checkpoint(
            self._recipe.model,
            self._recipe.data,
            self._recipe.algorithm,
            step,
            self._recipe.seed,
            parameters,
            buffers,
            metrics=json_ready({name: value for name, value in record.items() if name != "round"}),
            clients={client: self._flat(weights) for client, weights in clients.items()},
        )
        if kept:
            self._directory.save_round(checkpoint)
        self._directory.save_model(checkpoint)
        self.step = step

    def _flat(self, weights: Weights) -> Tensor:
        return ParameterSpace.of(self._module).flatten(self._fitting(weights)[0])

    def _as_module(self, model: Weights) -> nn.Module:
        if isinstance(model, nn.Module) and all(p.dtype in DTYPES.values() for p in model.parameters()):
            return _unwrapped(model)  # else the same numbers in float32, which can be measured
        parameters, buffers = self._fitting(model)
        _write(self._module, {**parameters, **buffers})
        return self._module

    def _fitting(self, model: Weights) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Parameters and buffers on the CPU, copied.

        Raises:
            FedscapeError: other tensors than those of the model that was named.
        """
        given = state_tensors(_tensors(model) if isinstance(model, nn.Module) else model)
        if given is None:
            raise FedscapeError(
                f"the weights are a {type(model).__name__}: give a module, or its state dict of tensors"
            )
        state = {name: tensor.detach().cpu() for name, tensor in given.items()}
        return fitted(state, self._module, f"these weights are not those of the model '{self._recipe.model['name']}'")


def _unwrapped(model: nn.Module) -> nn.Module:
    """The module within DataParallel, DistributedDataParallel and ``torch.compile``."""
    while isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)) or hasattr(model, "_orig_mod"):
        inner = getattr(model, "_orig_mod", None) or model.module
        assert isinstance(inner, nn.Module)
        model = inner
    return model


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _write(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Write values into a module's parameters and buffers, by name."""
    own = renamed(_tensors(module), values)
    with torch.no_grad():
        for name, tensor in values.items():
            own[name].copy_(tensor)


def _changes(model: Weights) -> list[int]:
    """How often each tensor was written to."""
    tensors = model.values() if isinstance(model, Mapping) else [*model.parameters(), *model.buffers()]
    return [tensor._version for tensor in tensors if isinstance(tensor, Tensor)]


def number(name: str, value: Any) -> float:
    """A number, or a tensor of one.

    Raises:
        FedscapeError: something else.
    """
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        kind = type(value).__name__
        raise FedscapeError(f"{name} is a {kind}: give a number, or a tensor with one") from None
