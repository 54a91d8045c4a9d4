"""Measuring a point of a surface: loss and accuracy, of training and test data, with their standard errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor

from analysis.hessian.spectrum.eigen import largest_eigenpairs
from analysis.hessian.spectrum.operators import Hessian
from analysis.surface.planes import Plane
from landscape import FedscapeError, Landscape
from landscape.compute.devices import TF32
from landscape.compute.regions import unit

BatchNorm = Literal["frozen", "recalculated", "interpolated"]

LAMBDA_TOLERANCE = 1e-2
"""Relative error of λ_max at a point: enough to read a surface of it.

At 12 points of a plane of ``digits_cnn`` (80 samples, λ_max from 9.6 to 203) the true ones, against float64 to 1e-8,
were 2.5e-4 at most.
"""


class Points:
    """The quantities at the points of a plane.

    The loss is L(w) + MAN's penalty (the landscapes' own) + (c/2)‖w‖², with c = ``weight_decay`` over all parameters.
    BatchNorm's running statistics are

    * ``frozen``: the landscape's own at every point;
    * ``recalculated``: those of the first landscape's samples at each point, as Garipov et al. do;
    * ``interpolated``: means and variances of the marked models, with the weights whose mean is the point, so that
      each model has its own (a variance that would be negative outside of the models is 0).

    Args:
        landscapes: by split, such as ``train``; statistics are recalculated on the samples of the first.
        plane: where the points lie.
        batchnorm: one of the above; of a model without BatchNorm it changes nothing.
        weight_decay: c.
        statistics: of the models marked in the plane, [b] each; for ``interpolated``.
        lambda_max: measure the Hessian's largest eigenvalue too, of the first landscape's loss and penalties, to a
            relative error bound of :data:`LAMBDA_TOLERANCE` (not a number where that is not reached), beside which the
            rounding of float32 products does not count; a point takes ten to fifty times as long then.
        bf16: products and convolutions in bfloat16 (:class:`landscape.evaluation.Evaluator`), of the losses and
            accuracies; λ_max stays in float32.

    Attributes:
        names: of the quantities: ``train_loss``, ``train_loss_stderr``, ``train_acc``, ``train_acc_stderr``, ...,
            ``train_lambda_max``; accuracies in percent.
        folded: how many BatchNorm layers are folded into the layers before them.

    Raises:
        FedscapeError: a weight decay that is negative, an unknown treatment of BatchNorm, interpolation in a plane
            that no models span, or ``bf16`` with another type than float32.
    """

    def __init__(
        self,
        landscapes: dict[str, Landscape],
        plane: Plane,
        *,
        batchnorm: BatchNorm = "frozen",
        weight_decay: float = 0.0,
        statistics: Sequence[Tensor] | None = None,
        lambda_max: bool = False,
        bf16: bool = False,
    ) -> None:
        if not 0 <= weight_decay < float("inf"):
            raise FedscapeError(f"the weight decay is {weight_decay}: give 0 or more")
        if batchnorm not in get_args(BatchNorm):
            raise FedscapeError(f"unknown treatment of BatchNorm '{batchnorm}': give {', '.join(get_args(BatchNorm))}")
        if batchnorm == "interpolated" and (statistics is None or plane.kind not in ("three", "line")):
            raise FedscapeError(
                "BatchNorm's statistics are interpolated between the checkpoints of a line or of three: "
                "take frozen or recalculated"
            )
        self._landscapes, self._plane, self._weight_decay = landscapes, plane, weight_decay
        self._layers = [landscape.batch_statistics for landscape in landscapes.values()]
        self.batchnorm = batchnorm if len(self._layers[0]) else "none"
        self._statistics = None if statistics is None else torch.stack(list(statistics)).double()
        self._w = torch.empty_like(plane.origin)
        self._evaluators = {name: landscape.evaluator(bf16=bf16) for name, landscape in landscapes.items()}
        self.folded = next(iter(self._evaluators.values())).folded
        self._lambda_max, self._rounded = lambda_max, bf16
        self.names = []
        for split, landscape in landscapes.items():
            self.names += [f"{split}_loss", f"{split}_loss_stderr"]
            self.names += [f"{split}_acc", f"{split}_acc_stderr"] if landscape.has_classes else []
        self.names += [f"{next(iter(landscapes))}_lambda_max"] if lambda_max else []

    @property
    def device(self) -> torch.device:
        """The device of the landscapes."""
        return self._w.device

    @property
    def rounded(self) -> bool:
        """Whether products are rounded to fewer digits than float32 has: bfloat16 or TF32."""
        return self._rounded or any(landscape.precision == TF32 for landscape in self._landscapes.values())

    @property
    def batch_sizes(self) -> dict[str, int]:
        """Samples per micro-batch, by split; may be set."""
        return {split: landscape.batch_size for split, landscape in self._landscapes.items()}

    @batch_sizes.setter
    def batch_sizes(self, sizes: Mapping[str, int]) -> None:
        for split, size in sizes.items():
            self._landscapes[split].batch_size = size

    def choose_batch_sizes(self, *, timed: bool = False) -> None:
        """Choose by the samples' shape (:meth:`landscape.evaluation.Evaluator.fit`), or by time (``tune`` there)."""
        for evaluator in self._evaluators.values():
            if timed:
                evaluator.tune()
            else:
                evaluator.fit()

    def keep(self) -> None:
        """Prepare what is kept between points; before processes are forked, so that they share it."""
        for evaluator in self._evaluators.values():
            evaluator.keep()

    def full(self) -> Points:
        """The same losses and accuracies in float32, and nothing else: to check rounded ones."""
        landscapes = {split: landscape.to("float32") for split, landscape in self._landscapes.items()}
        batchnorm = "frozen" if self.batchnorm == "none" else self.batchnorm
        return Points(
            landscapes,
            self._plane,
            batchnorm=batchnorm,
            weight_decay=self._weight_decay,
            statistics=None if self._statistics is None else list(self._statistics),
        )

    @contextmanager
    def session(self) -> Iterator[None]:
        """Inside, points are measured; afterwards the landscapes have their former BatchNorm statistics."""
        with ExitStack() as stack:
            for layers in self._layers:
                stack.enter_context(layers.untouched())
            yield

    def measure(self, x: float, y: float) -> dict[str, float]:
        """The quantities at (x, y), by name."""
        precision = "bf16" if self._rounded else next(iter(self._landscapes.values())).precision
        with unit("point", self.device, precision):
            return self._measure(x, y)

    def _measure(self, x: float, y: float) -> dict[str, float]:
        w = self._plane.point(x, y, out=self._w)
        self._set_statistics(x, y)
        decay = 0.5 * self._weight_decay * float(w.double().square().sum()) if self._weight_decay else 0.0
        found: dict[str, float] = {}
        for split, evaluator in self._evaluators.items():
            result = evaluator(w, stderr=True)
            found[f"{split}_loss"] = result.loss + decay
            found[f"{split}_loss_stderr"] = _number(result.loss_stderr)
            if result.accuracy is not None:
                found[f"{split}_acc"] = 100 * result.accuracy
                found[f"{split}_acc_stderr"] = 100 * _number(result.accuracy_stderr)
        if self._lambda_max:
            split, landscape = next(iter(self._landscapes.items()))
            found[f"{split}_lambda_max"] = _largest_eigenvalue(landscape, w) + self._weight_decay
        return found

    def _set_statistics(self, x: float, y: float) -> None:
        if self.batchnorm == "recalculated":
            statistics = next(iter(self._landscapes.values())).estimate_batch_statistics(self._w)
        elif self.batchnorm == "interpolated":
            assert self._statistics is not None
            statistics = torch.from_numpy(self._plane.shares(x, y)) @ self._statistics
            statistics = torch.where(self._layers[0].variances(), statistics.clamp_min(0), statistics)
        else:
            return
        for layers in self._layers:
            layers.load(statistics)


def _largest_eigenvalue(landscape: Landscape, w: Tensor) -> float:
    """The Hessian's largest eigenvalue at ``w``; not a number where the gradient is not finite, or the error bound does
    not fall below the tolerance: nobody would know of a value that is further off than the others."""
    if not landscape.gradient(w).isfinite().all():
        return float("nan")
    found = largest_eigenpairs(Hessian(landscape, w), 1, tolerance=LAMBDA_TOLERANCE)
    return float(found.values[0]) if found.converged.all() else float("nan")


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
