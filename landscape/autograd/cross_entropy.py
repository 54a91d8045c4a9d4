"""The cross-entropy of several models at once with its slopes by the outputs, written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from landscape.compute.devices import on_device


@dataclass(frozen=True)
class Aims:
    """What a mini-batch of each of S models should be taken for, with the weights of its samples in the mean loss.

    Attributes:
        slopes: −(share of the class) × (weight of the sample), [S, classes, n].
        weights: 1/n for each sample, or [S, 1, n] where they differ: 0 for samples that fill a batch up.
    """

    slopes: Tensor
    weights: float | Tensor

    @classmethod
    def of(
        cls,
        targets: Tensor,
        counts: Sequence[int],
        classes: int,
        dtype: torch.dtype,
        partners: Tensor | None = None,
        shares: Tensor | None = None,
    ) -> Aims:
        """Those of targets [S, n].

        Args:
            targets: class of each sample.
            counts: samples of each row that count, the first ones.
            classes: their number.
            dtype: of the outputs.
            partners: second targets of mixtures, [S, n].
            shares: of the first targets in the mixtures, [S].

        Example:
            >>> import torch
            >>> from landscape.autograd.cross_entropy import Aims
            >>> Aims.of(torch.tensor([[2, 0]]), [2], 3, torch.float32)
            Aims(slopes=tensor([[[ 0.0000, -0.5000],
                     [ 0.0000,  0.0000],
                     [-0.5000,  0.0000]]]), weights=0.5)
        """
        n, whole = targets.shape[-1], min(counts) == targets.shape[-1]
        if whole and partners is None:
            slopes = torch.zeros(len(targets), classes, n, dtype=dtype, device=targets.device)
            return cls(slopes.scatter_(1, targets[:, None], -1 / n), 1 / n)
        numbers = on_device(torch.tensor(counts, dtype=dtype), targets.device)[:, None]
        weights = ((torch.arange(n, device=targets.device) < numbers) / numbers)[:, None]
        slopes = weights.new_zeros(len(targets), classes, n)
        first = weights if partners is None or shares is None else shares[:, None, None] * weights
        slopes.scatter_add_(1, targets[:, None], first)
        if partners is not None:
            slopes.scatter_add_(1, partners[:, None], weights - first)
        return cls(slopes.neg_(), 1 / n if whole else weights)

    def take(self, rows: list[int], count: int) -> Aims:
        """Some rows, which all have ``count`` samples."""
        return Aims(self.slopes[rows, :, :count], 1 / count)


def cross_entropies(logits: Tensor, aims: Aims) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy of each model, and its slopes by the logits: softmax less the targets, weighted.

    Args:
        logits: [S, classes, n].
        aims: of the samples.

    Returns:
        The losses [S], and the slopes [S, classes, n].

    Example:
        >>> import torch
        >>> from landscape.autograd.cross_entropy import Aims, cross_entropies
        >>> aims = Aims.of(torch.tensor([[0, 1, 1]]), [2], 2, torch.float32)
        >>> cross_entropies(torch.zeros(1, 2, 3), aims)  # log 2, and (½ − 1)/2 and ½/2; the third does not count
        (tensor([0.6931]), tensor([[[-0.2500,  0.2500,  0.0000],
                 [ 0.2500, -0.2500,  0.0000]]]))
    """
    # Over the middle axis: over a last one of few classes PyTorch's softmax takes fifteen times as long on a CPU.
    logs = torch.log_softmax(logits, dim=1)
    losses = (logs * aims.slopes).sum(dim=(1, 2))
    if isinstance(aims.weights, float):
        return losses, torch.add(aims.slopes, logs.exp_(), alpha=aims.weights)
    return losses, torch.addcmul(aims.slopes, logs.exp_(), aims.weights)
