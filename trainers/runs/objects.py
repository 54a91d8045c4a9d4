"""What a run is made of: its data, model, federation and evaluator, and the checkpoints of its models."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.checkpoints.checkpoint import Checkpoint
from landscape.checkpoints.client_work import ClientWork
from landscape.compute.precision import Precision
from landscape.data.normalisation import normalised, recorded
from landscape.data.samples import Samples
from landscape.datasets import Dataset, load_dataset, recorded_name
from landscape.models import build_model
from landscape.models.outputs import require_outputs
from landscape.partitions.label_matching import matching_partition
from landscape.partitions.partition import Partition, partition_dataset
from landscape.storage.digests import tensor_digest
from trainers.algorithm import Algorithm
from trainers.algorithms import algorithm_name
from trainers.federation.choice import Choice, choose, executor
from trainers.federation.client_store import ClientStore
from trainers.federation.federation import Federation
from trainers.federation.local import LocalWork
from trainers.parts.parts import Parts
from trainers.ranks import RankedExecutor, RankedStore, Ranks, require_groups
from trainers.runs.directory import RunDirectory
from trainers.runs.evaluation import Evaluator
from trainers.settings import Settings

_COMPARED = 256
"""Training samples that ranks compare, so that all have the same data."""


class RunObjects:
    """The objects of one run, the same on every rank of it.

    Args:
        algorithm, settings, parts: as :func:`trainers.train` takes them.
        directory: where the run lies; it may say what ``auto`` meant when the run began.
        ranks: those of the run.

    Raises:
        FedscapeError: as :func:`trainers.train`.
    """

    def __init__(
        self, algorithm: Algorithm, settings: Settings, parts: Parts, directory: RunDirectory, ranks: Ranks
    ) -> None:
        self.algorithm, self.parts, self.directory, self.ranks = algorithm, parts, directory, ranks
        device, precision = ranks.device, Precision(settings.dtype)
        precision.check(device)
        dtype = precision.dtype
        raw = load_dataset(settings.data, settings.folder)
        rule = ranks.agreed(lambda: directory.normalise(settings.normalise, raw))
        self.settings = settings = replace(settings, normalise=rule)
        self.dataset: Dataset = normalised(raw, None if settings.normalise == "auto" else settings.normalise)
        self.partition: Partition = partition_dataset(settings.partition, self.dataset, settings.clients, settings.seed)
        self.test_partition = self._split_test()
        self.model_kwargs: dict[str, Any] = {
            "input_shape": list(self.dataset.input_shape),
            "classes": self.dataset.classes,
        }
        module = build_model(settings.model, seed=settings.seed, **self.model_kwargs)
        require_outputs(module, self.dataset.task, self.dataset.classes, self.dataset.train)
        self._check_man(module, dtype)
        self.evaluator = Evaluator(module, self.dataset, self.partition, device, precision, self.test_partition)
        self.model = FlatModule(module, device, dtype)
        self.statistics = BatchStatistics(self.model.module)
        local = LocalWork(
            settings.local_epochs,
            None if settings.batch_size == "full" else int(settings.batch_size),
            settings.weight_decay,
            settings.augment,
            settings.seed,
            settings.local_steps,
            settings.last_batch,
            settings.clip,
            settings.clip_at,
            settings.batchnorm,
            parts,
            self.dataset.task,
            precision,
            settings.clip_eps,
            settings.save_clients,
        )
        samples = self.dataset.train.placed(device)
        self.choice = self._choice(samples, local)
        self.settings = settings = replace(settings, executor=self.choice.name)
        self.federation = self._federation(samples, local)
        digest = self.partition.digest()
        self.partition_recipe = {"spec": settings.partition, "clients": settings.clients, "digest": digest}

    def _choice(self, samples: Samples, local: LocalWork) -> Choice:
        """The executor, the same on all ranks."""
        settings, ranks = self.settings, self.ranks
        asked = ranks.agreed(lambda: self.directory.executor(settings.executor, ranks.device.type))
        alone = "ranks share the clients" if asked == "auto" and ranks.world > 1 else ""
        taken = replace(settings, executor="sequential" if alone else asked)
        choice = choose(self.model, samples, self.algorithm, local, taken)
        reason = alone or (choice.reason if asked == settings.executor else "as the run began")
        return replace(choice, reason=reason)

    def _federation(self, samples: Samples, local: LocalWork) -> Federation:
        """The federation, whose clients several ranks share."""
        ranks, shared = self.ranks, self.ranks.world > 1
        inner = executor(self.choice, self.model, samples, self.partition, self.algorithm, local)
        federation = Federation(
            self.algorithm,
            RankedExecutor(inner, ranks, self.choice.width) if shared else inner,
            self.settings,
            self.model.buffer.clone(),
            self.parts,
            self.statistics.read().to(ranks.device),
            self.directory.path,
            partial(RankedStore, ranks) if shared else ClientStore,
        )
        if shared and ranks.rank == 0:
            require_groups(federation, self.choice.name, self.choice.width)
        if shared:
            ranks.require_same("clients with the digest", self.partition.digest())
            some = self.dataset.train.inputs[:_COMPARED]
            ranks.require_same("an initial model and data with the digest", tensor_digest(self.model.buffer, some))
        return federation

    def _split_test(self) -> Partition | None:
        if not self.settings.client_accuracy or self.settings.client_test != "split":
            return None
        labels, others = (data.targets.numpy() for data in (self.dataset.train, self.dataset.test))
        return matching_partition(self.partition, labels, others, self.settings.seed)

    def _check_man(self, module: torch.nn.Module, dtype: torch.dtype) -> None:
        """Check that the model has activations for MAN, before the first round."""
        if self.parts.man is not None:
            trial = FlatModule(module, torch.device("cpu"), dtype)
            inputs, _ = self.dataset.train.batch(slice(0, 2), dtype)
            with self.parts.man.watching(trial.module) as penalty, torch.no_grad():
                trial.module(inputs)
                penalty()

    def evaluate(self, w: Tensor, *, clients: bool, averaged: bool = False) -> dict[str, Any]:
        """Loss and accuracy of a model on the test set, and by client if asked for."""
        statistics = self.statistics_of(w, averaged=averaged)
        scores = self.evaluator.on_test(w, statistics)
        return scores | (self.evaluator.by_client(w, statistics) if clients else {})

    def statistics_of(self, w: Tensor, *, averaged: bool = False) -> Tensor:
        """BatchNorm's statistics for a model: the server's, or computed from the training data where it has none.

        For a mean of models they are computed too, because its activations differ from those of each model.
        """
        if averaged or self.settings.batchnorm == "silo":
            return self.evaluator.statistics(w)
        return self.federation.statistics

    def checkpoint(
        self,
        w: Tensor,
        metrics: dict[str, Any],
        round: int | None = None,
        clients: dict[int, Tensor] | None = None,
        work: ClientWork | None = None,
        *,
        averaged: bool = False,
    ) -> Checkpoint:
        """The checkpoint of the model ``w`` after ``round`` rounds (those done, unless given).

        ``clients`` are the local models that were averaged into it, by client id, [d] each; ``work`` says of these
        clients what they received and how they perturbed.
        """
        settings, module = self.settings, self.model.module
        parameters = dict(module.named_parameters()) | self.model.space.unflatten(w)
        self.statistics.load(self.statistics_of(w, averaged=averaged))
        folder = settings.folder
        data_kwargs = {"data_dir": str(folder)} if folder else {}
        return Checkpoint(
            model={"name": settings.model, "kwargs": self.model_kwargs},
            data={
                "name": recorded_name(settings.data),
                "kwargs": data_kwargs,
                "partition": self.partition_recipe,
                "seed": settings.seed,
                "task": self.dataset.task,
                "normalisation": recorded(self.dataset),
            },
            algorithm={
                "name": algorithm_name(self.algorithm),
                **self.algorithm.hyper_parameters(),
                "parts": self.parts.recorded(),
                "training": settings.recorded(),
            },
            round=self.federation.round if round is None else round,
            seed=settings.seed,
            parameters={name: p.detach().cpu().clone() for name, p in parameters.items()},
            buffers={name: b.detach().cpu().clone() for name, b in module.named_buffers()},
            metrics={name: value for name, value in metrics.items() if name != "clients"},
            clients=clients or {},
            work=work,
        )
