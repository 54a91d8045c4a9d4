"""The checkpoint file: a model that says what it is, what it was trained on and how."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from landscape.datasets import Dataset, load_dataset
from landscape.errors import FedscapeError
from landscape.models import build_model
from landscape.partitions.partition import Partition, partition_dataset
from landscape.storage.files import load_torch, save_torch
from landscape.tasks import Task
from landscape.version import versions

FORMAT = "fedscape/1"
UNKNOWN = "unknown"
"""The algorithm's name where only the weights are known (:mod:`landscape.checkpoints.foreign`)."""

_TYPES: dict[str, type | tuple[type, ...]] = {
    "model": dict, "data": dict, "algorithm": dict, "round": int, "seed": int,
    "parameters": dict, "buffers": dict, "metrics": dict, "versions": dict, "clients": dict,
}  # fmt: skip


def run_files(checkpoint: Path | None, name: str) -> list[Path]:
    """What is called ``name`` in the run directory that a checkpoint lies in (as ckpt.pt or rounds/NNNNN.pt) or is.

    The nearest first; nothing for a checkpoint without a file.
    """
    if checkpoint is None:
        return []
    folders = [checkpoint] if checkpoint.is_dir() else [checkpoint.parent, checkpoint.parent.parent]
    return [folder / name for folder in folders if (folder / name).exists()]


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a checkpoint (format ``fedscape/1``): primitives and tensors only.

    Attributes:
        model: ``name`` and the builder's ``kwargs``.
        data: ``name``, ``kwargs`` (``data_dir``), ``partition`` (``spec``, ``clients``, ``digest``), ``seed``, and the
            ``task``, classification or segmentation.
        algorithm: ``name`` and every hyper-parameter, the run's settings among them.
        round: communication rounds done (0: the initial model).
        seed: the run's seed.
        parameters, buffers: tensors by name, on the CPU.
        metrics: the last measured values.
        versions: of Fedscape, torch, NumPy and Python.
        clients: local models, flat vectors by client id (empty unless asked for).
        path: the file it came from; not stored.
    """

    model: dict[str, Any]
    data: dict[str, Any]
    algorithm: dict[str, Any]
    round: int
    seed: int
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    metrics: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=versions)
    clients: dict[int, Tensor] = field(default_factory=dict)
    path: Path | None = None

    def save(self, path: str | Path) -> None:
        """Write the file atomically.

        Raises:
            FedscapeError: it cannot be written; an earlier file of that name is whole.
        """
        contents = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "path"}
        if not self.clients:
            del contents["clients"]
        save_torch(path, {"format": FORMAT, **contents})

    @classmethod
    def load(cls, path: str | Path) -> Checkpoint:
        """Read and check a checkpoint; no code in the file is ever run.

        Raises:
            FedscapeError: no such file, not a checkpoint, cut short, unsafe, or of another format.
        """
        return cls.of_contents(load_torch(path), path)

    @classmethod
    def of_contents(cls, contents: Any, path: str | Path) -> Checkpoint:
        """The checkpoint that a file's contents are.

        Raises:
            FedscapeError: they are of another format or not whole.
        """
        if not isinstance(contents, dict) or "format" not in contents:
            raise FedscapeError(f"{path} is not a Fedscape checkpoint: it does not say format '{FORMAT}'")
        if contents["format"] != FORMAT:
            raise FedscapeError(f"{path} has another checkpoint format: this version reads '{FORMAT}'")
        contents = {"clients": {}, **contents}
        for name, kind in _TYPES.items():
            if not isinstance(contents.get(name), kind):
                raise FedscapeError(f"{path} is not a whole checkpoint: '{name}' is missing or of the wrong type")
        for group in ("model", "data"):
            entry = contents[group]
            if not isinstance(entry.get("name"), str) or not isinstance(entry.get("kwargs", {}), dict):
                raise FedscapeError(f"{path} is not a whole checkpoint: '{group}' lacks its name or kwargs")
        for group, key in (("parameters", str), ("buffers", str), ("clients", int)):
            if not all(isinstance(k, key) and isinstance(v, Tensor) for k, v in contents[group].items()):
                raise FedscapeError(f"{path} is not a whole checkpoint: '{group}' holds something that is no tensor")
        return cls(**{name: contents[name] for name in _TYPES}, path=Path(path))

    @classmethod
    def verify(cls, path: str | Path) -> Checkpoint:
        """Load a checkpoint, build its model and check that every number is finite.

        Raises:
            FedscapeError: as :meth:`load` and :meth:`build_model`, or a parameter or buffer is not finite.
        """
        checkpoint = cls.load(path)
        checkpoint.build_model()
        for name, tensor in {**checkpoint.parameters, **checkpoint.buffers}.items():
            if not tensor.isfinite().all():
                raise FedscapeError(f"{path}: '{name}' holds values that are not finite")
        return checkpoint

    def build_model(self, name: str | None = None) -> nn.Module:
        """The network with this checkpoint's parameters and buffers, on the CPU.

        Args:
            name: the model as the user names it; needed where the file says ``package.module:callable``.

        Raises:
            FedscapeError: the model is unknown, or its parameters are not these.
        """
        own = str(self.model.get("name"))
        try:
            module = build_model(name or own, seed=0, imports=name is not None, **self.model.get("kwargs", {}))
        except TypeError as error:
            raise FedscapeError(f"{self._where}: the model '{own}' is not described fully: {error}") from error
        dtypes = {tensor.dtype for tensor in self.parameters.values()}
        if len(dtypes) == 1 and (dtype := dtypes.pop()).is_floating_point:
            module.to(dtype)
        state = {**self.parameters, **self.buffers}
        # As they are saved; state_dict() names tied parameters twice and leaves some buffers out.
        wanted = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        differing = [
            key
            for key in sorted(wanted.keys() | state.keys())
            if key not in state or key not in wanted or state[key].shape != wanted[key].shape
        ]
        if differing:
            raise FedscapeError(
                f"{self._where}: the parameters do not fit the model '{name or own}': "
                f"{', '.join(differing[:5])}{' …' if len(differing) > 5 else ''} missing, unknown or of another shape"
            )
        with torch.no_grad():
            for key, tensor in state.items():
                wanted[key].copy_(tensor)
        return module

    def load_dataset(self, *, data_dir: str | Path | None = None, name: str | None = None) -> Dataset:
        """The data set it was trained on.

        Args:
            data_dir: where the data lie, if not where they lay in training.
            name: the data set as the user names it; needed where the file says ``package.module:callable``.

        Raises:
            FedscapeError: as :func:`landscape.datasets.load_dataset`.
        """
        stored = self.data.get("kwargs", {}).get("data_dir")
        folder = data_dir if data_dir is not None or stored is None else str(stored)
        return load_dataset(name or str(self.data.get("name")), folder, imports=name is not None)

    def task_on(self, dataset: Dataset) -> Task:
        """What the model tells of the data set: classes of samples, or of pixels.

        Raises:
            FedscapeError: it was trained for another task.
        """
        trained = self.data.get("task", dataset.task)  # not said by weights from elsewhere
        if trained != dataset.task:
            raise FedscapeError(
                f"{self._where}: the model was trained for {trained}, and the data set {dataset.name} is one for "
                f"{dataset.task}"
            )
        return dataset.task

    def partition(self, dataset: Dataset) -> Partition:
        """The run's partition: ``partition.npz`` beside the file where it is, else drawn again.

        Raises:
            FedscapeError: the checkpoint has none, or what was found or drawn is not the run's.
        """
        recipe = self.data.get("partition")
        if not isinstance(recipe, dict):
            raise FedscapeError(f"{self._where}: the checkpoint has no partition, so it knows no clients")
        fields_ = {"spec": str, "clients": int, "digest": str}
        if not all(isinstance(recipe.get(k), kind) for k, kind in fields_.items()) or "seed" not in self.data:
            raise FedscapeError(f"{self._where}: the checkpoint does not say how its partition was drawn")
        for file in run_files(self.path, "partition.npz"):
            if (found := Partition.load(file)).digest() == recipe["digest"]:
                return found
        drawn = partition_dataset(recipe["spec"], dataset, recipe["clients"], self.data["seed"])
        if drawn.digest() != recipe["digest"]:
            raise FedscapeError(
                f"{self._where}: the partition drawn again is not the run's (other data or another NumPy): "
                "put the run's partition.npz beside the checkpoint"
            )
        return drawn

    def client_indices(self, dataset: Dataset, clients: Sequence[int]) -> Tensor:
        """The training samples of these clients, as one index vector; a client named twice counts once.

        Raises:
            FedscapeError: as :meth:`partition`, no client, or one that does not exist.
        """
        partition = self.partition(dataset)
        unknown = [c for c in clients if not 0 <= c < len(partition)]
        if unknown or not clients:
            raise FedscapeError(f"there is no client {unknown or ''}: the run has clients 0 to {len(partition) - 1}")
        return torch.from_numpy(np.concatenate([partition.clients[c] for c in dict.fromkeys(clients)]))

    def digest(self) -> str:
        """A SHA-256 over the model's name, parameters and buffers: equal for equal functions."""
        sha = hashlib.sha256(json.dumps(self.model, default=str, sort_keys=True).encode())
        for name, tensor in sorted({**self.parameters, **self.buffers}.items()):
            sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            sha.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return sha.hexdigest()

    @property
    def foreign(self) -> bool:
        """Whether only its weights are known: somebody else's file, opened by :mod:`landscape.checkpoints.foreign`."""
        return self.algorithm.get("name") == UNKNOWN

    @property
    def label(self) -> str:
        """Its algorithm's name; the file's where that is not known."""
        return self.path.name if self.foreign and self.path else str(self.algorithm.get("name"))

    @property
    def title(self) -> str:
        """What it is, in a line."""
        if self.foreign:
            return f"{self.label}, {self.model.get('name')} on {self.data.get('name')}"
        return f"{self.algorithm.get('name')}, round {self.round}, {self.model.get('name')} on {self.data.get('name')}"

    @property
    def _where(self) -> str:
        return str(self.path) if self.path else "the checkpoint"
