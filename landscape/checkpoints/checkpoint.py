"""The checkpoint file: a model's parameters, with the model's name, its data and how it was trained."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from landscape.checkpoints.client_work import ClientWork
from landscape.checkpoints.schema import SCHEMA
from landscape.data.normalisation import as_before, as_recorded, normalised
from landscape.datasets import Dataset, load_dataset
from landscape.errors import FedscapeError
from landscape.models import build_model
from landscape.partitions.partition import Partition, partition_dataset
from landscape.space import ParameterSpace
from landscape.storage.display import Shown, told
from landscape.storage.files import load_torch, save_torch
from landscape.storage.plain import require_kind, require_plain
from landscape.storage.schema import printable, require
from landscape.tasks import Task
from landscape.version import versions

FORMAT = "fedscape/1"
UNKNOWN = "unknown"
"""The algorithm's name where only the weights are known (:mod:`landscape.checkpoints.foreign`)."""


def run_files(checkpoint: Path | None, name: str) -> list[Path]:
    """The files called ``name`` in the run directory of a checkpoint, the nearest first; none without a file.

    Args:
        checkpoint: the run directory, or a checkpoint file in it (ckpt.pt or rounds/NNNNN.pt).
        name: of the file.
    """
    if checkpoint is None:
        return []
    folders = [checkpoint] if checkpoint.is_dir() else [checkpoint.parent, checkpoint.parent.parent]
    return [folder / name for folder in folders if (folder / name).exists()]


@dataclass(frozen=True, repr=False)
class Checkpoint(Shown):
    """Contents of a checkpoint (format ``fedscape/1``): primitives and tensors only.

    Attributes:
        model: ``name`` and the builder's ``kwargs``.
        data: ``name``, ``kwargs`` (``data_dir``), ``partition`` (``spec``, ``clients``, ``digest``), ``seed``, and the
            ``task``, classification or segmentation; the ``normalisation`` of its inputs.
        algorithm: ``name`` and every hyper-parameter, the run's settings among them.
        round: completed communication rounds (0: the initial model).
        seed: the run's seed.
        parameters, buffers: tensors by name, on the CPU.
        metrics: the last measured values.
        versions: of Fedscape, torch, NumPy and Python.
        clients: local models, flat vectors by client id (empty unless they were requested).
        work: what these clients received, where they began, and their perturbations; ``None`` unless local models were
            requested, and in files of versions that did not keep it.
        path: the file that it was read from; not stored.
        client: whose local model ``parameters`` are (:meth:`of_client`); ``None``: the global one; not stored.

    Example:
        >>> import torch
        >>> from landscape import Checkpoint, build_model
        >>> kwargs = {"input_shape": [1, 8, 8], "classes": 10}
        >>> net = build_model("digits_mlp", seed=0, **kwargs)
        >>> checkpoint = Checkpoint(
        ...     model={"name": "digits_mlp", "kwargs": kwargs},
        ...     data={"name": "digits", "kwargs": {}},
        ...     algorithm={"name": "fedavg"},
        ...     round=3,
        ...     seed=0,
        ...     parameters={name: p.detach() for name, p in net.named_parameters()},
        ...     buffers={},
        ... )
        >>> checkpoint.title
        'fedavg, round 3, digits_mlp on digits'
        >>> torch.equal(checkpoint.build_model()[1].weight, net[1].weight)
        True
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
    work: ClientWork | None = None
    path: Path | None = None
    client: int | None = None

    def _heading(self) -> str:
        return self.title

    def _facts(self) -> dict[str, str]:
        facts = {"parameters": f"{sum(tensor.numel() for tensor in self.parameters.values()):,}", **self.scores()}
        facts |= {"local models": f"{len(self.clients)}"} if self.clients else {}
        return facts | ({"file": str(self.path)} if self.path else {})

    def scores(self) -> dict[str, str]:
        """The last measured accuracy and losses as text, by name; none of a client's local model, as they are the
        global model's."""
        scores = {}
        for name in ("test_accuracy", "test_loss", "train_loss"):
            if self.client is None and isinstance(value := self.metrics.get(name), (int, float)):
                scores[name.replace("_", " ")] = f"{value:.2%}" if name.endswith("accuracy") else told(value)
        return scores

    def save(self, path: str | Path) -> None:
        """Write the file atomically.

        Raises:
            FedscapeError: the file cannot be written, or this is a client's local model (:meth:`of_client`), which the
                format does not tell from a global one; an earlier file of that name is unchanged.
        """
        if self.client is not None:
            raise FedscapeError(
                f"{path}: a file would not say that these are the parameters of client {self.client}'s local model: "
                f"save the run's checkpoint, which holds them, and open it as FILE@{self.client}"
            )
        contents = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("path", "client")}
        if not self.clients:
            del contents["clients"]
        if self.work is None:
            del contents["work"]
        else:
            contents["work"] = self.work.contents()
        save_torch(path, {"format": FORMAT, **contents})

    @classmethod
    def load(cls, path: str | Path) -> Checkpoint:
        """Read and check a checkpoint; code in the file is never run.

        Raises:
            FedscapeError: no such file, or it is not a checkpoint, truncated, unsafe, or of another format.
        """
        return cls.of_contents(load_torch(path), path)

    @classmethod
    def of_contents(cls, contents: Any, path: str | Path) -> Checkpoint:
        """Make a checkpoint of the contents of a file.

        Raises:
            FedscapeError: the contents are of another format or incomplete, or hold tensors that are no plain numbers.
        """
        if not isinstance(contents, dict) or "format" not in contents:
            raise FedscapeError(f"{path} is not a Fedscape checkpoint: it does not say format '{FORMAT}'")
        if contents["format"] != FORMAT:
            raise FedscapeError(f"{path} has another checkpoint format: this version reads '{FORMAT}'")
        require(contents, SCHEMA, path)
        contents = {"clients": {}, "work": None, **contents}
        for group in ("parameters", "buffers", "clients"):
            for k, tensor in contents[group].items():
                name = f"the local model of client {k}" if group == "clients" else f"'{printable(k)}'"
                require_plain(tensor, f"{path}: {name}", weights=group != "buffers")
        if contents["work"] is not None:
            dimension = sum(tensor.numel() for tensor in contents["parameters"].values())
            contents["work"] = ClientWork.of_contents(contents["work"], dimension, path)
        stored = [f.name for f in fields(cls) if f.name not in ("path", "client")]
        return cls(**{name: contents[name] for name in stored}, path=Path(path))

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
            name: the model, named by the user; needed where the file names ``package.module:callable``.

        Raises:
            FedscapeError: the model is unknown, or has other parameters, or buffers of another kind of numbers.
        """
        own = str(self.model.get("name"))
        if name is None:
            self._require_shapes(own)
        try:
            module = build_model(name or own, seed=0, imports=name is not None, **self.model.get("kwargs", {}))
        except TypeError as error:
            raise FedscapeError(f"{self._where}: the model '{own}' is not described fully: {error}") from error
        dtypes = {tensor.dtype for tensor in self.parameters.values()}
        if len(dtypes) == 1 and (dtype := dtypes.pop()).is_floating_point:
            module.to(dtype)
        state = {**self.parameters, **self.buffers}
        wanted = self._wanted(module, name or own)
        with torch.no_grad():
            for key, tensor in state.items():
                require_kind(tensor, wanted[key], f"{self._where}: '{key}'")
                wanted[key].copy_(tensor)
        return module

    def _require_shapes(self, name: str) -> None:
        """Refuse a description of another model before memory is allocated for what it describes.

        Raises:
            FedscapeError: as :meth:`build_model`.
        """
        try:
            module = build_model(name, seed=0, imports=False, shapes_only=True, **self.model.get("kwargs", {}))
        except TypeError as error:
            raise FedscapeError(f"{self._where}: the model '{name}' is not described fully: {error}") from error
        self._wanted(module, name)

    def _wanted(self, module: nn.Module, name: str) -> dict[str, Tensor]:
        """The model's parameters and buffers by name.

        Raises:
            FedscapeError: they are not those of the checkpoint, by name or shape.
        """
        state = {**self.parameters, **self.buffers}
        # Not state_dict(), which names tied parameters twice and omits some buffers.
        wanted = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        differing = [
            key
            for key in sorted(wanted.keys() | state.keys())
            if key not in state or key not in wanted or state[key].shape != wanted[key].shape
        ]
        if differing:
            some = ", ".join(printable(key) for key in differing[:5])
            raise FedscapeError(
                f"{self._where}: the parameters do not fit the model '{name}': "
                f"{some}{' …' if len(differing) > 5 else ''} missing, unknown or of another shape"
            )
        return wanted

    def of_client(self, client: int, model: str | None = None) -> Checkpoint:
        """The same with a client's local model w_i as its parameters; the buffers stay the global model's.

        Args:
            client: its id.
            model: as in :meth:`build_model`.

        Raises:
            FedscapeError: as :meth:`build_model`; the checkpoint holds no local model of the client, or one of another
                network.
        """
        if client not in self.clients:
            kept = ", ".join(map(str, sorted(self.clients))) or "none: train with --save-clients"
            initial = (
                "" if self.clients or self.round else "; round 0 is the initial model, which no client has worked on"
            )
            raise FedscapeError(
                f"{self._where} holds no local model of client {client} (those it holds: {kept}){initial}"
            )
        try:
            local = ParameterSpace.of(self.build_model(model)).unflatten(self.clients[client])
        except FedscapeError as error:
            raise FedscapeError(f"{self._where}: the local model of client {client}: {error}") from None
        return replace(self, parameters=self.parameters | local, client=client)

    def load_dataset(
        self, *, data_dir: str | Path | None = None, name: str | None = None, normalise: str | None = None
    ) -> Dataset:
        """The data set that the model was trained on, normalised as it was then.

        The file records the normalisation; one that does not is of an earlier version, whose rule it has
        (:func:`landscape.data.normalisation.as_before`).

        Args:
            data_dir: the folder of the data, if not the one of the training run.
            name: the data set, named by the user; needed where the file names ``package.module:callable``.
            normalise: another rule (:func:`landscape.data.normalisation.normalised`).

        Raises:
            FedscapeError: as :func:`landscape.datasets.load_dataset`; a record that is damaged or of other inputs.
        """
        stored = self.data.get("kwargs", {}).get("data_dir")
        folder = data_dir if data_dir is not None or stored is None else str(stored)
        dataset = load_dataset(name or str(self.data.get("name")), folder, imports=name is not None)
        return self.normalised(dataset, normalise)

    def normalised(self, dataset: Dataset, normalise: str | None = None) -> Dataset:
        """A data set with the model's normalisation, or with another rule's; the errors are those of loading one."""
        if normalise is not None:
            return normalised(dataset, normalise)
        record = self.data.get("normalisation")
        return as_before(dataset) if record is None else as_recorded(dataset, record, self._where)

    def task_on(self, dataset: Dataset) -> Task:
        """The task of the model on a data set: classification of samples, or segmentation.

        Raises:
            FedscapeError: the model was trained for another task.
        """
        trained = self.data.get("task", dataset.task)  # state dicts of other programs do not say it
        if trained != dataset.task:
            raise FedscapeError(
                f"{self._where}: the model was trained for {trained}, and the data set {dataset.name} is one for "
                f"{dataset.task}"
            )
        return dataset.task

    def partition(self, dataset: Dataset) -> Partition:
        """The run's partition: read from ``partition.npz`` in the run directory, or else drawn again.

        Raises:
            FedscapeError: the checkpoint has no partition, or the one found or drawn differs from the run's.
        """
        recipe = self.data.get("partition")
        if not isinstance(recipe, dict):
            raise FedscapeError(f"{self._where}: the checkpoint has no partition, so it knows no clients")
        fields_ = {"spec": str, "clients": int, "digest": str}
        if not all(isinstance(recipe.get(k), kind) for k, kind in fields_.items()) or "seed" not in self.data:
            raise FedscapeError(f"{self._where}: the checkpoint does not say how its partition was drawn")
        for file in run_files(self.path, "partition.npz"):
            if (found := Partition.load(file)).digest() == recipe["digest"]:
                if max((int(part.max()) for part in found.clients if len(part)), default=-1) >= len(dataset.train):
                    raise FedscapeError(f"{file} is not of these data: it names samples that {dataset.name} lacks")
                return found
        drawn = partition_dataset(recipe["spec"], dataset, recipe["clients"], self.data["seed"])
        if drawn.digest() != recipe["digest"]:
            raise FedscapeError(
                f"{self._where}: the partition drawn again is not the run's (other data or another NumPy): "
                "put the run's partition.npz beside the checkpoint"
            )
        return drawn

    def client_indices(self, dataset: Dataset, clients: Sequence[int]) -> Tensor:
        """The indices of these clients' training samples, one vector; a client named twice counts once.

        Raises:
            FedscapeError: as :meth:`partition`; no client, or one that does not exist.
        """
        partition = self.partition(dataset)
        unknown = [c for c in clients if not 0 <= c < len(partition)]
        if unknown or not clients:
            raise FedscapeError(f"there is no client {unknown or ''}: the run has clients 0 to {len(partition) - 1}")
        return torch.from_numpy(np.concatenate([partition.clients[c] for c in dict.fromkeys(clients)]))

    def digest(self) -> str:
        """A SHA-256 digest of the model's name, parameters and buffers: equal for equal functions."""
        sha = hashlib.sha256(json.dumps(self.model, default=str, sort_keys=True).encode())
        for name, tensor in sorted({**self.parameters, **self.buffers}.items()):
            sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            sha.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return sha.hexdigest()

    @property
    def foreign(self) -> bool:
        """Whether only the weights are known: a file of another program (:mod:`landscape.checkpoints.foreign`)."""
        return self.algorithm.get("name") == UNKNOWN

    @property
    def label(self) -> str:
        """The name of the algorithm, or of the file if the algorithm is unknown; of a local model also the client."""
        name = printable(self.path.name if self.foreign and self.path else str(self.algorithm.get("name")))
        return name if self.client is None else f"{name}, client {self.client}"

    @property
    def title(self) -> str:
        """One line of text: algorithm, whose local model (unless it is the global one), round, model and data."""
        where = printable(f"{self.model.get('name')} on {self.data.get('name')}")
        if self.foreign:
            return f"{self.label}, {where}"
        local = "" if self.client is None else f", client {self.client}'s local model"
        return f"{printable(str(self.algorithm.get('name')))}{local}, round {self.round}, {where}"

    @property
    def _where(self) -> str:
        return str(self.path) if self.path else "the checkpoint"
