"""A round of a training run: the federation's losses, the clients that are measured, and their local models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from analysis.alignment.federation import Federation
from analysis.alignment.options import OF_THE_RUN, Weights
from analysis.hessian.clients import rounds_of
from analysis.source import Place
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.checkpoints.checkpoint import run_files
from landscape.checkpoints.foreign import checkpoint_file, open_checkpoint
from landscape.data.loaders import data_named
from landscape.data.samples import random_order
from landscape.partitions.partition import Partition
from landscape.storage.digests import tensor_digest
from landscape.storage.reading import read_json
from landscape.storage.schema import Items, Number, Record

Who = Literal["sampled", "all"] | tuple[int, ...]
"""Which clients are measured: those whose local models a round kept, all, or these."""
_BY_SAMPLES = "in proportion to the clients' numbers of samples"
_WEIGHTS = Record({"objective": Items(Number(0, 1))})
_TRAIN_SO = "train with --save-clients"


@dataclass(frozen=True)
class Used:
    """The perturbations that an algorithm used in a round.

    Attributes:
        steps: ε_i of those measured clients that have a finite one, [d], in their order.
        server: the server's model before the round and its own perturbation, where it has one.
        elsewhere: whether that model is another one than the clients received.
    """

    steps: dict[int, Tensor]
    server: tuple[Tensor, Tensor] | None
    elsewhere: bool


@dataclass(frozen=True)
class OpenedRound:
    """What is measured of one round.

    Attributes:
        federation: the losses.
        weighted: what their weights p_i are, in words.
        weights: the model after the round, [d].
        received: the model that the clients received, [d]: as the round's checkpoint has it, or in files of earlier
            versions the model of the round before; ``None`` where there is no file of it.
        used: the perturbations that were used; ``None`` where there are none.
        local: the models w_i of those measured clients that worked in the round, in their order.
        histograms: how many samples of each class the measured clients have, [n, classes]; empty without classes.
        missing: what cannot be had, and why.
        checkpoint: that of the round.
        digest: of the models and the data: equal for equal measurements.
    """

    federation: Federation
    weighted: str
    weights: Tensor
    received: Tensor | None
    used: Used | None
    local: dict[int, Tensor]
    histograms: list[list[int]]
    missing: dict[str, str]
    checkpoint: Checkpoint
    digest: str


def rounds_to_measure(run: str | Path, rounds: bool) -> list[Path]:
    """A run's last checkpoint, or with ``rounds`` every one that it kept.

    Args:
        run: a run directory, or a checkpoint in one.
        rounds: all of them.

    Raises:
        FedscapeError: there is none.
    """
    if not rounds:
        return [checkpoint_file(run)]
    kept = run_files(Path(run), "rounds")
    return rounds_of(kept[0].parent if kept else run)


def open_round(path: Path, who: Who, place: Place, weights: Weights = "run") -> OpenedRound:
    """Open one checkpoint of a run, the run's weights and its clients' data.

    Where it does not say what the clients received, its neighbour before it is opened too.

    Args:
        path: the file.
        who: the clients.
        place: the model, the data and the device; ``samples`` is at most so many of each client's.
        weights: the p_i: those of the run's objective, or in proportion to all samples that the clients have.

    Raises:
        FedscapeError: as :func:`landscape.checkpoints.foreign.open_checkpoint`; the run does not say its weights, or
            has those of another federation; clients that there are not, or that have no data.
    """
    naming: dict[str, Any] = place.naming | {"data": data_named(place.data, place.loader)}
    del naming["loader"]
    checkpoint = open_checkpoint(path, **naming)
    dataset = checkpoint.load_dataset(data_dir=place.data_dir, name=naming["data"], normalise=place.normalise)
    partition = checkpoint.partition(dataset)
    p, weighted = _weights(path, checkpoint, partition, weights)
    indices = {i: torch.from_numpy(part) for i, part in enumerate(partition.clients) if len(part) and p[i] > 0}
    if place.samples is not None:
        indices = {i: _some(dataset.train.subset(part), part, place.samples) for i, part in indices.items()}
    missing: dict[str, str] = {}
    chosen = _chosen(checkpoint, who, indices, len(partition), missing)
    whole = Landscape(
        checkpoint.build_model(place.model),
        dataset.train,
        device=place.device,
        dtype=place.dtype,
        batch_size=place.batch_size,
        stream=place.stream,
        task=checkpoint.task_on(dataset),
    )
    federation = Federation(whole, indices, {i: p[i] for i in indices}, chosen)
    work = checkpoint.work
    before = None if work is not None else _before(checkpoint, path, naming, missing)
    local = {c: checkpoint.clients[c].to(whole.weights) for c in chosen if c in checkpoint.clients}
    if not local and "local" not in missing:
        missing["local"] = f"none of the clients asked for was sampled in round {checkpoint.round}"
    received = work.received.to(whole.weights) if work is not None else None
    if before is not None:
        received = _flat(before, place, whole)
    used = _used(checkpoint, chosen, whole, missing)
    histograms = []
    if whole.has_classes and checkpoint.task_on(dataset) == "classification":
        classes = int(dataset.train.targets.max()) + 1
        histograms = [torch.bincount(dataset.train.targets[indices[c]], minlength=classes).tolist() for c in chosen]
    digests: list[str] = [checkpoint.digest(), before.digest() if before else "", whole.digest()]
    digests += [str(checkpoint.data.get("partition")), str([p[i] for i in indices])]
    digests += [tensor_digest(w) for w in local.values()]
    if work is not None:
        digests.append(tensor_digest(work.received))
    if used is not None:
        digests.append(tensor_digest(*used.steps.values(), *(used.server or ())))
    digest = " ".join(digests)
    return OpenedRound(
        federation, weighted, whole.weights, received, used, local, histograms, missing, checkpoint, digest
    )


def _used(checkpoint: Checkpoint, chosen: Sequence[int], whole: Landscape, missing: dict[str, str]) -> Used | None:
    """The perturbations that the chosen clients used; why there are none goes into ``missing``."""
    work, number = checkpoint.work, checkpoint.round
    known = {} if work is None else {c: work.perturbations[c] for c in chosen if c in work.perturbations}
    finite = {c: step for c, step in known.items() if bool(step.isfinite().all())}
    if work is None or not finite:
        if number == 0:
            missing["used"] = "the initial model: no client has worked yet"
        elif work is None:
            missing["used"] = f"no perturbation was saved: {_TRAIN_SO} with this version"
        elif not work.perturbations:
            missing["used"] = f"{checkpoint.label} has no ascent step"
        elif not known:
            missing["used"] = f"none of the clients asked for was sampled in round {number}"
        else:
            missing["used"] = "the perturbations of all of these clients are not finite"
        return None
    if left := [c for c in known if c not in finite]:
        names = ", ".join(map(str, left))
        missing["used of all"] = f"the perturbation of client {names} is not finite, and in no mean"
    own = None
    if work.server_perturbation is not None and not bool(work.server_perturbation.isfinite().all()):
        missing["used of the server"] = "the server's own perturbation is not finite"
    elif work.server_perturbation is not None:
        own = work.before.to(whole.weights), work.server_perturbation.to(whole.weights)
    return Used({c: step.to(whole.weights) for c, step in finite.items()}, own, work.server_model is not None)


def _flat(checkpoint: Checkpoint, place: Place, like: Landscape) -> Tensor:
    module = checkpoint.build_model(place.model)
    return like.space.flatten(dict(module.named_parameters())).to(like.weights)


def _weights(path: Path, checkpoint: Checkpoint, partition: Partition, asked: Weights) -> tuple[list[float], str]:
    """p_i of all clients, and what they are.

    Raises:
        FedscapeError: the run does not say them, or has those of another number of clients.
    """
    by_samples = [float(count) for count in partition.sizes / max(1, partition.sizes.sum())]
    if asked == "samples":
        return by_samples, f"{_BY_SAMPLES}, as asked for (weights samples)"
    if files := run_files(path, "weights.json"):
        found = [float(p) for p in read_json(files[0], _WEIGHTS)["objective"]]
        if len(found) != len(partition):
            raise FedscapeError(f"{files[0]} has {len(found)} weights, and the run has {len(partition)} clients")
        return found, OF_THE_RUN
    training = checkpoint.algorithm.get("training")
    if isinstance(training, dict) and _aggregates_by_samples(training):
        return by_samples, f"{_BY_SAMPLES}, by which the run says that it aggregates (there is no weights.json)"
    raise FedscapeError(
        f"{path}: there is no weights.json in its run directory, which says the clients' weights p_i: give --weights "
        "samples (weights='samples') if the run weighted its clients by their numbers of samples, or else measure a "
        "checkpoint where its run lies, resume a run of an earlier version (python -m trainers), or record a loop of "
        "your own with recording(..., weights=...)"
    )


def _aggregates_by_samples(training: dict[str, Any]) -> bool:
    """Whether recorded settings say so; where they have no ``aggregation``, ``weighting`` was not of every mean."""
    return training.get("client_weights", training.get("weighting") if "aggregation" in training else None) == "samples"


def _some(own: Any, indices: Tensor, samples: int) -> Tensor:
    """At most so many of a client's samples, always the same."""
    if samples < 1:
        raise FedscapeError(f"{samples} samples of each client are asked for: give 1 or more")
    if samples >= len(indices):
        return indices
    return indices[random_order(own)[:samples].sort().values]


def _chosen(
    checkpoint: Checkpoint, who: Who, indices: dict[int, Tensor], count: int, missing: dict[str, str]
) -> tuple[int, ...]:
    """The clients that are measured; where none are known to be sampled, all of them, which ``missing`` tells.

    Raises:
        FedscapeError: one that does not exist, or has no data; none of them.
    """
    if not checkpoint.clients:
        missing["local"] = (
            "the initial model: no client has worked yet"
            if checkpoint.round == 0
            else f"the checkpoint carries no local models: {_TRAIN_SO}"
        )
    if who == "all":
        return tuple(indices)
    if who == "sampled":
        kept = tuple(client for client in sorted(checkpoint.clients) if client in indices)
        if not checkpoint.clients and checkpoint.round:
            missing["sampled"] = "which clients were sampled is not known without their models: all are measured"
        return kept or tuple(indices)
    ids: Sequence[int] = tuple(dict.fromkeys(who))
    if not ids:
        raise FedscapeError("no client is asked for: name at least one, or take sampled or all")
    for client in ids:
        if not 0 <= client < count:
            raise FedscapeError(f"there is no client {client}: the run has clients 0 to {count - 1}")
        if client not in indices:
            raise FedscapeError(f"client {client} has no data, or the weight 0: name clients that have some")
    return tuple(ids)


def _before(checkpoint: Checkpoint, path: Path, naming: dict[str, Any], missing: dict[str, str]) -> Checkpoint | None:
    """The checkpoint of the round before, where the run kept it."""
    if checkpoint.round == 0:
        return None
    name = f"{checkpoint.round - 1:05d}.pt"
    files = [folder / name for folder in run_files(path, "rounds") if (folder / name).exists()]
    if not files:
        missing["received"] = f"there is no rounds/{name}: {_TRAIN_SO} with this version, or --save-every 1"
        return None
    return open_checkpoint(files[0], **naming)
