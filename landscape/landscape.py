"""The loss as a function on R^d: value, gradient, Hessian-vector products, accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from landscape.checkpoint import Checkpoint
from landscape.devices import free_memory, reproducible_arithmetic, resolve_device, resolve_dtype
from landscape.distributed import rank_and_world
from landscape.errors import FedscapeError
from landscape.flat import FlatModule
from landscape.foreign import open_checkpoint
from landscape.products import GaussNewtonProducts, HessianProducts, Loss, OutputCurvature
from landscape.randomness import torch_generator
from landscape.samples import Batches, MicroBatches, Objective, Samples, as_samples
from landscape.space import ParameterSpace

BATCH_SIZE = {"cpu": 256, "cuda": 1024}
"""Samples per micro-batch: small batches stay in a CPU's cache, a GPU wants large ones."""


@dataclass(frozen=True)
class Evaluation:
    """Mean loss and fraction of correct predictions over a data set (``None``: targets are no classes)."""

    loss: float
    accuracy: float | None


class Landscape:
    """L(w) = (1/n) Σ loss(model_w(x_i), y_i) over a whole data set, as a function of w in R^d.

    Every quantity is the exact mean over all samples, taken in micro-batches weighted by their size, with
    the model in evaluation mode.  The model is copied: yours stays as it is, bit for bit.

    Where a ``torch.distributed`` process group is initialised, each rank works on its portion of the samples and
    every quantity is summed over the ranks.  All ranks must then ask the same of the same landscape: the whole
    data set on each, the same points and vectors.

    Args:
        model: any module; its trainable parameters are the coordinates.
        data: ``Samples`` or a pair of tensors (inputs, targets); for anything else see :meth:`of`.
        loss: (outputs, targets) -> scalar mean over the batch; cross-entropy unless given.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: ``float32`` or ``float64``; the model's own unless given.
        batch_size: samples per micro-batch (256 on the CPU, 1024 on CUDA unless given); changes speed and
            memory, and results only by rounding.  Where the device's memory runs out it is halved, with a warning.

    Raises:
        FedscapeError: no trainable parameters, no samples, an unknown device or dtype.

    Example:
        >>> import torch
        >>> from landscape import Landscape
        >>> line = torch.nn.Linear(2, 1, bias=False)
        >>> x, y = torch.eye(2), torch.ones(2, 1)
        >>> bowl = Landscape(line, (x, y), torch.nn.functional.mse_loss, device="cpu")
        >>> bowl.value(torch.tensor([1.0, 3.0]))
        2.0
        >>> bowl.hvp(None, torch.tensor([1.0, 0.0]))
        tensor([1., 0.])
    """

    def __init__(
        self,
        model: nn.Module,
        data: Samples | tuple[Tensor, Tensor] | Batches,
        loss: Loss = nn.functional.cross_entropy,
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype | None = None,
        batch_size: int | None = None,
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise FedscapeError(f"the micro-batch size is {batch_size}: it must be at least 1")
        place = resolve_device(device)
        own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        self._flat = FlatModule(model, place, resolve_dtype(dtype or own))
        self._flat.module.eval()
        if isinstance(data, Batches):
            self.loss: Loss = _itself
            self._batches = MicroBatches(data.to(place), 1, self._flat.dtype)
        else:
            self.loss = loss
            size = batch_size or BATCH_SIZE[place.type]
            self._batches = MicroBatches(as_samples(data).to(place), size, self._flat.dtype)
        self.weights = self._flat.buffer.clone()
        """The point the model came with, [d]."""

    @classmethod
    def of(
        cls,
        model: nn.Module,
        batches: Iterable[Any],
        objective: Objective,
        *,
        size: Callable[[Any], int] | None = None,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype | None = None,
    ) -> Landscape:
        """L(w) = Σ_b size(b) objective(model_w, b) / Σ_b size(b): any scalar loss of any module over any batches.

        Value, gradient and Hessian are those of other landscapes; accuracy is ``None``, and there is no Gauss-Newton
        matrix, as nobody knows what the outputs are.  Ranks take turns at the batches.  A batch too large for the
        device's memory stays an error.

        Args:
            model: any module; the objective must use the copy it is given.
            batches: can be gone through again and again, always the same in the same order: a list, a
                ``DataLoader`` that does not shuffle.  A batch is a tensor, or a mapping, tuple or list of such; it is
                moved to the device, and floating-point tensors in it to the dtype.
            objective: (module, batch) -> the scalar mean over the batch.
            size: batch -> its weight in the mean, such as the number of tokens that are not masked; the length of
                the first tensor in it unless given.
            device, dtype: as in :class:`Landscape`.

        Raises:
            FedscapeError: as :class:`Landscape`; the batches can be gone through only once, or a size is negative
                or cannot be told; later, the batches have changed or the objective is no scalar.

        Example:
            >>> import torch
            >>> from landscape import Landscape
            >>> line = torch.nn.Linear(1, 1, bias=False)
            >>> batches = [{"x": torch.tensor([[2.0]])}, {"x": torch.tensor([[1.0], [1.0]])}]
            >>> bowl = Landscape.of(line, batches, lambda net, batch: net(batch["x"]).square().mean(), device="cpu")
            >>> bowl.hvp(None, torch.ones(1))
            tensor([4.])
        """
        return cls(model, Batches(batches, objective, size), device=device, dtype=dtype)

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path | Checkpoint,
        split: str = "train",
        clients: Sequence[int] | None = None,
        samples: int | None = None,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype | None = None,
        *,
        data_dir: str | Path | None = None,
        model: str | None = None,
        data: str | None = None,
        batch_size: int | None = None,
    ) -> Landscape:
        """The landscape around a checkpoint, at the checkpoint's point (``.weights``, [d]).

        Args:
            path: a checkpoint file, one already loaded, or anybody's state dict (:mod:`landscape.foreign`).
            split: ``train`` or ``test``.
            clients: restrict the training data to those clients' (ids of the run's partition).
            samples: a random subset of that many samples, the same for every checkpoint of the same data.
            device, dtype, batch_size: as in :class:`Landscape`.
            data_dir: where the data lie, if not where they lay when the checkpoint was trained.
            model, data: what a state dict is of; or a model or data set as ``package.module:callable``, needed
                where the checkpoint names one, because a file may not decide which code runs.

        Raises:
            FedscapeError: the file cannot be loaded or does not fit its model, the data are missing, an
                unknown split or client, more samples than there are.
        """
        checkpoint = open_checkpoint(path, model, data, data_dir)
        module = checkpoint.build_model(model)
        dataset = checkpoint.load_dataset(data_dir=data_dir, name=data)
        chosen = dataset.split(split)
        if clients is not None:
            if split != "train":
                raise FedscapeError("clients hold training data only: leave out clients, or take split 'train'")
            chosen = chosen.subset(checkpoint.client_indices(dataset, clients))
        if samples is not None:
            chosen = random_subset(chosen, samples)
        return cls(module, chosen, device=device, dtype=dtype, batch_size=batch_size)

    def to(self, dtype: str | torch.dtype) -> Landscape:
        """The same function at the same point, in another floating-point type."""
        other = Landscape(
            self._flat.module,
            self._batches.data,
            self.loss,
            device=self.device,
            dtype=dtype,
            batch_size=self.batch_size,
        )
        other.weights = self.weights.to(other.dtype)
        return other

    def __repr__(self) -> str:
        return (
            f"Landscape({self.dimension:,} parameters, {len(self._batches.data):,} samples, "
            f"{self.device}, {str(self.dtype).removeprefix('torch.')})"
        )

    @property
    def space(self) -> ParameterSpace:
        """The layout of the coordinates."""
        return self._flat.space

    @property
    def dimension(self) -> int:
        """d, the number of coordinates."""
        return self._flat.space.dimension

    @property
    def device(self) -> torch.device:
        """Where the function is computed."""
        return self._flat.device

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type it is computed in."""
        return self._flat.dtype

    @property
    def data(self) -> Samples:
        """The samples; may be set, and holds for what is asked from then on.

        Raises:
            FedscapeError: the landscape is one of arbitrary batches (:meth:`of`).
        """
        if isinstance(self._batches.data, Batches):
            raise FedscapeError("this needs inputs and targets, and the landscape is of batches with an objective")
        return self._batches.data

    @data.setter
    def data(self, data: Samples) -> None:
        self._batches = MicroBatches(data.to(self.device), self.batch_size, self.dtype)

    @property
    def batch_size(self) -> int:
        """Samples per micro-batch; may be set."""
        return self._batches.size

    @batch_size.setter
    def batch_size(self, size: int) -> None:
        if size < 1:
            raise FedscapeError(f"the micro-batch size is {size}: it must be at least 1")
        self._batches.size = size

    def value(self, w: Tensor | None = None) -> float:
        """L(w); at ``weights`` unless a point is given."""
        return self.evaluate(w).loss

    def accuracy(self, w: Tensor | None = None) -> float:
        """The fraction of samples whose largest output is at the target class.

        Raises:
            FedscapeError: the targets are not class indices.
        """
        accuracy = self.evaluate(w).accuracy
        if accuracy is None:
            raise FedscapeError("accuracy needs integer class targets")
        return accuracy

    def evaluate(self, w: Tensor | None = None) -> Evaluation:
        """Loss and accuracy in one pass; sums are kept in float64."""
        data = self._batches.data
        targets = data.targets if isinstance(data, Samples) and not data.targets.is_floating_point() else None

        def over_portion() -> Tensor:
            sums = torch.zeros(2, dtype=torch.float64, device=self.device)
            for _, x, y, share in self._batches:
                outputs = self._batches.outputs(self._flat.module, x)
                sums[0] += share * self.loss(outputs, y).double()
                if targets is not None:
                    sums[1] += (outputs.argmax(dim=1) == y).sum()
            return sums

        with self._at(w), torch.no_grad():
            loss, correct = self._batches.sum(over_portion).tolist()
        return Evaluation(loss, None if targets is None else correct / targets.numel())

    def gradient(self, w: Tensor | None = None) -> Tensor:
        """∇L(w), [d]."""

        def over_portion() -> Tensor:
            total = torch.zeros_like(self.weights)
            for _, x, y, share in self._batches:
                total.add_(self._flat.gradient(self.loss(self._batches.outputs(self._flat.module, x), y)), alpha=share)
            return total

        with self._at(w), torch.enable_grad():
            return self._batches.sum(over_portion)

    def hvp(self, w: Tensor | None, v: Tensor) -> Tensor:
        """Hessian-vector products ∇²L(w) v.

        Args:
            w: the point, [d]; ``None`` is ``weights``.
            v: one vector [d], or k stacked ones [k, d], which share each micro-batch's graph.

        Returns:
            The products, in the shape of ``v``.
        """
        return self.hessian(w, graph_memory=0)(v)

    def hessian(self, w: Tensor | None = None, *, graph_memory: int | None = None) -> HessianProducts:
        """Hessian-vector products at one point, for many calls.

        Args:
            w: the point, [d]; ``None`` is ``weights``.
            graph_memory: bytes to spend on keeping gradients' graphs between calls, which saves about a third
                of each product; a quarter of the free memory unless given, 0 keeps none.
        """
        sharing = rank_and_world()[1] if self.device.type == "cpu" else 1
        memory = free_memory(self.device) // 4 // sharing if graph_memory is None else graph_memory
        return HessianProducts(self._flat, self.loss, self._batches, self.weights if w is None else w, memory)

    def gauss_newton(
        self, w: Tensor | None = None, kind: OutputCurvature = "ggn", *, seed: int = 0
    ) -> GaussNewtonProducts:
        """Products with the generalised Gauss-Newton matrix or a Fisher matrix at one point.

        Args:
            w: the point, [d]; ``None`` is ``weights``.
            kind: ``ggn``, ``empirical`` (Fisher) or ``mc`` (Monte-Carlo Fisher).
            seed: of the labels of ``mc``.

        Raises:
            FedscapeError: another kind, a landscape of arbitrary batches; in a product, ``mc`` of something that
                is no classifier.
        """
        if isinstance(self._batches.data, Batches):
            raise FedscapeError(
                "the Gauss-Newton and Fisher matrices need the model's outputs, which an objective of its own hides: "
                "take the Hessian, or give inputs, targets and a loss of the outputs"
            )
        return GaussNewtonProducts(self._flat, self.loss, self._batches, self.weights if w is None else w, kind, seed)

    @contextmanager
    def _at(self, w: Tensor | None) -> Iterator[None]:
        self._flat.load(self.weights if w is None else w)
        with reproducible_arithmetic():
            yield


def _itself(outputs: Tensor, _: Any) -> Tensor:
    """The loss where the outputs are an objective's value."""
    return outputs


def random_subset(data: Samples, count: int) -> Samples:
    """``count`` samples drawn without replacement, always the same ones of the same data.

    Raises:
        FedscapeError: there are fewer, or fewer than one is asked for.
    """
    if not 1 <= count <= len(data):
        raise FedscapeError(f"{count} samples are asked for: give a number from 1 to {len(data)}")
    order = torch.randperm(len(data), generator=torch_generator(0, "subset"))
    return data.subset(order[:count].sort().values)
