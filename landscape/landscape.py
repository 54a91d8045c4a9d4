"""The loss as a function on R^d: value, gradient, Hessian-vector products, accuracy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from landscape.activations import MAN
from landscape.autograd.preconditions import require_function
from landscape.autograd.products import GaussNewtonProducts, HessianProducts, OutputCurvature
from landscape.autograd.recorded import RecordedProducts
from landscape.autograd.side_by_side import ProductsSideBySide
from landscape.checkpoints.checkpoint import Checkpoint
from landscape.checkpoints.opening import open_for_measurement
from landscape.compute.graphs import CudaGraph
from landscape.compute.randomness import global_seed
from landscape.data.batches import Batches, Objective
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.evaluation import Evaluation, Evaluator, check_bf16
from landscape.problem import Problem


class Landscape(Problem):
    """L(w) = (1/n) Σ loss(model_w(x_i), y_i) over a whole data set, as a function of w in R^d.

    Every quantity is the exact mean over all samples, computed in micro-batches weighted by their size, with the model
    in evaluation mode.  The model is copied: the one handed in is never changed.

    Where a ``torch.distributed`` process group is initialised, each rank works on its portion of the samples and
    every quantity is summed over the ranks.  All ranks must then make the same calls, with the whole data set, the same
    points and the same vectors on each.

    Args:
        model: any module; its trainable parameters are the coordinates.
        data: ``Samples``; a pair of tensors (inputs, targets); a ``DataLoader``, a ``torch.utils.data.Dataset`` or a
            list of batches, read once into memory: pairs (inputs, targets), or dictionaries of the model's arguments as
            Hugging Face has them, with ``labels``.  Integer inputs (tokens) stay integers.  What cannot be joined
            into one tensor is measured batch by batch as by :meth:`of`, which serves everything else, too
            (:func:`landscape.data.anything.as_data`).
        loss: (outputs, targets) -> scalar mean over the batch; unless given that of the task, or of dictionaries the
            model's own.  PyTorch's losses take the ``logits`` of outputs that hold them, as a ``ModelOutput`` does;
            a loss of your own gets what the model gives.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: ``float32``, ``float64`` or ``tf32`` (float32 numbers, but faster products and convolutions with
            relative errors of about 1e-3; on CUDA only); the model's own unless given.  In float32 the loss alone is
            computed in float64 from the model's outputs, where it is the task's or one of PyTorch's.
        batch_size: samples per micro-batch; unless given, on the CPU by the memory that one takes, on CUDA 1024
            (:func:`landscape.data.micro_batches.micro_batch_size`); changes speed and memory, and results only by
            rounding.  Where the device's memory runs out it is halved, with a warning.
        penalty: ζ·L^act of the model's activations, added to the loss (:class:`landscape.activations.MAN`): value,
            gradient and Hessian are then those of the sum.
        stream: keep the samples in the host's memory and copy each micro-batch to the device when it is needed, which
            changes speed and memory only; unless given, where they would take more than half of the GPU memory
            that is free.  On the CPU it makes no difference.
        task: ``classification`` (cross-entropy) or ``segmentation``: outputs [n, classes, H, W], targets [n, H, W] with
            255 where there is no label, and :func:`landscape.tasks.pixel_cross_entropy`.

    Attributes:
        weights: the parameters that the model had at construction, [d].

    Raises:
        FedscapeError: no trainable parameters, no samples, data of an unknown kind, floating-point targets without a
            loss, an unknown device, dtype or task, ``tf32`` on the CPU;
            later, a penalty of a model without activations, or a loss that is not a mean over samples
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

        Value, gradient and Hessian are computed as for other landscapes.  Accuracy is ``None``, and there is no
        Gauss-Newton matrix, because the outputs are unknown.  The batches are divided among ranks.  A batch too large
        for the device's memory raises an error.

        Args:
            model: any module; the objective must use the copy it is given.
            batches: can be iterated again and again, always the same in the same order: a list, a
                ``DataLoader`` that does not shuffle.  A batch is a tensor, or a mapping, tuple or list of tensors; it
                is moved to the device, and floating-point tensors in it to the dtype.
            objective: (module, batch) -> the scalar mean over the batch.
            size: batch -> its weight in the mean, such as the number of tokens that are not masked; the length of
                the first tensor in it unless given.
            device, dtype, penalty: as in :class:`Landscape`.

        Raises:
            FedscapeError: as :class:`Landscape`; the batches can be iterated only once, or a size is negative
                or unknown; later, the batches have changed or the objective is not a scalar.

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
        normalise: str | None = None,
        key: str | None = None,
        loader: str | None = None,
        batch_size: int | None = None,
        penalty: MAN | None = None,
        stream: bool | None = None,
    ) -> Landscape:
        """The landscape around a checkpoint, with the checkpoint's parameters as ``weights``, [d].

        Args:
            path: a checkpoint file, a run directory for its ``ckpt.pt``, a loaded checkpoint, or any state dict
                (:mod:`landscape.checkpoints.foreign`).  ``FILE@ID`` is the local model of client ID that the
                checkpoint holds (of a training run with ``--save-clients``), on the data of all clients unless
                ``clients`` says otherwise.
            split: ``train`` or ``test``.
            clients: restrict the training data to those of these clients (ids of the run's partition).
            samples: a random subset of that many samples, the same for every checkpoint of the same data.
            device, dtype, batch_size, penalty, stream: as in :class:`Landscape`.
            data_dir: the folder of the data, if not the one of the training run.
            model, data: the model and data set of a state dict; or a model or data set as
                ``package.module:callable``, needed where the checkpoint names one, because a file may not decide
                which code runs.
            normalise: what the inputs are normalised by, if not by what the checkpoint records, or for a state dict by
                the statistics of the data set: ``cifar10`` and others, ``MEAN,.../STD,...``, ``none`` or ``data``
                (:func:`landscape.data.normalisation.normalised`).
            key: the name under which a file holds the state dict, if not one of the usual ones.
            loader: a pipeline of yours in place of ``data``, as ``package.module:callable``; it is called with
                ``split=`` and gives batches (inputs, targets) (:func:`landscape.data.loaders.loaded`).

        Raises:
            FedscapeError: the file cannot be loaded or does not fit its model, the data are missing, an
                unknown split or client, a client without a local model in the file, more samples than there are.
        """
        named: dict[str, Any] = {"data_dir": data_dir, "model": model, "data": data}
        named |= {"normalise": normalise, "key": key, "loader": loader}
        found = open_for_measurement(path, split, clients, samples, **named)
        options: dict[str, Any] = {"batch_size": batch_size, "penalty": penalty, "stream": stream}
        around = cls(found.model, found.data, device=device, dtype=dtype, task=found.task, **options)
        around._title = found.title
        return around

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
            FedscapeError: the task is not segmentation.
        """
        found = self.evaluate(w).mean_iou
        if found is None:
            raise FedscapeError(f"mIoU is of segmentation, and the task here is {self.task}")
        return found

    def evaluate(self, w: Tensor | None = None, *, stderr: bool = False) -> Evaluation:
        """Loss, accuracy and, for segmentation, mIoU in one pass; sums are kept in float64.

        Args:
            w: the point, [d]; ``weights`` unless given.
            stderr: also compute standard errors over the samples: √(variance of the samples' losses / n).  They do not
                include a penalty, and there is none for arbitrary batches (:meth:`of`) and for the accuracy of a
                segmentation.
        """
        evaluator = Evaluator(self._flat, self.loss, self._batches, self.task)
        return evaluator(self.weights if w is None else w, stderr=stderr)

    def evaluator(self, *, bf16: bool = False) -> Evaluator:
        """An :class:`Evaluator` of the present data, faster than :meth:`evaluate` for many points.

        Raises:
            FedscapeError: ``bf16`` with a precision other than float32.
        """
        if bf16:
            check_bf16(self.precision)
        return Evaluator(self._flat, self.loss, self._batches, self.task, many=True, bf16=bf16)

    def gradient(self, w: Tensor | None = None) -> Tensor:
        """∇L(w), [d]."""
        with self.at(w) as module, torch.enable_grad():

            def over_portion() -> Tensor:
                require_function(self._flat, self.loss, self._batches)
                total = torch.zeros_like(self.weights)
                for _, x, y, share in self._batches:
                    loss, _ = self._batches.scored(module, self.loss, x, y)
                    total.add_(self._flat.gradient(loss), alpha=share)
                return total

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

    def hessian(
        self, w: Tensor | None = None, *, graph_memory: int | str | None = None, recorded: bool = False
    ) -> HessianProducts:
        """Hessian-vector products at one point, for many calls.

        Args:
            w: the point, [d]; ``None`` is ``weights``.
            graph_memory: bytes (or a text such as ``500MB``) to spend on keeping gradients' graphs between calls,
                which saves about a third of each product; a quarter of the free memory unless given, 0 keeps none.
            recorded: replay passes as CUDA graphs, without kept graphs of gradients
                (:class:`landscape.autograd.recorded.RecordedProducts`); not run on a GPU yet.

        Raises:
            FedscapeError: ``graph_memory`` is not an amount of memory; ``recorded`` on another device than CUDA.
        """
        at = self.weights if w is None else w
        if not recorded:
            return HessianProducts(self._flat, self.loss, self._batches, at, graph_memory)
        if self.device.type != "cuda":
            raise FedscapeError(f"products are recorded as CUDA graphs, and this landscape is on {self.device}")
        record = partial(CudaGraph, device=self.device)
        return RecordedProducts(self._flat, self.loss, self._batches, at, record)

    def hessians_with(self, others: Sequence[Landscape], w: Tensor) -> ProductsSideBySide | None:
        """Products with this Hessian and those of subsets of the same data at one point, all at once.

        ``None`` where that gains nothing (:meth:`landscape.autograd.side_by_side.ProductsSideBySide.pays`).  Each rank
        of a process group computes them over all samples.

        Args:
            others: as :meth:`subset` gives them of the landscape that this one is a subset of, too.
            w: the point, [d].

        Raises:
            FedscapeError: the loss is not a function of the parameters, or not a mean over samples.
        """
        batches = [self._batches, *(other._batches for other in others)]
        if not ProductsSideBySide.pays(self._flat, batches):
            return None
        return ProductsSideBySide(self._flat, self.loss, batches, w)

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
                of a model that is not a classifier.
        """
        return GaussNewtonProducts(self._flat, self.loss, self._batches, self.weights if w is None else w, kind, seed)

    def estimate_batch_statistics(self, w: Tensor | None = None) -> Tensor:
        """Set BatchNorm's statistics to those of all samples at a point, [b]; later evaluations use them.

        Each layer's mean over micro-batches of nearly equal size, in training mode; it depends on ``batch_size``.
        Dropout, if any, draws the same numbers each time.
        """
        data = self._batches.data
        with self.at(w), global_seed(0, "batch statistics"):
            if isinstance(data, Batches):
                batches = (batch for _, batch, _, _ in self._batches.of_all_ranks())
                return self.batch_statistics.estimate(batches, data.objective)
            return self.batch_statistics.estimate(data.even_inputs(self.batch_size, self.dtype))

    def to(self, dtype: str | torch.dtype) -> Landscape:
        """The same function at the same point, in another floating-point type.

        Micro-batches whose size was not given have no more samples than suit that type's memory.
        """
        other = self._rebuilt(self._flat.module, self._batches.data, dtype)
        if other._place.batch_size is None:
            suits = other._placed(other._place, self._batches.data, self.penalty).size
            other._batches.size = min(self.batch_size, suits)
        other.weights, other._title = self.weights.to(other.dtype), self._title
        return other

    def over(self, data: Samples | Batches) -> Landscape:
        """The same loss at the same point, over other samples, or other batches of the same objective."""
        other = self._rebuilt(self._flat.module, data, self.precision)
        other.weights = self.weights.to(other.dtype)
        return other

    def subset(self, indices: Tensor) -> Landscape:
        """The same loss at the same point, over the samples (of :meth:`of`, the batches) at these positions.

        Whoever puts losses of subsets together by their sizes asks :meth:`require_samples` first.
        """
        data = self._batches.data
        other = self.over(data.subset(indices.tolist()) if isinstance(data, Batches) else data.subset(indices))
        other._title = self._title
        return other

    def require_samples(self) -> None:
        """Check that the losses of subsets, weighted by their numbers of samples, are that of all of them together.

        Where all samples are in one micro-batch, any loss of that batch is taken as it is, class weights too; but then
        it is none of a mean over parts of the samples.

        Raises:
            FedscapeError: the loss is no mean over samples (a sum, class weights, ignored targets), or the outputs for
                a sample depend on others.
        """
        require_function(self._flat, self.loss, self._batches, each=True)

    def along(self, names: Collection[str], w: Tensor | None = None) -> Landscape:
        """The same function of the named parameters alone; the other parameters are constants, as they are at a point.

        Its Hessian is the principal block of those coordinates, and products with it cost less, because no derivative
        by the constants is computed.

        Args:
            names: of parameter tensors that are coordinates.
            w: the point, [d]; ``weights`` unless given.
        """
        module = self.model(w)
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name in names and parameter.requires_grad)
        return self._rebuilt(module, self._batches.data, self.precision)

    def _rebuilt(self, module: nn.Module, data: Samples | Batches, dtype: str | torch.dtype) -> Landscape:
        options: dict[str, Any] = {"device": self.device, "batch_size": self.batch_size, "penalty": self.penalty}
        other = Landscape(module, data, self.loss, **options, dtype=dtype, stream=self._place.stream, task=self.task)
        other._place = replace(other._place, batch_size=self._place.batch_size)  # given or not, as here
        return other
