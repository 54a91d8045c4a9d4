"""Client by client: the spectrum, loss and accuracy of the global model or of each local one on a client's own data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from analysis.hessian.client_results import ClientCurves, ClientEigenvalues
from analysis.hessian.spectrum.eigen import Eigenpairs, largest_eigenpairs
from analysis.hessian.spectrum.operators import Hessian
from analysis.hessian.spectrum.refinement import refined, spent
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.activations import MAN
from landscape.checkpoints.foreign import open_checkpoint
from landscape.data.loaders import data_named
from landscape.data.samples import random_subset
from landscape.datasets import Dataset
from landscape.partitions.partition import Partition
from landscape.several import several

Told = Callable[[int, int], None]
"""Called to report progress, with the number of clients (or rounds) done and of all."""

_NAMING = ("model", "data", "data_dir", "normalise", "key", "loader")
"""Options of :func:`client_eigenvalues` that say what a checkpoint leaves unsaid."""


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
    normalise: str | None = None,
    key: str | None = None,
    loader: str | None = None,
    batch_size: int | None = None,
    penalty: MAN | None = None,
    stream: bool | None = None,
    tolerance: float = 1e-3,
    seed: int = 0,
    refine: bool = True,
    told: Told | None = None,
) -> ClientEigenvalues:
    """The largest eigenvalues of ∇²L_i on each client's own data, with loss and accuracy there.

    They are taken at the global model w, or at the client's local one w_i^t, the model it ended its local work of
    round t with (``local=True``; Caldarola et al., ECCV 2022, fig. 4: λ_max^k "using the locally updated parameters
    θ_k^t on the k-th device's data"), which a run keeps where it is trained with ``save_clients``.

    Args:
        checkpoint: a run's checkpoint; with ``FILE@ID`` it is client ID's local model that every client's data measure.
        clients: their ids; all unless given, or with ``local`` all whose models the checkpoint carries.
        top: how many eigenvalues of each.
        local: measure each client's local model.
        split: clients hold training data: ``train``.
        samples: at most so many of each client's samples, a random subset.
        device, dtype, data_dir, model, data, normalise, key, loader, batch_size, penalty, stream: as in
            :meth:`landscape.Landscape.from_checkpoint`.
        tolerance, seed: as in :func:`analysis.hessian.spectrum.eigen.largest_eigenpairs`.
        refine: end eigenvalues in float32 with one product each in float64
            (:func:`analysis.hessian.spectrum.refinement.refined`).
        told: called after each client.

    Raises:
        FedscapeError: a checkpoint or data that cannot be loaded, a client that does not exist or without a local
            model in the checkpoint, a loss that is not finite.
    """
    if split != "train":
        raise FedscapeError("clients hold training data only: take split 'train'")
    data = data_named(data, loader)
    checkpoint = open_checkpoint(checkpoint, model, data, data_dir, normalise, key)
    ids = _chosen(checkpoint, clients, local)
    dataset = checkpoint.load_dataset(data_dir=data_dir, name=data, normalise=normalise)
    partition, task = checkpoint.partition(dataset), checkpoint.task_on(dataset)
    ids = _known(ids, len(partition))
    options: dict[str, Any] = {"batch_size": batch_size, "penalty": penalty, "stream": stream, "task": task}
    whole = Landscape(checkpoint.build_model(model), dataset.train, device=device, dtype=dtype, **options)
    _check_top(top, whole)
    found = []
    for i, client in enumerate(ids):
        part = _portion(whole, torch.from_numpy(partition.clients[client]), samples)
        w = checkpoint.clients[client].to(whole.weights) if local else whole.weights
        found.append(_measure(part, w, client, top, tolerance, seed, refine))
        if told is not None:
            told(i + 1, len(ids))
    return ClientEigenvalues(
        title=checkpoint.title if penalty is None else f"{checkpoint.title} + {penalty}",
        round=checkpoint.round,
        local=local,
        clients=np.array(ids),
        values=np.array([one.eigen.values for one in found]),
        bounds=np.array([one.eigen.bounds for one in found]),
        converged=np.array([one.eigen.converged for one in found]),
        losses=np.array([one.loss for one in found]),
        accuracies=_unless_missing([one.accuracy for one in found]),
        samples=np.array([one.samples for one in found]),
        consistency=consistency(whole.weights, [checkpoint.clients[client] for client in ids]) if local else None,
        hvps=sum(one.products for one in found),
        noise=np.array([one.noise for one in found]),
        label=checkpoint.label,
        client=checkpoint.client,
        label_counts=_label_counts(dataset, partition)[ids] if task == "classification" and whole.has_classes else None,
    )


def _unless_missing(values: Sequence[float | None]) -> np.ndarray | None:
    """The values, [n]; ``None`` where one is missing."""
    return None if None in values else np.array(values, dtype=float)


def _label_counts(dataset: Dataset, partition: Partition) -> np.ndarray:
    """How many training samples of each class a client has, [clients, classes]."""
    targets = dataset.train.targets.numpy()
    return partition.label_counts(targets, int(targets.max()) + 1)


def _check_top(top: int, whole: Landscape) -> None:
    if not 1 <= top <= whole.dimension:
        raise FedscapeError(f"{top} eigenvalues are asked for: give a number from 1 to {whole.dimension}")


def _portion(whole: Landscape, indices: Tensor, samples: int | None) -> Landscape:
    """The landscape over these samples, or a random subset of so many of them."""
    own = whole.data.subset(indices)
    return whole.over(own if samples is None or samples >= len(own) else random_subset(own, samples))


def client_curves(
    checkpoints: Sequence[Checkpoint | str | Path] | Checkpoint | str | Path,
    clients: Sequence[int] | None = None,
    top: int = 1,
    local: bool = False,
    *,
    told: Told | None = None,
    **options: Any,
) -> ClientCurves:
    """:func:`client_eigenvalues` of several checkpoints of a run, such as those of :func:`rounds_of`.

    With ``local``, checkpoints without local models (the initial one) are left out (``left_out`` says why), and of
    ``clients`` those are measured in each round that were sampled in it.

    Args:
        checkpoints: files or loaded checkpoints, in any order; one or several.
        clients, top, local, options: as in :func:`client_eigenvalues`.
        told: called after each checkpoint.

    Raises:
        FedscapeError: as :func:`client_eigenvalues`; nothing to measure in any of the checkpoints.
    """
    measured: list[ClientEigenvalues] = []
    left_out: dict[int, str] = {}
    items: list[Checkpoint | str | Path] = several(checkpoints)
    for i, item in enumerate(items):
        checkpoint = open_checkpoint(item, **{name: options.get(name) for name in _NAMING})
        wanted: Sequence[int] | None = clients
        if local:
            wanted, why = local_clients(checkpoint, clients)
            left_out |= {checkpoint.round: why} if why else {}
        if wanted is None or wanted:
            measured.append(client_eigenvalues(checkpoint, wanted, top, local, **options))
        if told is not None:
            told(i + 1, len(items))
    if not measured:
        raise FedscapeError(
            "none of the checkpoints carries a local model of these clients: train with --save-clients"
            if local
            else "there is no checkpoint, or no client, to measure"
        )
    return ClientCurves(tuple(sorted(measured, key=lambda found: found.round)), left_out, measured[-1].label)


def local_clients(checkpoint: Checkpoint, clients: Sequence[int] | None = None) -> tuple[list[int], str]:
    """Of these clients (all unless given) those whose local models a checkpoint carries; where there are none, why."""
    ids = sorted(checkpoint.clients if clients is None else checkpoint.clients.keys() & set(clients))
    if ids:
        return ids, ""
    if checkpoint.clients:
        return [], "none of the clients asked for was sampled in it"
    if checkpoint.round == 0:
        return [], "the initial model: no client has worked yet"
    return [], "it carries no local models: train with --save-clients"


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
    products: int
    noise: float
    loss: float
    accuracy: float | None
    samples: int


def _measure(
    landscape: Landscape, w: Tensor, client: int, top: int, tolerance: float, seed: int, refine: bool
) -> _Client:
    """Measure the landscape of a client's data at a point.

    Raises:
        FedscapeError: the loss is not finite there.
    """
    here = landscape.evaluate(w)
    if not np.isfinite(here.loss):
        raise FedscapeError(f"the loss of client {client} is {here.loss}: there is nothing to measure around it")
    operator = Hessian(landscape, w)
    eigen = largest_eigenpairs(operator, top, tolerance=tolerance, seed=seed)
    if refine:
        eigen = refined(operator, eigen, tolerance=tolerance, seed=seed)
    eigen = replace(eigen, vectors=None, krylov=None)  # of every client at once they would not fit into memory
    noise = eigen.refinement.noise if eigen.refinement else 0.0
    return _Client(eigen, spent(operator, eigen), noise, here.loss, here.accuracy, landscape.samples)


def _known(ids: list[int] | None, count: int) -> list[int]:
    """The ids, all of them unless given, which a run of so many clients must have."""
    unknown = [client for client in ids or () if not 0 <= client < count]
    if unknown:
        raise FedscapeError(f"there is no client {unknown[0]}: the run has clients 0 to {count - 1}")
    return list(range(count)) if ids is None else ids


def _chosen(checkpoint: Checkpoint, clients: Sequence[int] | None, local: bool) -> list[int] | None:
    """The clients' ids, each once; ``None`` for all."""
    if local and checkpoint.client is not None:
        raise FedscapeError(
            f"the model asked for is client {checkpoint.client}'s, and local takes each client's own: leave out local, "
            f"or @{checkpoint.client}"
        )
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
