"""Recording of a training loop that is not ours, in a run directory that everything here reads."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from landscape.checkpoints.checkpoint import Checkpoint
from landscape.checkpoints.fitting import fitted, renamed, state_tensors
from landscape.compute.devices import DTYPES
from landscape.data.normalisation import normalised, recorded
from landscape.datasets import Dataset, load_dataset, recorded_name
from landscape.errors import FedscapeError
from landscape.landscape import Landscape
from landscape.models import build_model
from landscape.models.outputs import require_outputs
from landscape.partitions.partition import Partition
from landscape.space import ParameterSpace
from landscape.storage.files import json_ready, make_directory, write_json
from landscape.storage.schema import require
from landscape.terminal.notices import notice
from landscape.version import versions
from trainers.runs.directory import RunDirectory
from trainers.runs.stored import CONFIG

Weights = nn.Module | Mapping[str, Tensor]
"""A module, or its state dict."""
Callback = Callable[[nn.Module, int], Mapping[str, float]]
"""(model, step) -> numbers by name, for the step's record."""


@dataclass(frozen=True)
class _Recipe:
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
        recipe: _Recipe,
        dataset: Dataset,
        module: nn.Module,
        every: int,
        callback: Callback | None,
        evaluate: bool,
    ) -> None:
        self.path, self.step = directory.path, 0
        self._directory, self._recipe, self._dataset, self._module = directory, recipe, dataset, module
        self._every, self._callback, self._evaluate = every, callback, evaluate
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
                those of the model named at the start; a file cannot be written.
        """
        self._require_next(step)
        now = time.perf_counter()
        numbers = {"train_loss" if name == "loss" else name: _number(name, value) for name, value in values.items()}
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

    def _require_next(self, step: int) -> None:
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise FedscapeError(f"the step is {step!r}: give a whole number, 0 or greater")
        last = self.step if self._before is None and self.step else self._before
        if last is not None and step <= last:
            raise FedscapeError(f"step {step} comes after step {last}, which is recorded: give ascending steps")

    def _measured(self, model: Weights, step: int, record: Mapping[str, Any]) -> dict[str, float]:
        """Test loss and accuracy, unless the loop gave them, and what the callback measures."""
        module = self._as_module(model)
        found: dict[str, float] = {}
        if self._evaluate and not {"test_loss", "test_accuracy"} & record.keys():
            device = next(module.parameters()).device
            here = Landscape(module, self._dataset.test, device=device).evaluate()
            found = {"test_loss": here.loss, **({} if here.accuracy is None else {"test_accuracy": here.accuracy})}
        own = {} if self._callback is None else dict(self._callback(module, step))
        return {**found, **{name: _number(name, value) for name, value in own.items()}}

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


@contextmanager
def recording(
    out: str | Path,
    *,
    model: str,
    data: str,
    data_dir: str | Path | None = None,
    normalise: str | None = None,
    name: str = "own loop",
    settings: Mapping[str, Any] | None = None,
    partition: Partition | Sequence[Sequence[int]] | None = None,
    every: int = 0,
    callback: Callback | None = None,
    evaluate: bool = True,
    seed: int = 0,
    resume: bool = False,
    force: bool = False,
) -> Iterator[Recorder]:
    """Record a training loop of one's own: checkpoints and metrics as those of :func:`trainers.train`.

    ``hessian``, ``surface``, ``compare``, ``runs`` and :func:`figures.open_run` then read the run directory.

    Args:
        out: the run directory.
        model: the network's name, a registered one or ``package.module:callable``, by which its checkpoints are built
            again.
        data: the data set: a registered name, an ``.npz`` file or ``package.module:callable``.
        data_dir: the folder of the data set's own folder.
        normalise: what the inputs are normalised by (``--normalise``); the data set's own unless given.
        name: what tables and legends call the loop.
        settings: numbers and texts to record, such as ``{"lr": 0.1, "batch_size": 32}``.
        partition: the samples of each client, for a federated loop.
        every: steps between two kept models (``rounds/NNNNN.pt``); 0: the last one alone (``ckpt.pt``).
        callback: measures more of each kept model; it must leave the model as it is.
        evaluate: measure test loss and accuracy of kept models whose step does not come with them.
        seed: to record.
        resume: go on after the last kept model (:meth:`Recorder.restore`); later records are dropped.
        force: take a directory that holds other files.

    Raises:
        FedscapeError: model or data cannot be loaded or do not fit together; the directory holds something else, or
            another run; a setting is no plain value.
        LockedError: another process records there.

    Example:
        >>> import tempfile, torch
        >>> from landscape import build_model, load_dataset
        >>> from trainers import recording
        >>> digits = load_dataset("digits")
        >>> net = build_model("digits_mlp", seed=0, input_shape=digits.input_shape, classes=10)
        >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        >>> x, y = digits.train.batch(slice(0, 64), torch.float32)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with recording(folder, model="digits_mlp", data="digits", every=2) as record:
        ...         for step in range(1, 5):
        ...             loss = torch.nn.functional.cross_entropy(net(x), y)
        ...             optimizer.zero_grad()
        ...             loss.backward()
        ...             optimizer.step()
        ...             told = record(net, step, loss=loss, lr=0.1)
        ...     files = sorted(path.name for path in (record.path / "rounds").iterdir())
        >>> sorted(told), files
        (['lr', 'round', 'seconds', 'test_accuracy', 'test_loss', 'train_loss'], ['00002.pt', '00004.pt'])
    """
    if every < 0:
        raise FedscapeError(f"every is {every}: give the steps between two kept models, or 0 for the last one alone")
    dataset = normalised(load_dataset(data, data_dir), normalise)
    kwargs: dict[str, Any] = {"input_shape": list(dataset.input_shape), "classes": dataset.classes}
    module = build_model(model, seed=seed, **kwargs)
    require_outputs(module, dataset.task, dataset.classes, dataset.train)
    clients = _partition(partition)
    told = {"model": model, "data": recorded_name(data), "seed": seed, "normalise": normalise or "auto"}
    told |= {} if clients is None else {"partition": "own", "clients": len(clients)}
    told |= {} if data_dir is None else {"data_dir": str(data_dir)}
    config = json_ready({"algorithm": {"name": name}, "parts": {}, "settings": {**(settings or {}), **told}})
    require(config, CONFIG, "the settings")
    recipe = _Recipe(
        {"name": model, "kwargs": kwargs},
        {
            "name": recorded_name(data),
            "kwargs": {} if data_dir is None else {"data_dir": str(data_dir)},
            "partition": None
            if clients is None
            else {"spec": "own", "clients": len(clients), "digest": clients.digest()},
            "seed": seed,
            "task": dataset.task,
            "normalisation": recorded(dataset),
        },
        {"name": name, "training": config["settings"]},
        seed,
    )
    directory = RunDirectory(out)
    with directory.owned(resume=resume, force=force):
        recorder = Recorder(directory, recipe, dataset, module, every, callback, evaluate)
        recorder.step = _opened(directory, config)
        if clients is not None:
            directory.save_partition(clients)
        try:
            yield recorder
            recorder.close()
        finally:
            recorder._latest = None  # the model is the loop's own, and may go although the recorder stays


def _opened(directory: RunDirectory, config: dict[str, Any]) -> int:
    """Prepare the directory; the step to go on after.

    Raises:
        FedscapeError: it holds another run.
    """
    if (directory.path / "config.json").exists():
        earlier = directory.config()
        differing = [part for part in ("algorithm", "settings") if earlier.get(part) != config[part]]
        if differing:
            raise FedscapeError(
                f"{directory.path} holds another run, which differs in its {' and '.join(differing)}: give the same to "
                "resume it, or another folder"
            )
    make_directory(directory.path / "rounds")
    (directory.path / "result.json").unlink(missing_ok=True)
    write_json(directory.path / "config.json", {**config, "versions": versions()})
    file = directory.path / "ckpt.pt"
    step = Checkpoint.load(file).round if file.exists() else 0
    directory.cut_metrics(step)
    return step


def _partition(given: Partition | Sequence[Sequence[int]] | None) -> Partition | None:
    if given is None or isinstance(given, Partition):
        return given
    return Partition(tuple(np.asarray(indices, dtype=np.int64) for indices in given))


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


def _number(name: str, value: Any) -> float:
    """A number, or a tensor of one.

    Raises:
        FedscapeError: something else.
    """
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        kind = type(value).__name__
        raise FedscapeError(f"{name} is a {kind}: give a number, or a tensor with one") from None
