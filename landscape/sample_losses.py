"""The loss of each sample alone, of losses that are means over a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from landscape.tasks import Loss

_F = nn.functional
_BY_ELEMENT: dict[type[nn.Module], Loss] = {
    nn.MSELoss: _F.mse_loss,
    nn.L1Loss: _F.l1_loss,
    nn.SmoothL1Loss: _F.smooth_l1_loss,
    nn.HuberLoss: _F.huber_loss,
    nn.BCELoss: _F.binary_cross_entropy,
    nn.BCEWithLogitsLoss: _F.binary_cross_entropy_with_logits,
    nn.SoftMarginLoss: _F.soft_margin_loss,
    nn.PoissonNLLLoss: _F.poisson_nll_loss,
}
"""PyTorch's losses that are means over all numbers of the outputs, as modules and as functions."""
_BY_CLASS: dict[type[nn.Module], Loss] = {nn.CrossEntropyLoss: _F.cross_entropy, nn.NLLLoss: _F.nll_loss}
"""Those that are means over the targets: over samples, or over the pixels and the like of each."""


def sample_losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of each sample alone, [n], whose mean is the batch's loss.

    All at once for PyTorch's own losses, as modules, functions or ``functools.partial`` of functions, unless they have
    weights; any other is called for one sample after the other.
    """
    found = _unreduced(loss, outputs)
    if found is not None:
        each, by_class = found
        if by_class and not targets.is_floating_point():
            counted = (targets != _option(loss, "ignore_index", -100)).reshape(len(outputs), -1)
            # 0/0 where none counts, as of that sample alone.
            return each(outputs, targets).reshape(len(outputs), -1).sum(dim=1) / counted.sum(dim=1)
        if by_class or outputs.shape == targets.shape:  # other shapes would be broadcast over the samples
            return each(outputs, targets).reshape(len(outputs), -1).mean(dim=1)
    # No vmap: a loss may look at values, as to check its targets.
    return torch.stack([loss(outputs[i : i + 1], targets[i : i + 1]).detach() for i in range(len(outputs))])


def _unreduced(loss: Loss, outputs: Tensor) -> tuple[Loss, bool] | None:
    """One of PyTorch's losses with ``reduction="none"``, and whether it is a mean over targets; else ``None``."""
    if isinstance(loss, nn.Module):
        kind = type(loss)  # a subclass may compute anything
        if (kind not in _BY_ELEMENT and kind not in _BY_CLASS) or _option(loss, "reduction", "mean") != "mean":
            return None
        weights = list(loss.buffers())
        if weights and (kind in _BY_CLASS or any(w.dim() >= outputs.dim() for w in weights)):
            return None
        each = copy.copy(loss)
        vars(each)["reduction"] = "none"
        return each, kind in _BY_CLASS
    function: Callable[..., Tensor] = loss
    options: dict[str, Any] = {}
    if isinstance(loss, partial) and not loss.args:
        function, options = loss.func, loss.keywords
    plain = options.keys() <= {"label_smoothing", "ignore_index", "beta", "delta", "log_input", "full", "eps"}
    if not plain or not any(function is known for known in (*_BY_ELEMENT.values(), *_BY_CLASS.values())):
        return None
    return partial(function, **options, reduction="none"), any(function is known for known in _BY_CLASS.values())


def _option(loss: Loss, name: str, default: Any) -> Any:
    """A module's attribute, or what a ``functools.partial`` was given."""
    return loss.keywords.get(name, default) if isinstance(loss, partial) else getattr(loss, name, default)
