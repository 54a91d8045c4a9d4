"""Accuracy of the global model on each client's own data, over the rounds of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from landscape import Checkpoint, FedscapeError, Landscape
from landscape.checkpoints.foreign import open_checkpoint
from landscape.several import several
from landscape.storage.display import Shown


@dataclass(frozen=True, repr=False)
class ClientAccuracies(Shown):
    """Accuracies, as shares, after r rounds on the training data of c clients, and on the test data.

    Attributes:
        title: of the run's last checkpoint.
        rounds: [r], ascending.
        clients: their ids, [c].
        accuracy: of the global model on each client's training data, [r, c].
        test_accuracy: on all test data, [r].
    """

    title: str
    rounds: np.ndarray
    clients: np.ndarray
    accuracy: np.ndarray
    test_accuracy: np.ndarray

    def _heading(self) -> str:
        return self.title

    def _facts(self) -> dict[str, str]:
        last = self.accuracy[-1]
        return {
            "clients": f"{len(self.clients):,}",
            "rounds": f"{len(self.rounds):,}, {self.rounds[0]} to {self.rounds[-1]}",
            "in the last, the clients' training data": f"{last.min():.2%} to {last.max():.2%}, mean {last.mean():.2%}",
            "test data": f"{self.test_accuracy[-1]:.2%}",
        }

    def to_dict(self) -> dict[str, Any]:
        """Text and lists by name."""
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(self).items()}


def client_accuracies(
    checkpoints: Sequence[Checkpoint | str | Path] | Checkpoint | str | Path,
    clients: Sequence[int] | None = None,
    *,
    device: str | torch.device = "auto",
    data_dir: str | Path | None = None,
    batch_size: int | None = None,
    stream: bool | None = None,
) -> ClientAccuracies:
    """Evaluate the global models of a run on each client's training data and on the test data (Caldarola et al.,
    ECCV 2022, fig. 3).

    Args:
        checkpoints: of one run, files or loaded, in any order; one or several.
        clients: their ids; all unless given.
        device, data_dir, batch_size, stream: as in :meth:`landscape.Landscape.from_checkpoint`.

    Raises:
        FedscapeError: no checkpoint, one that cannot be loaded, targets that are no classes, a client that does not
            exist.

    Example:
        >>> import tempfile
        >>> from analysis.accuracy import client_accuracies
        >>> from trainers import FedAvg, Settings, train
        >>> settings = Settings(rounds=2, clients=4, per_round=2, save_every=1, device="cpu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = train(FedAvg(), settings, out=folder)
        ...     found = client_accuracies(sorted((run.path / "rounds").iterdir()), device="cpu")
        >>> found.rounds.tolist(), found.accuracy.shape
        ([0, 1, 2], (3, 4))
    """
    given: list[Checkpoint | str | Path] = several(checkpoints)
    if not given:
        raise FedscapeError("no checkpoint is given: give at least one")
    loaded = sorted((open_checkpoint(each, None, None, data_dir) for each in given), key=lambda each: each.round)
    last = loaded[-1]
    dataset = last.load_dataset(data_dir=data_dir)
    partition = last.partition(dataset)
    ids = list(range(len(partition))) if clients is None else list(clients)
    if unknown := [i for i in ids if not 0 <= i < len(partition)]:
        raise FedscapeError(
            f"there is no client {unknown[0]}: the {len(partition)} clients are 0 to {len(partition) - 1}"
        )
    found, tested = [], []
    for checkpoint in loaded:
        machine: dict[str, Any] = {"device": device, "batch_size": batch_size, "stream": stream}
        module, task = checkpoint.build_model(), checkpoint.task_on(dataset)
        whole = Landscape(module, dataset.train, task=task, **machine)
        own = [whole.over(whole.data.subset(torch.from_numpy(partition.clients[i]))) for i in ids]
        found.append([_accuracy(each) for each in own])
        tested.append(_accuracy(Landscape(module, dataset.test, task=task, **machine)))
    return ClientAccuracies(
        title=last.title,
        rounds=np.array([checkpoint.round for checkpoint in loaded]),
        clients=np.array(ids),
        accuracy=np.array(found),
        test_accuracy=np.array(tested),
    )


def _accuracy(landscape: Landscape) -> float:
    measured = landscape.evaluate().accuracy
    if measured is None:
        raise FedscapeError("accuracy is of data with classes, and these targets are none")
    return measured
