"""The loss as a function on R^d: value, gradient, Hessian-vector products, accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from landscape.checkpoint import Checkpoint
from landscape.devices import free_memory, reproducible_arithmetic, resolve_device, resolve_dtype
from landscape.errors import FedscapeError
from landscape.flat import FlatModule
from landscape.foreign import open_checkpoint
from landscape.products import GaussNewtonProducts, HessianProducts, OutputCurvature
from landscape.randomness import torch_generator
from landscape.samples import Samples, as_samples
from landscape.space import ParameterSpace

Loss = Callable[[Tensor, Tensor], Tensor]

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

    Args:
        model: any module; its trainable parameters are the coordinates.
        data: ``Samples`` or a pair of tensors (inputs, targets).
        loss: (outputs, targets) -> scalar mean over the batch; cross-entropy unless given.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: ``float32`` or ``float64``; the model's own unless given.
        batch_size: samples per micro-batch (256 on the CPU, 1024 on CUDA unless given); changes speed and
            memory, and results only by rounding.

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
        data: Samples | tuple[Tensor, Tensor],
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
        self.loss = loss
        self.data = as_samples(data).to(place)
        self.batch_size = batch_size or BATCH_SIZE[place.type]
        self.weights = self._flat.buffer.clone()
        """The point the model came with, [d]."""

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
            self._flat.module, self.data, self.loss, device=self.device, dtype=dtype, batch_size=self.batch_size
        )
        other.weights = self.weights.to(other.dtype)
        return other

    def __repr__(self) -> str:
        return (
            f"Landscape({self.dimension:,} parameters, {len(self.data):,} samples, "
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
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        classes = not self.data.targets.is_floating_point()
        with self._at(w), torch.no_grad():
            for x, y, share in self._batches():
                outputs = self._flat.module(x)
                loss += share * self.loss(outputs, y).double()
                if classes:
                    correct += (outputs.argmax(dim=1) == y).sum()
        return Evaluation(loss.item(), correct.item() / self.data.targets.numel() if classes else None)

    def gradient(self, w: Tensor | None = None) -> Tensor:
        """∇L(w), [d]."""
        total = torch.zeros_like(self.weights)
        with self._at(w), torch.enable_grad():
            for x, y, share in self._batches():
                total.add_(self._flat.gradient(self.loss(self._flat.module(x), y)), alpha=share)
        return total

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
        memory = free_memory(self.device) // 4 if graph_memory is None else graph_memory
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
            FedscapeError: another kind; in a product, ``mc`` of something that is no classifier.
        """
        return GaussNewtonProducts(self._flat, self.loss, self._batches, self.weights if w is None else w, kind, seed)

    @contextmanager
    def _at(self, w: Tensor | None) -> Iterator[None]:
        self._flat.load(self.weights if w is None else w)
        with reproducible_arithmetic():
            yield

    def _batches(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        return self.data.batches(self.batch_size, self.dtype)


def random_subset(data: Samples, count: int) -> Samples:
    """``count`` samples drawn without replacement, always the same ones of the same data.

    Raises:
        FedscapeError: there are fewer, or fewer than one is asked for.
    """
    if not 1 <= count <= len(data):
        raise FedscapeError(f"{count} samples are asked for: give a number from 1 to {len(data)}")
    order = torch.randperm(len(data), generator=torch_generator(0, "subset"))
    return data.subset(order[:count].sort().values)
