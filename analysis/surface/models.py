"""The models that a surface is of, and the landscapes it is measured on: checkpoints, local models, a run's rounds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from analysis.source import SurfaceSource
from analysis.surface.options import Quantities
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.batchnorm import BatchStatistics
from landscape.checkpoints.checkpoint import run_files
from landscape.checkpoints.foreign import open_checkpoint
from landscape.storage.digests import tensor_digest
from landscape.storage.schema import printable


@dataclass(frozen=True)
class Model:
    """A model of a checkpoint: the global one, or the local one of a client.

    Attributes:
        checkpoint: with its parameters, or with a client's local ones (:meth:`landscape.Checkpoint.of_client`).
        network: the network's name where the user gives it.
    """

    checkpoint: Checkpoint
    network: str | None = None

    @property
    def client(self) -> int | None:
        """Whose local model it is; ``None``: the global model."""
        return self.checkpoint.client

    @classmethod
    def open(
        cls,
        subject: Checkpoint | str | Path,
        model: str | None = None,
        data: str | None = None,
        data_dir: str | Path | None = None,
        normalise: str | None = None,
        key: str | None = None,
        loader: str | None = None,
    ) -> Model:
        """Open a checkpoint; with ``FILE@ID`` the local model of that client in it (training with ``--save-clients``).

        Raises:
            FedscapeError: the file cannot be opened, or holds no such client's model.
        """
        return cls(open_checkpoint(subject, model, data, data_dir, normalise, key, loader), model)

    def weights(self, landscape: Landscape) -> Tensor:
        """Its parameters as a point in a landscape's coordinates, [d].

        Raises:
            FedscapeError: the landscape is of another network.
        """
        try:
            w = landscape.space.flatten(self.checkpoint.parameters)
        except FedscapeError as error:
            raise FedscapeError(f"{self.checkpoint.path} is of another network than the first model: {error}") from None
        return w.to(landscape.weights)

    def statistics(self, model: str | None = None) -> Tensor:
        """The running statistics of its BatchNorm layers, [b] (a client's: the global model's)."""
        return BatchStatistics(self.checkpoint.build_model(model)).read()

    def digest(self) -> str:
        """A digest that equal models have in common."""
        own = self.checkpoint.digest()
        return own if self.client is None else tensor_digest(self.checkpoint.clients[self.client])

    def names(self) -> dict[str, Any]:
        """Its fields of :class:`analysis.surface.provenance.Provenance`: the model, its data and its training."""
        checkpoint = self.checkpoint
        algorithm = "a model" if checkpoint.foreign else printable(str(checkpoint.algorithm.get("name")))
        return {
            "model": printable(str(checkpoint.model.get("name"))),
            "data": printable(str(checkpoint.data.get("name"))),
            "algorithm": algorithm if self.client is None else f"{algorithm}, client {self.client}",
            "round": None if checkpoint.foreign else checkpoint.round,
            "checkpoint": self.digest(),
        }


def labels_of(models: Sequence[Model]) -> list[str]:
    """The shortest names that differ: algorithm or client, else with the round, the folder or a number."""
    names = [m.checkpoint.label if m.client is None else f"client {m.client}" for m in models]
    places = [m.checkpoint.path.parent.name if m.checkpoint.path else "" for m in models]
    rounds = [f"{name}, round {m.checkpoint.round}" for name, m in zip(names, models, strict=True)]
    folders = [f"{name} ({place})" for name, place in zip(names, places, strict=True)]
    for labels in (names, rounds, folders):
        if len(set(labels)) == len(labels):
            return labels
    return [f"{name} {k + 1}" for k, name in enumerate(names)]


def rounds_of(model: Model) -> list[Model]:
    """The models that a run kept (``rounds/NNNNN.pt``) up to this one, which is the last, in order.

    Before a client's local model come its local models of the earlier rounds that it was sampled in.

    Raises:
        FedscapeError: the checkpoint lies in no run that kept some, or one of them cannot be read.
    """
    folders = run_files(model.checkpoint.path, "rounds")
    files = sorted(folders[0].glob("*.pt")) if folders else []
    if not files:
        raise FedscapeError(
            f"{model.checkpoint.path} lies beside no rounds/*.pt: train with --save-every, or give several checkpoints"
        )
    earlier = [c for c in map(Checkpoint.load, files) if c.round < model.checkpoint.round]
    if (client := model.client) is not None:
        earlier = [c.of_client(client, model.network) for c in earlier if client in c.clients]
    return [*(replace(model, checkpoint=c) for c in earlier), model]


@dataclass(frozen=True)
class Subject:
    """The landscapes that a surface is measured on, and the models it goes through.

    Attributes:
        landscapes: by split; the first is that of the split measured on.
        models: the first model and the others that the plane may go through; empty where a ``Landscape`` was given.
        names: of the first model, its data and its training (:meth:`Model.names`).
    """

    landscapes: dict[str, Landscape]
    models: list[Model]
    names: dict[str, Any]

    @classmethod
    def open(
        cls,
        subject: Landscape | Checkpoint | str | Path,
        others: Sequence[Checkpoint | str | Path],
        source: SurfaceSource,
        quantities: Quantities,
    ) -> Subject:
        """A landscape as it is, or checkpoints with the landscapes around the first of them.

        Raises:
            FedscapeError: a checkpoint or data that cannot be loaded; a landscape together with options that it has
                already, or with what needs checkpoints.
        """
        if isinstance(subject, Landscape):
            return cls._of_landscape(subject, others, source, quantities)
        models = [Model.open(one, **source.naming) for one in (subject, *others)]
        options: dict[str, Any] = {
            **source.naming, "device": source.device, "dtype": source.dtype,
            "batch_size": None if source.batch_size == "auto" else source.batch_size,
            "penalty": quantities.penalty, "stream": source.stream,
        }  # fmt: skip
        first, split = models[0].checkpoint, str(source.split)
        landscapes = {split: Landscape.from_checkpoint(first, split, source.clients, source.samples, **options)}
        if quantities.test:
            landscapes["test"] = Landscape.from_checkpoint(first, "test", None, source.samples, **options)
        return cls(landscapes, models, models[0].names())

    @classmethod
    def _of_landscape(
        cls,
        landscape: Landscape,
        others: Sequence[Checkpoint | str | Path],
        source: SurfaceSource,
        quantities: Quantities,
    ) -> Subject:
        given = [value for name, value in vars(source).items() if name not in ("split", "device")]
        if source.device != "auto" or any(value is not None for value in (*given, quantities.penalty)):
            raise FedscapeError("a Landscape brings its data, device and dtype along: leave those arguments out")
        if quantities.test or others:
            raise FedscapeError("a Landscape is of one model and one split: give checkpoints for others and test")
        sha = hashlib.sha256(repr(landscape.space.entries).encode())
        sha.update(tensor_digest(landscape.weights).encode())
        names = {
            "model": f"{landscape.dimension:,} parameters",
            "data": "own data",
            "algorithm": "a model",
            "round": None,
            "checkpoint": sha.hexdigest(),
        }
        return cls({source.split: landscape}, [], names)

    @property
    def landscape(self) -> Landscape:
        """The landscape of the split measured on, around the first model."""
        return next(iter(self.landscapes.values()))

    def models_of(self, plane: object) -> list[Model]:
        """The models that a plane goes through: with ``pca`` and one checkpoint, those that its run kept.

        Raises:
            FedscapeError: the run kept none, or one of them cannot be read.
        """
        return rounds_of(self.models[0]) if plane == "pca" and len(self.models) == 1 else self.models
