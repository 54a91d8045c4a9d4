"""A problem: a model, its data and a loss, placed on a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from landscape.activations import MAN
from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.compute.devices import TF32, reproducible_arithmetic
from landscape.data.anything import as_data
from landscape.data.batches import Batches, objective_value
from landscape.data.micro_batches import MicroBatches
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.placement import Placement, check_batch_size
from landscape.sample_losses import is_known
from landscape.space import ParameterSpace
from landscape.storage.digests import tensor_digest
from landscape.storage.display import Shown
from landscape.tasks import Loss, Task, loss_of


class Problem(Shown):
    """A private copy of a model, its data in micro-batches, and a loss; the arguments are those of ``Landscape``.

    This class describes what is computed and where; :class:`landscape.Landscape` computes it.

    Attributes:
        weights: the parameters that the model had at construction, [d].
        loss: (outputs, targets) -> scalar mean over the batch.
        task: ``classification`` or ``segmentation``.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        loss: Loss | None = None,
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype | None = None,
        batch_size: int | None = None,
        penalty: MAN | None = None,
        stream: bool | None = None,
        task: Task = "classification",
    ) -> None:
        self._place = Placement.resolved(model, device, dtype, batch_size, stream)
        self._flat = FlatModule(model, self._place.device, self._place.dtype)
        self._flat.module.eval()
        self.task = task
        data = as_data(data, model, loss)
        _require_loss(data, loss, task)
        self.loss: Loss = objective_value if isinstance(data, Batches) else loss or loss_of(task)
        self._batches = self._placed(self._place, data, penalty)
        self._title: str | None = None
        self.weights = self._flat.buffer.clone()

    def _placed(self, place: Placement, data: Samples | Batches, penalty: MAN | None) -> MicroBatches:
        batches = place.micro_batches(data, self.task, penalty, self._flat.module)
        batches.only_logits = is_known(self.loss)
        return batches

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({self.dimension:,} parameters, {self.samples:,} samples, {self.device}, {self.precision})"

    def _heading(self) -> str:
        return self._title or ""

    def _facts(self) -> dict[str, str]:
        facts = {"parameters": f"{self.dimension:,}", "samples": f"{self.samples:,}", "task": self.task}
        facts |= {"penalty": str(self.penalty)} if self.penalty else {}
        return {**facts, "device": str(self.device), "arithmetic": self.precision}

    @property
    def title(self) -> str:
        """One line of text: the title of the checkpoint that it was made from, if any."""
        return self._title or repr(self)

    def digest(self) -> str:
        """A digest of the point, the data and the penalty, to tell landscapes of one model apart."""
        return f"{tensor_digest(self.weights)} {self._batches.digest()}"

    @property
    def space(self) -> ParameterSpace:
        """The layout of the coordinates."""
        return self._flat.space

    @property
    def dimension(self) -> int:
        """d, the number of coordinates."""
        return self._flat.space.dimension

    @property
    def parameter_names(self) -> dict[str, str]:
        """Every name of a trainable parameter -> the name of its entry in ``space``; a tied parameter has several.

        Example:
            >>> import torch
            >>> from landscape import Landscape
            >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
            >>> net[1].weight = net[0].weight
            >>> Landscape(net, (torch.eye(2), torch.arange(2)), device="cpu").parameter_names
            {'0.weight': '0.weight', '1.weight': '0.weight'}
        """
        return self._flat.names

    @contextmanager
    def at(self, w: Tensor | None = None) -> Iterator[nn.Module]:
        """Inside, the model has its parameters at a point, and arithmetic is that of the landscape.

        The yielded module is the landscape's own: read it or call it, but do not change it, and do not evaluate the
        landscape inside.  :meth:`model` returns a copy.

        Args:
            w: the point, [d]; ``weights`` unless given.

        Raises:
            FedscapeError: a point of another shape.

        Example:
            >>> import torch
            >>> from landscape import Landscape
            >>> line = Landscape(torch.nn.Linear(2, 1), (torch.eye(2), torch.ones(2, 1)), device="cpu")
            >>> with line.at(torch.tensor([3.0, 4.0, 0.5])) as module, torch.no_grad():
            ...     float(module.weight.norm()), module(torch.eye(2)).tolist()
            (5.0, [[3.5], [4.5]])
        """
        self._flat.load(self.weights if w is None else w)
        with reproducible_arithmetic(self._batches.tf32, cudnn=not self._flat.recurrent):
            yield self._flat.module

    def model(self, w: Tensor | None = None) -> nn.Module:
        """A copy of the model in evaluation mode, with its parameters at a point.

        Args:
            w: the point, [d]; ``weights`` unless given.

        Raises:
            FedscapeError: a point of another shape.

        Example:
            >>> import torch
            >>> from landscape import Landscape
            >>> line = Landscape(torch.nn.Linear(1, 1), (torch.ones(1, 1), torch.ones(1, 1)), device="cpu")
            >>> line.model(torch.tensor([2.0, 5.0])).bias.item()
            5.0
        """
        return self._flat.copy(self.weights if w is None else w)

    @property
    def batch_statistics(self) -> BatchStatistics:
        """The running statistics of the model's BatchNorm layers, which the function is computed with."""
        return BatchStatistics(self._flat.module)

    @property
    def device(self) -> torch.device:
        """The device of the computation."""
        return self._flat.device

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the computation."""
        return self._flat.dtype

    @property
    def precision(self) -> str:
        """The arithmetic by name: ``float32``, ``float64`` or ``tf32``."""
        return TF32 if self._batches.tf32 else str(self.dtype).removeprefix("torch.")

    @property
    def samples(self) -> int:
        """n, the number of samples that the loss is a mean over (of batches with an objective: the sum of sizes)."""
        return len(self._batches.data)

    @property
    def penalty(self) -> MAN | None:
        """The penalty added to the loss, if any."""
        return self._batches.penalty

    @property
    def data(self) -> Samples:
        """The samples; may be set, and the new ones are used from then on.

        Raises:
            FedscapeError: the landscape is one of arbitrary batches (``Landscape.of``).
        """
        if isinstance(self._batches.data, Batches):
            raise FedscapeError("this needs inputs and targets, and the landscape is of batches with an objective")
        return self._batches.data

    @data.setter
    def data(self, data: Samples) -> None:
        place = replace(self._place, batch_size=self.batch_size)
        self._batches = self._placed(place, data, self.penalty)

    @property
    def has_classes(self) -> bool:
        """Whether the targets are classes, so that there is an accuracy."""
        data = self._batches.data
        return isinstance(data, Samples) and not data.targets.is_floating_point()

    @property
    def micro_batches(self) -> MicroBatches:
        """The micro-batches that every quantity is a mean over.

        Example:
            >>> import torch
            >>> from landscape import Landscape
            >>> data = torch.eye(3), torch.zeros(3, 1)
            >>> plane = Landscape(torch.nn.Linear(3, 1), data, torch.nn.functional.mse_loss, device="cpu", batch_size=2)
            >>> with plane.at() as module, torch.no_grad():
            ...     parts = [share * module(x).mean() for _, x, _, share in plane.micro_batches]
            >>> len(parts)
            2
        """
        return self._batches

    @property
    def batch_size(self) -> int:
        """Samples per micro-batch; may be set."""
        return self._batches.size

    @batch_size.setter
    def batch_size(self, size: int) -> None:
        check_batch_size(size)
        self._place = replace(self._place, batch_size=size)
        self._batches.size = size


def _require_loss(data: Samples | Batches, loss: Loss | None, task: Task) -> None:
    """Refuse to take targets that are neither classes nor their probabilities for such: cross-entropy is the default.

    Raises:
        FedscapeError: floating-point targets of another kind without a loss.
    """
    if loss is not None or isinstance(data, Batches) or not data.targets.is_floating_point():
        return
    y = data.targets
    if y.dim() < 2 or y.min() < 0 or not torch.allclose(y.sum(1), torch.ones_like(y.sum(1)), atol=1e-3):
        raise FedscapeError(
            f"the targets are floating-point numbers and no probabilities of classes, so {loss_of(task).__name__} "
            "makes no sense: give a loss such as torch.nn.functional.mse_loss"
        )
