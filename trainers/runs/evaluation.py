"""Evaluation of models on the test data, and by client."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.compute.cost import threads_for
from landscape.compute.precision import Precision
from landscape.data.micro_batches import micro_batch_size
from landscape.data.samples import Samples
from landscape.datasets import Dataset
from landscape.landscape import Landscape
from landscape.partitions.partition import Partition
from landscape.tasks import IGNORED


class Evaluator:
    """Evaluates flat models of one architecture on one data set.

    Args:
        module: the model; it is copied.
        dataset: training and test data.
        partition: the training samples of each client.
        device, precision: of the arithmetic.
        test_partition: the test samples of each client; all of them, reweighted, unless given.
    """

    def __init__(
        self,
        module: nn.Module,
        dataset: Dataset,
        partition: Partition,
        device: torch.device,
        precision: Precision,
        test_partition: Partition | None = None,
    ) -> None:
        name = "tf32" if precision.name == "tf32" else precision.dtype
        self._test = Landscape(module, dataset.test, device=device, dtype=name, task=dataset.task)
        self._evaluate = self._test.evaluator(bf16=precision.bf16)
        self._precision = precision
        self._model = FlatModule(module, device, precision.dtype)
        self._model.module.eval()
        self._dataset, self._classes = dataset, dataset.classes
        self._clients = _tensors(partition)
        self._tested = _tensors(test_partition) if test_partition is not None else None
        self._statistics = BatchStatistics(self._model.module)
        self._cost = self._test.micro_batches.cost
        self._of_test = self._test.batch_statistics

    def statistics(self, w: Tensor) -> Tensor:
        """BatchNorm's statistics of the training data at ``w``, for clients that keep theirs, [b]."""
        if not len(self._statistics):
            return w.new_zeros(0)
        self._model.load(w)
        train = self._dataset.train
        # A mean over batches depends on their size: one that does not follow from the model's cost.
        size = micro_batch_size(self._model.device, self._dataset.task, train.targets, None)
        return self._statistics.estimate(
            train.prepare(inputs.to(self._model.device), self._model.dtype) for inputs in train.inputs.split(size)
        )

    def on_test(self, w: Tensor, statistics: Tensor) -> dict[str, Any]:
        """Loss and accuracy on the test data, and mIoU for segmentation."""
        self._of_test.load(statistics)
        result = self._evaluate(w)
        scores = {"test_loss": result.loss, "test_accuracy": result.accuracy}
        return scores if result.mean_iou is None else scores | {"test_miou": result.mean_iou}

    def by_client(self, w: Tensor, statistics: Tensor) -> dict[str, float]:
        """Mean and standard deviation over the clients of their accuracies.

        The accuracies are those on a client's training data and on its part of the test data.  If the test data are not
        split, all of them are used, with the classes weighted by the client's label ratios: the expectation for a part
        drawn with those ratios.
        """
        self._model.load(w)
        self._statistics.load(statistics)
        scores = _moments("client_train_accuracy", _means(self._correct(self._dataset.train), self._clients))
        if self._tested is None and self._dataset.task == "segmentation":
            return scores  # no label ratios to weight the test data by
        right = self._correct(self._dataset.test)
        on_test = _means(right, self._tested) if self._tested is not None else self._reweighted(right)
        return scores | _moments("client_test_accuracy", on_test)

    def _reweighted(self, right: Tensor) -> Tensor:
        """Σ_c q_ic · accuracy on class c, with client i's label ratios q_i, [clients]."""
        per_class = torch.zeros(self._classes, dtype=torch.float64)
        targets = self._dataset.test.targets.cpu()
        per_class.index_add_(0, targets, right)
        per_class /= torch.bincount(targets, minlength=self._classes).clamp_min(1)
        labels = self._dataset.train.targets.cpu()
        shares = torch.stack(
            [torch.bincount(labels[mine], minlength=self._classes).double() / len(mine) for mine in self._clients]
        )
        return shares @ per_class

    @torch.no_grad()
    def _correct(self, data: Samples) -> Tensor:
        """For each sample 1 if it is classified correctly and 0 if not, or the share of its pixels that are, [n]."""
        model = self._model
        size = micro_batch_size(model.device, self._dataset.task, data.targets, self._cost)
        found = []
        for inputs, targets in zip(data.inputs.split(size), data.targets.split(size), strict=True):
            with threads_for(math.inf if self._cost is None else self._cost.flops * len(inputs)):
                prepared = data.prepare(inputs.to(model.device), model.dtype)
                with self._precision.arithmetic(), self._precision.forward(model.device):
                    outputs = model.module(prepared)
            right = (outputs.argmax(dim=1).cpu() == targets.cpu()).double()
            if self._dataset.task == "segmentation":
                labelled = (targets != IGNORED).flatten(1).sum(1).cpu()
                right = right.flatten(1).sum(1) / labelled.clamp_min(1)
            found.append(right)
        return torch.cat(found)


def _tensors(partition: Partition) -> list[Tensor]:
    return [torch.from_numpy(indices) for indices in partition.clients]


def _means(values: Tensor, parts: list[Tensor]) -> Tensor:
    """The mean of the values at each part's positions, [parts]."""
    return torch.stack([values[mine].mean() for mine in parts])


def _moments(name: str, values: Tensor) -> dict[str, float]:
    return {name: values.mean().item(), f"{name}_deviation": values.std(correction=0).item()}
