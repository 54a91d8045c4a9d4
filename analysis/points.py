"""What is measured at a point of a surface: loss and accuracy, of training and test data, with their errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor

from analysis.planes import Plane
from landscape import FedscapeError, Landscape

BatchNorm = Literal["frozen", "recalculated", "interpolated"]


class Points:
    """The quantities at the points of a plane.

    The loss is L(w) + MAN's penalty (the landscapes' own) + (c/2)‖w‖², with c = ``weight_decay`` over all parameters.
    BatchNorm's running statistics are

    * ``frozen``: the landscape's own at every point;
    * ``recalculated``: those of the first landscape's samples at each point, as Garipov et al. do;
    * ``interpolated``: means and variances of the models marked in the plane, in the shares that make up the point
      (a variance that would be negative outside of the models is 0): at each model its own.

    Args:
        landscapes: by split, such as ``train``; statistics are recalculated on the samples of the first.
        plane: where.
        batchnorm: one of the above; of a model without BatchNorm it changes nothing.
        weight_decay: c.
        statistics: of the models marked in the plane, [b] each; for ``interpolated``.

    Attributes:
        names: of the quantities: ``train_loss``, ``train_loss_stderr``, ``train_acc``, ``train_acc_stderr``, ...;
            accuracies in percent.

    Raises:
        FedscapeError: a weight decay that is negative, an unknown treatment of BatchNorm, or interpolation in a plane
            that no models span.
    """

    def __init__(
        self,
        landscapes: dict[str, Landscape],
        plane: Plane,
        *,
        batchnorm: BatchNorm = "frozen",
        weight_decay: float = 0.0,
        statistics: Sequence[Tensor] | None = None,
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
        self.names = []
        for split, landscape in landscapes.items():
            classes = not landscape.data.targets.is_floating_point()
            self.names += [f"{split}_loss", f"{split}_loss_stderr"]
            self.names += [f"{split}_acc", f"{split}_acc_stderr"] if classes else []

    @contextmanager
    def session(self) -> Iterator[None]:
        """Inside, points are measured; afterwards the landscapes have the BatchNorm statistics they had."""
        with ExitStack() as stack:
            for layers in self._layers:
                stack.enter_context(layers.untouched())
            yield

    def measure(self, x: float, y: float) -> dict[str, float]:
        """The quantities at (x, y), by name."""
        w = self._plane.point(x, y, out=self._w)
        self._set_statistics(x, y)
        decay = 0.5 * self._weight_decay * float(w.double().square().sum()) if self._weight_decay else 0.0
        found: dict[str, float] = {}
        for split, landscape in self._landscapes.items():
            result = landscape.evaluate(w, stderr=True)
            found[f"{split}_loss"] = result.loss + decay
            found[f"{split}_loss_stderr"] = _number(result.loss_stderr)
            if result.accuracy is not None:
                found[f"{split}_acc"] = 100 * result.accuracy
                found[f"{split}_acc_stderr"] = 100 * _number(result.accuracy_stderr)
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


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
