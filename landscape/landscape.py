"""The loss as a function on R^d: value, gradient, Hessian-vector products, accuracy."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from landscape.activations import MAN
from landscape.autograd.flat import FlatModule
from landscape.autograd.preconditions import require_function
from landscape.autograd.products import GaussNewtonProducts, HessianProducts, OutputCurvature
from landscape.batchnorm import BatchStatistics
from landscape.checkpoints.checkpoint import Checkpoint
from landscape.checkpoints.foreign import opened
from landscape.compute.devices import (
    TF32,
    free_memory,
    memory_size,
    reproducible_arithmetic,
    resolve_device,
    resolve_dtype,
)
from landscape.compute.distributed import rank_and_world
from landscape.compute.randomness import global_seed, torch_generator
from landscape.data.samples import Batches, MicroBatches, Objective, Samples, as_samples
from landscape.errors import FedscapeError
from landscape.evaluation import Evaluation, Evaluator, check_bf16
from landscape.space import ParameterSpace
from landscape.storage.digests import tensor_digest
from landscape.tasks import Loss, Task, loss_of

BATCH_SIZE = {"cpu": 256, "cuda": 1024}
"""Samples per micro-batch: small batches stay in a CPU's cache, a GPU wants large ones."""
_SMALL_IMAGE = 32 * 32


def micro_batch(device: torch.device, task: str, targets: Tensor) -> int:
    """How many samples are taken at once: for segmentation, whose images are large, as many pixels as usual."""
    size = BATCH_SIZE[device.type]
    return size if task == "classification" else max(1, size * _SMALL_IMAGE // targets[0].numel())


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
        loss: (outputs, targets) -> scalar mean over the batch; that of the task unless given.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: ``float32``, ``float64`` or ``tf32`` (float32 numbers, but faster products and convolutions with
            relative errors of about 1e-3; on CUDA only); the model's own unless given.
        batch_size: samples per micro-batch (256 on the CPU, 1024 on CUDA unless given); changes speed and
            memory, and results only by rounding.  Where the device's memory runs out it is halved, with a warning.
        penalty: ζ·L^act of the model's activations, added to the loss (:class:`landscape.activations.MAN`): value,
            gradient and Hessian are then those of the sum.
        stream: keep the samples in the host's memory and take each micro-batch to the device when its turn comes,
            which changes speed and memory only; unless given, where they would take more than half of the GPU memory
            that is free.  On the CPU it makes no difference.
        task: ``classification`` (cross-entropy) or ``segmentation``: outputs [n, classes, H, W], targets [n, H, W] with
            255 where there is no label, and :func:`landscape.tasks.pixel_cross_entropy`.

    Raises:
        FedscapeError: no trainable parameters, no samples, an unknown device, dtype or task, ``tf32`` on the CPU;
            later, a penalty of a model without activations, or what is no mean over samples
            (:mod:`landscape.autograd.preconditions`: sums and class weights in every quantity, batch statistics and
            random numbers in the derivatives).

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
        loss: Loss | None = None,
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype | None = None,
        batch_size: int | None = None,
        penalty: MAN | None = None,
        stream: bool | None = None,
        task: Task = "classification",
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise FedscapeError(f"the micro-batch size is {batch_size}: it must be at least 1")
        place = resolve_device(device)
        own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        tf32 = dtype == TF32
        if tf32 and place.type != "cuda":
            raise FedscapeError(f"tf32 is arithmetic of CUDA devices and this one is {place}: give float32 or float64")
        self._flat = FlatModule(model, place, torch.float32 if tf32 else resolve_dtype(dtype or own))
        self._flat.module.eval()
        self._stream, self.task = stream, task
        self._title: str | None = None
        if isinstance(data, Batches):
            self.loss: Loss = _itself
            self._batches = MicroBatches(data.to(place), 1, self._flat.dtype, tf32, penalty)
        else:
            self.loss = loss or loss_of(task)
            here = as_samples(data).placed(place, stream)
            size = batch_size or micro_batch(place, task, here.targets)
            self._batches = MicroBatches(here, size, self._flat.dtype, tf32, penalty)
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
        penalty: MAN | None = None,
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
            device, dtype, penalty: as in :class:`Landscape`.

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
        return cls(model, Batches(batches, objective, size), device=device, dtype=dtype, penalty=penalty)

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
        penalty: MAN | None = None,
        stream: bool | None = None,
    ) -> Landscape:
        """The landscape around a checkpoint, at the checkpoint's point (``.weights``, [d]).

        Args:
            path: a checkpoint file, one already loaded, or anybody's state dict (:mod:`landscape.checkpoints.foreign`).
            split: ``train`` or ``test``.
            clients: restrict the training data to those clients' (ids of the run's partition).
            samples: a random subset of that many samples, the same for every checkpoint of the same data.
            device, dtype, batch_size, penalty, stream: as in :class:`Landscape`.
            data_dir: where the data lie, if not where they lay when the checkpoint was trained.
            model, data: what a state dict is of; or a model or data set as ``package.module:callable``, needed
                where the checkpoint names one, because a file may not decide which code runs.

        Raises:
            FedscapeError: the file cannot be loaded or does not fit its model, the data are missing, an
                unknown split or client, more samples than there are.
        """
        checkpoint, dataset = opened(path, model, data, data_dir)
        module = checkpoint.build_model(model)
        if dataset is None:
            dataset = checkpoint.load_dataset(data_dir=data_dir, name=data)
        chosen = dataset.split(split)
        if clients is not None:
            if split != "train":
                raise FedscapeError("clients hold training data only: leave out clients, or take split 'train'")
            chosen = chosen.subset(checkpoint.client_indices(dataset, clients))
        if samples is not None:
            chosen = random_subset(chosen, samples)
        options: dict[str, Any] = {"batch_size": batch_size, "penalty": penalty, "stream": stream}
        around = cls(module, chosen, device=device, dtype=dtype, task=checkpoint.task_on(dataset), **options)
        around._title = checkpoint.title
        return around

    def to(self, dtype: str | torch.dtype) -> Landscape:
        """The same function at the same point, in another floating-point type."""
        other = self._like(self._flat.module, self._batches.data, dtype)
        other._title = self._title
        return other

    def over(self, data: Samples) -> Landscape:
        """The same loss at the same point, over other samples."""
        return self._like(self._flat.module, data, self.precision)

    def along(self, names: Collection[str], w: Tensor | None = None) -> Landscape:
        """The same function of the named parameters alone; the others stay what they are at a point.

        Its Hessian is the principal block of those coordinates, and products with it cost less: nothing is
        differentiated by what stays.

        Args:
            names: of parameter tensors that are coordinates.
            w: the point, [d]; ``weights`` unless given.
        """
        with self._at(w):
            module = copy.deepcopy(self._flat.module)
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name in names and parameter.requires_grad)
        return Landscape(module, self._batches.data, self.loss, **self._options(), dtype=self.precision)

    def _like(self, module: nn.Module, data: Samples | Batches, dtype: str | torch.dtype) -> Landscape:
        other = Landscape(module, data, self.loss, **self._options(), dtype=dtype)
        other.weights = self.weights.to(other.dtype)  # the module stands wherever it was last asked
        return other

    def _options(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "batch_size": self.batch_size,
            "penalty": self.penalty,
            "stream": self._stream,
            "task": self.task,
        }

    def __repr__(self) -> str:
        return f"Landscape({self.dimension:,} parameters, {self.samples:,} samples, {self.device}, {self.precision})"

    @property
    def title(self) -> str:
        """What it is, in a line: the checkpoint it is around, where it came from one."""
        return self._title or repr(self)

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
    def precision(self) -> str:
        """The arithmetic by name: ``float32``, ``float64`` or ``tf32``."""
        return TF32 if self._batches.tf32 else str(self.dtype).removeprefix("torch.")

    @property
    def samples(self) -> int:
        """n, how many samples the loss is a mean over (of batches with an objective: the sum of their sizes)."""
        return len(self._batches.data)

    @property
    def penalty(self) -> MAN | None:
        """What is added to the loss."""
        return self._batches.penalty

    def digest(self) -> str:
        """A fingerprint of the point, the data and the penalty, to tell landscapes of one model apart."""
        return f"{tensor_digest(self.weights)} {self._batches.data.digest()} {self.penalty}"

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
        here = data.placed(self.device, self._stream)
        self._batches = MicroBatches(here, self.batch_size, self.dtype, self._batches.tf32, self.penalty)

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

    def mean_iou(self, w: Tensor | None = None) -> float:
        """The mean intersection over union of a segmentation's classes, over all samples.

        Raises:
            FedscapeError: the task is another.
        """
        found = self.evaluate(w).mean_iou
        if found is None:
            raise FedscapeError(f"mIoU is of segmentation, and the task here is {self.task}")
        return found

    def evaluate(self, w: Tensor | None = None, *, stderr: bool = False) -> Evaluation:
        """Loss, accuracy and, of a segmentation, mIoU in one pass; sums are kept in float64.

        Args:
            w: the point, [d]; ``weights`` unless given.
            stderr: standard errors over the samples too: √(variance of the samples' losses / n).  A penalty takes no
                part in it, and of arbitrary batches (:meth:`of`) and a segmentation's accuracy there is none.
        """
        return Evaluator(self._flat, self.loss, self._batches, self.task)(
            self.weights if w is None else w, stderr=stderr
        )

    def evaluator(self, *, bf16: bool = False) -> Evaluator:
        """What evaluates many points faster than :meth:`evaluate`, on the data of now; see :class:`Evaluator`.

        Raises:
            FedscapeError: ``bf16`` of another precision than float32.
        """
        if bf16:
            check_bf16(self.precision)
        return Evaluator(self._flat, self.loss, self._batches, self.task, many=True, bf16=bf16)

    @property
    def batch_statistics(self) -> BatchStatistics:
        """The running statistics of the model's BatchNorm layers, which the function is computed with."""
        return BatchStatistics(self._flat.module)

    def estimate_batch_statistics(self, w: Tensor | None = None) -> Tensor:
        """BatchNorm's statistics over all samples at a point, [b], with which the function is computed from then on.

        Each layer's mean over micro-batches of nearly equal size, in training mode; Dropout, if any, draws the same
        numbers each time.
        """
        count = -(-len(self.data) // self.batch_size)
        bounds = [k * len(self.data) // count for k in range(count + 1)]
        inputs = (self.data.batch(slice(a, b), self.dtype)[0] for a, b in itertools.pairwise(bounds))
        with self._at(w), global_seed(0, "batch statistics"):
            return self.batch_statistics.estimate(inputs)

    def gradient(self, w: Tensor | None = None) -> Tensor:
        """∇L(w), [d]."""

        def over_portion() -> Tensor:
            require_function(self._flat, self.loss, self._batches)
            total = torch.zeros_like(self.weights)
            for _, x, y, share in self._batches:
                loss, _ = self._batches.scored(self._flat.module, self.loss, x, y)
                total.add_(self._flat.gradient(loss), alpha=share)
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

    def hessian(self, w: Tensor | None = None, *, graph_memory: int | str | None = None) -> HessianProducts:
        """Hessian-vector products at one point, for many calls.

        Args:
            w: the point, [d]; ``None`` is ``weights``.
            graph_memory: bytes (or a text such as ``500MB``) to spend on keeping gradients' graphs between calls,
                which saves about a third of each product; a quarter of the free memory unless given, 0 keeps none.

        Raises:
            FedscapeError: ``graph_memory`` is no amount of memory.
        """
        sharing = rank_and_world()[1] if self.device.type == "cpu" else 1
        memory = free_memory(self.device) // 4 // sharing if graph_memory is None else memory_size(graph_memory)
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
            FedscapeError: another kind, a landscape of arbitrary batches or with a penalty; in a product, ``mc``
                of something that is no classifier.
        """
        if self.penalty is not None:
            raise FedscapeError(
                "the Gauss-Newton and Fisher matrices are of a loss of the outputs, and MAN's penalty is one of the "
                "activations: take the Hessian, or leave out the penalty"
            )
        if isinstance(self._batches.data, Batches):
            raise FedscapeError(
                "the Gauss-Newton and Fisher matrices need the model's outputs, which an objective of its own hides: "
                "take the Hessian, or give inputs, targets and a loss of the outputs"
            )
        return GaussNewtonProducts(self._flat, self.loss, self._batches, self.weights if w is None else w, kind, seed)

    @contextmanager
    def _at(self, w: Tensor | None) -> Iterator[None]:
        self._flat.load(self.weights if w is None else w)
        with reproducible_arithmetic(self._batches.tf32):
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
