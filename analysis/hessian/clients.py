"""Client by client: the spectrum, loss and accuracy of the global model or of each local one on a client's own data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from analysis.hessian.spectrum.eigen import Eigenpairs, largest_eigenpairs
from analysis.hessian.spectrum.operators import Hessian
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.activations import MAN
from landscape.checkpoints.foreign import open_checkpoint
from landscape.data.samples import random_subset
from landscape.terminal.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Told = Callable[[int, int], None]
"""Called to report progress, with the number of clients (or rounds) done and of all."""


@dataclass(frozen=True)
class ClientEigenvalues:
    """Results on each client's own data at one checkpoint; means and deviations give each client the same weight.

    Attributes:
        title: the checkpoint, and the penalty where there is one, in a line.
        round: communication rounds done.
        local: whether each client's own local model w_i was measured, not the global one.
        clients: their ids, [n].
        values: the largest eigenvalues of ∇²L_i, descending, [n, k]; the first is λ_max^i.
        bounds: their error bounds, [n, k].
        converged: which are within the wanted tolerance, [n, k].
        losses: L_i, [n].
        accuracies: on the client's own data, [n]; ``None`` where the targets are not classes.
        samples: how many each was measured on, [n].
        consistency: (1/n) Σ ‖w_i − w‖² (Sun et al., ICML 2023, Table 2); ``None`` where the global model was measured.
        hvps: Hessian-vector products spent in all.
    """

    title: str
    round: int
    local: bool
    clients: np.ndarray
    values: np.ndarray
    bounds: np.ndarray
    converged: np.ndarray
    losses: np.ndarray
    accuracies: np.ndarray | None
    samples: np.ndarray
    consistency: float | None
    hvps: int

    @property
    def model(self) -> str:
        """Which model was measured, in words."""
        return "each client's local model" if self.local else "the global model"

    @property
    def largest(self) -> np.ndarray:
        """λ_max of each client, [n]."""
        return self.values[:, 0]

    @property
    def mean(self) -> float:
        """The mean of λ_max over the clients."""
        return float(self.largest.mean())

    @property
    def deviation(self) -> float:
        """The standard deviation of λ_max over the clients, √((1/n) Σ (λ_i − mean)²)."""
        return float(self.largest.std())

    def to_dict(self) -> dict[str, Any]:
        """Numbers, text and lists by name."""
        plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(self).items()}
        summary: dict[str, float | None] = {"mean": self.mean, "deviation": self.deviation}
        for name, numbers in (("loss", self.losses), ("accuracy", self.accuracies)):
            summary[f"{name}_mean"] = None if numbers is None else float(numbers.mean())
            summary[f"{name}_deviation"] = None if numbers is None else float(numbers.std())
        return {**plain, **summary}

    def summary(self) -> Table:
        """Client, λ_max, error bound, loss, accuracy, samples; then means and deviations."""
        accuracies = np.full(len(self.clients), np.nan) if self.accuracies is None else self.accuracies
        rows = []
        for i, client in enumerate(self.clients):
            doubt = "" if self.converged[i, 0] else ", NOT CONVERGED"
            spectrum = f"{self.largest[i]:.6g}", f"{self.bounds[i, 0]:.1e}{doubt}"
            rows.append(
                (str(client), *spectrum, f"{self.losses[i]:.4f}", _share(accuracies[i]), f"{self.samples[i]:,}")
            )
        for name, of in (("mean", np.mean), ("deviation", np.std)):
            rows.append((name, f"{of(self.largest):.6g}", "", f"{of(self.losses):.4f}", _share(of(accuracies)), ""))
        return Table(("client", "λ_max", "bound", "loss", "accuracy", "samples"), tuple(rows))

    def __str__(self) -> str:
        return f"{self.title} ({self.model})\n{self.summary()}"

    def plot(self, path: str | Path | None = None) -> Figure:
        """λ_max of each client, with the mean and a band of one deviation; written to ``path`` where one is given.

        Raises:
            FedscapeError: the file cannot be written or has a format that Matplotlib does not write.
        """
        from analysis.hessian.plots.clients import plot_clients

        return _saved(plot_clients([self]), path)


@dataclass(frozen=True)
class ClientCurves:
    """The clients' λ_max over the rounds (Caldarola et al., ECCV 2022, fig. 4).

    Attributes:
        measured: one result for each checkpoint, by ascending round.
    """

    measured: tuple[ClientEigenvalues, ...]

    @property
    def rounds(self) -> np.ndarray:
        """The rounds, [r]."""
        return np.array([found.round for found in self.measured])

    @property
    def clients(self) -> np.ndarray:
        """The ids of all clients that were measured in some round, ascending, [n]."""
        return np.unique(np.concatenate([found.clients for found in self.measured]))

    def table(self) -> np.ndarray:
        """λ_max, [r, n]: NaN where a client was not measured in a round (it was not sampled)."""
        clients = self.clients
        values = np.full((len(self.measured), len(clients)), np.nan)
        for row, found in zip(values, self.measured, strict=True):
            row[np.searchsorted(clients, found.clients)] = found.largest
        return values

    def to_dict(self) -> dict[str, Any]:
        """The rounds, and a list of the results of each."""
        return {"rounds": self.rounds.tolist(), "measured": [found.to_dict() for found in self.measured]}

    def summary(self) -> Table:
        """Round, mean and deviation of λ_max, the largest, mean loss and accuracy, clients."""
        head = ("round", "λ_max mean", "deviation", "largest", "loss", "accuracy", "clients")
        rows = tuple(
            (
                str(found.round),
                f"{found.mean:.6g}",
                f"{found.deviation:.3g}",
                f"{found.largest.max():.6g}",
                f"{found.losses.mean():.4f}",
                None if found.accuracies is None else _share(found.accuracies.mean()),
                str(len(found.clients)),
            )
            for found in self.measured
        )
        return Table(head, rows)

    def __str__(self) -> str:
        return f"{self.measured[0].model}, on each client's own data\n{self.summary()}"

    def plot(self, path: str | Path | None = None) -> Figure:
        """A line for each client over the rounds, and their mean; written to ``path`` where one is given.

        Raises:
            FedscapeError: the file cannot be written or has a format that Matplotlib does not write.
        """
        from analysis.hessian.plots.clients import plot_client_curves

        return _saved(plot_client_curves(self), path)


def client_eigenvalues(
    checkpoint: Checkpoint | str | Path,
    clients: Sequence[int] | None = None,
    top: int = 1,
    local: bool = False,
    *,
    split: str = "train",
    samples: int | None = None,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype | None = None,
    data_dir: str | Path | None = None,
    model: str | None = None,
    data: str | None = None,
    batch_size: int | None = None,
    penalty: MAN | None = None,
    stream: bool | None = None,
    tolerance: float = 1e-3,
    seed: int = 0,
    told: Told | None = None,
) -> ClientEigenvalues:
    """The largest eigenvalues of ∇²L_i on each client's own data, with loss and accuracy there.

    They are taken at the global model w, or at the client's local one w_i^t, the model it ended its local work of
    round t with (``local=True``; Caldarola et al., ECCV 2022, fig. 4: λ_max^k "using the locally updated parameters
    θ_k^t on the k-th device's data"), which a run keeps where it is trained with ``save_clients``.

    Args:
        checkpoint: a run's checkpoint.
        clients: their ids; all unless given, or with ``local`` all whose models the checkpoint carries.
        top: how many eigenvalues of each.
        local: measure each client's local model.
        split: clients hold training data: ``train``.
        samples: at most so many of each client's samples, a random subset.
        device, dtype, data_dir, model, data, batch_size, penalty, stream: as in
            :meth:`landscape.Landscape.from_checkpoint`.
        tolerance, seed: as in :func:`analysis.hessian.spectrum.eigen.largest_eigenpairs`.
        told: called after each client.

    Raises:
        FedscapeError: a checkpoint or data that cannot be loaded, a client that does not exist or without a local
            model in the checkpoint, a loss that is not finite.
    """
    if split != "train":
        raise FedscapeError("clients hold training data only: take split 'train'")
    checkpoint = open_checkpoint(checkpoint, model, data, data_dir)
    ids = _chosen(checkpoint, clients, local)
    dataset = checkpoint.load_dataset(data_dir=data_dir, name=data)
    partition = checkpoint.partition(dataset)
    ids = list(range(len(partition))) if ids is None else ids
    unknown = [client for client in ids if not 0 <= client < len(partition)]
    if unknown:
        raise FedscapeError(f"there is no client {unknown[0]}: the run has clients 0 to {len(partition) - 1}")
    module = checkpoint.build_model(model)
    options: dict[str, Any] = {"batch_size": batch_size, "penalty": penalty, "stream": stream}
    whole = Landscape(module, dataset.train, device=device, dtype=dtype, task=checkpoint.task_on(dataset), **options)
    if not 1 <= top <= whole.dimension:
        raise FedscapeError(f"{top} eigenvalues are asked for: give a number from 1 to {whole.dimension}")
    found = []
    for i, client in enumerate(ids):
        own = whole.data.subset(torch.from_numpy(partition.clients[client]))
        part = whole.over(own if samples is None or samples >= len(own) else random_subset(own, samples))
        w = checkpoint.clients[client].to(whole.weights) if local else whole.weights
        found.append(_measure(part, w, client, top, tolerance, seed))
        if told is not None:
            told(i + 1, len(ids))
    accuracies = [one.accuracy for one in found]
    return ClientEigenvalues(
        title=checkpoint.title if penalty is None else f"{checkpoint.title} + {penalty}",
        round=checkpoint.round,
        local=local,
        clients=np.array(ids),
        values=np.array([one.eigen.values for one in found]),
        bounds=np.array([one.eigen.bounds for one in found]),
        converged=np.array([one.eigen.converged for one in found]),
        losses=np.array([one.loss for one in found]),
        accuracies=None if None in accuracies else np.array(accuracies, dtype=float),
        samples=np.array([one.samples for one in found]),
        consistency=consistency(whole.weights, [checkpoint.clients[client] for client in ids]) if local else None,
        hvps=sum(one.eigen.products for one in found),
    )


def client_curves(
    checkpoints: Sequence[Checkpoint | str | Path],
    clients: Sequence[int] | None = None,
    top: int = 1,
    local: bool = False,
    *,
    told: Told | None = None,
    **options: Any,
) -> ClientCurves:
    """:func:`client_eigenvalues` of several checkpoints of a run, such as those of :func:`rounds_of`.

    With ``local``, checkpoints without local models (the initial one) are left out, and of ``clients`` those are
    measured in each round that were sampled in it.

    Args:
        checkpoints: files or loaded checkpoints, in any order.
        clients, top, local, options: as in :func:`client_eigenvalues`.
        told: called after each checkpoint.

    Raises:
        FedscapeError: as :func:`client_eigenvalues`; nothing to measure in any of the checkpoints.
    """
    measured = []
    for i, item in enumerate(checkpoints):
        checkpoint = open_checkpoint(item, *(options.get(name) for name in ("model", "data", "data_dir")))
        wanted: Sequence[int] | None = clients
        if local:
            wanted = sorted(checkpoint.clients if clients is None else checkpoint.clients.keys() & set(clients))
        if wanted is None or wanted:
            measured.append(client_eigenvalues(checkpoint, wanted, top, local, **options))
        if told is not None:
            told(i + 1, len(checkpoints))
    if not measured:
        raise FedscapeError(
            "none of the checkpoints carries a local model of these clients: train with --save-clients"
            if local
            else "there is no checkpoint, or no client, to measure"
        )
    return ClientCurves(tuple(sorted(measured, key=lambda found: found.round)))


def rounds_of(run: str | Path) -> list[Path]:
    """The checkpoints ``rounds/NNNNN.pt`` of a run directory, by round.

    Raises:
        FedscapeError: there is none.
    """
    files = [file for file in (Path(run) / "rounds").glob("*.pt") if file.stem.isdigit()]
    if not files:
        raise FedscapeError(f"{run} is no run directory: there is no rounds/NNNNN.pt in it")
    return sorted(files, key=lambda file: int(file.stem))


def consistency(w: Tensor, local_models: Sequence[Tensor]) -> float:
    """(1/n) Σ ‖w_i − w‖² of n local models [d] about a global one [d] (Sun et al., ICML 2023, Table 2)."""
    apart = [model.to(w.device, torch.float64) - w.double() for model in local_models]
    return sum(torch.dot(v, v).item() for v in apart) / len(apart)


@dataclass(frozen=True)
class _Client:
    """What was measured on one client's data."""

    eigen: Eigenpairs
    loss: float
    accuracy: float | None
    samples: int


def _measure(landscape: Landscape, w: Tensor, client: int, top: int, tolerance: float, seed: int) -> _Client:
    """Measure the landscape of a client's data at a point.

    Raises:
        FedscapeError: the loss is not finite there.
    """
    here = landscape.evaluate(w)
    if not np.isfinite(here.loss):
        raise FedscapeError(f"the loss of client {client} is {here.loss}: there is nothing to measure around it")
    eigen = largest_eigenpairs(Hessian(landscape, w), top, tolerance=tolerance, seed=seed)
    eigen = replace(eigen, vectors=None, krylov=None)  # of every client at once they would not fit into memory
    return _Client(eigen, here.loss, here.accuracy, landscape.samples)


def _chosen(checkpoint: Checkpoint, clients: Sequence[int] | None, local: bool) -> list[int] | None:
    """The clients' ids, each once; ``None`` for all."""
    ids = None if clients is None else list(dict.fromkeys(int(client) for client in clients))
    if ids == []:
        raise FedscapeError("no client is asked for: name at least one, or none for all")
    if not local:
        return ids
    carried = sorted(checkpoint.clients)
    if not carried:
        raise FedscapeError(f"{checkpoint.title}: the checkpoint carries no local models: train with --save-clients")
    missing = [client for client in ids or () if client not in checkpoint.clients]
    if missing:
        raise FedscapeError(
            f"the checkpoint carries no local model of client {missing[0]}: it has those of "
            f"{', '.join(map(str, carried))}, the clients sampled in round {checkpoint.round}"
        )
    return carried if ids is None else ids


def _share(accuracy: float) -> str | None:
    return None if np.isnan(accuracy) else f"{accuracy:.2%}"


def _saved(figure: Figure, path: str | Path | None) -> Figure:
    """The figure, written to ``path`` where one is given."""
    if path is not None:
        from landscape.storage.pictures import save_figure

        save_figure(figure, path)
    return figure
