"""The models that a plane goes through: checkpoints, clients' local models, a run's rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from landscape import Checkpoint, FedscapeError, Landscape
from landscape.batchnorm import BatchStatistics
from landscape.checkpoints.checkpoint import run_files
from landscape.checkpoints.foreign import open_checkpoint
from landscape.storage.digests import tensor_digest


@dataclass(frozen=True)
class Model:
    """A model of a checkpoint: the global one, or the local one of a client.

    Attributes:
        checkpoint: where it is from.
        client: whose local model it is.
    """

    checkpoint: Checkpoint
    client: int | None = None

    @classmethod
    def open(
        cls,
        subject: Checkpoint | str | Path,
        model: str | None = None,
        data: str | None = None,
        data_dir: str | Path | None = None,
    ) -> Model:
        """A checkpoint's model; of ``FILE@ID`` the local model of that client (training with ``--save-clients``).

        Raises:
            FedscapeError: the file cannot be opened, or holds no such client's model.
        """
        file, at, client = str(subject).rpartition("@")
        if isinstance(subject, Checkpoint) or not (at and client.isdigit()) or Path(subject).exists():
            return cls(open_checkpoint(subject, model, data, data_dir))
        checkpoint = open_checkpoint(file, model, data, data_dir)
        if int(client) not in checkpoint.clients:
            kept = ", ".join(map(str, sorted(checkpoint.clients))) or "none: train with --save-clients"
            raise FedscapeError(f"{file} holds no local model of client {client} (those it holds: {kept})")
        return cls(checkpoint, int(client))

    def weights(self, landscape: Landscape) -> Tensor:
        """Its point in a landscape's coordinates, [d].

        Raises:
            FedscapeError: the landscape is of another network.
        """
        try:
            if self.client is not None:
                w = self.checkpoint.clients[self.client]
                landscape.space.check(w)
            else:
                w = landscape.space.flatten(self.checkpoint.parameters)
        except FedscapeError as error:
            raise FedscapeError(f"{self.checkpoint.path} is of another network than the first model: {error}") from None
        return w.to(landscape.weights)

    def statistics(self, model: str | None = None) -> Tensor:
        """The running statistics of its BatchNorm layers, [b] (a client's: the global model's)."""
        return BatchStatistics(self.checkpoint.build_model(model)).read()

    def digest(self) -> str:
        """Equal for equal models."""
        own = self.checkpoint.digest()
        return own if self.client is None else tensor_digest(self.checkpoint.clients[self.client])


def labels_of(models: Sequence[Model]) -> list[str]:
    """The shortest names that tell them apart: algorithm or client, then round or folder, then number."""
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

    Raises:
        FedscapeError: the checkpoint lies in no run that kept some, or one of them cannot be read.
    """
    folders = run_files(model.checkpoint.path, "rounds")
    files = sorted(folders[0].glob("*.pt")) if folders else []
    if not files:
        raise FedscapeError(
            f"{model.checkpoint.path} lies beside no rounds/*.pt: train with --save-every, or give several checkpoints"
        )
    earlier = [Checkpoint.load(file) for file in files]
    kept = [replace(model, checkpoint=c) for c in earlier if c.round < model.checkpoint.round]
    return [*kept, model]
