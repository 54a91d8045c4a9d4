"""What is known of PyTorch's own losses: the losses of single samples, and arithmetic in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from landscape.tasks import Loss, pixel_cross_entropy

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
"""PyTorch's losses that are means over all elements of the outputs, as modules and as functions."""
_BY_CLASS: dict[type[nn.Module], Loss] = {nn.CrossEntropyLoss: _F.cross_entropy, nn.NLLLoss: _F.nll_loss}
"""PyTorch's losses that are means over the targets: over samples, or over the pixels of each sample."""
_MODULES = {nn.KLDivLoss, nn.HingeEmbeddingLoss, nn.MultiLabelSoftMarginLoss, *_BY_ELEMENT, *_BY_CLASS}
_FUNCTIONS: tuple[Loss, ...] = (
    pixel_cross_entropy,
    _F.kl_div,
    _F.hinge_embedding_loss,
    _F.multilabel_soft_margin_loss,
    *_BY_ELEMENT.values(),
    *_BY_CLASS.values(),
)
"""Losses whose formula is the same in every floating-point type."""


def with_float64(loss: Loss, outputs: Tensor, targets: Any) -> tuple[Tensor, Any]:
    """The arguments of the loss: in float64 where the outputs are float32 and the loss is PyTorch's own or the task's.

    Near a minimum the derivative of cross-entropy by an output is softmax − 1, a difference of nearly equal numbers: at
    a loss of 1e-9 float32 leaves one digit of it.  The outputs themselves are as good as their own rounding, and the
    loss is a tiny part of the work.  Losses with tensors of their own, subclasses and other callables are left alone.

    Example:
        >>> import torch
        >>> from landscape.sample_losses import with_float64
        >>> outputs, targets = torch.tensor([[0.0, 18.0]]), torch.tensor([1])
        >>> cross_entropy = torch.nn.functional.cross_entropy
        >>> precise = cross_entropy(*with_float64(cross_entropy, outputs, targets))
        >>> cross_entropy(outputs, targets).item(), round(precise.item(), 12)
        (0.0, 1.523e-08)
    """
    if not isinstance(outputs, Tensor) or outputs.dtype != torch.float32 or not is_known(loss):
        return outputs, targets
    real = isinstance(targets, Tensor) and targets.is_floating_point()
    return outputs.double(), targets.double() if real else targets


def is_known(loss: Loss) -> bool:
    """Whether a loss is PyTorch's own or the task's, of one tensor of outputs, without tensors of its own."""
    if isinstance(loss, nn.Module):
        return type(loss) in _MODULES and not list(loss.buffers()) and not list(loss.parameters())
    function: Callable[..., Tensor] = loss
    if isinstance(loss, partial):
        if loss.args or any(isinstance(value, Tensor) for value in loss.keywords.values()):
            return False
        function = loss.func
    return any(function is known for known in _FUNCTIONS)


def sample_losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of each sample, [n]; their mean is the loss of the batch.

    PyTorch's own losses without weights (modules, functions, ``functools.partial`` of functions) are computed for all
    samples at once; any other loss is called for one sample after the other, without derivatives.

    Example:
        >>> import torch
        >>> from landscape.sample_losses import sample_losses
        >>> outputs, targets = torch.tensor([[1.0], [3.0]]), torch.zeros(2, 1)
        >>> sample_losses(torch.nn.functional.mse_loss, outputs, targets)
        tensor([1., 9.])
    """
    at_once = losses_at_once(loss, outputs, targets)
    if at_once is not None:
        return at_once
    # Not with vmap: a loss may read values, for example to check its targets.
    return torch.stack([loss(outputs[i : i + 1], targets[i : i + 1]).detach() for i in range(len(outputs))])


def losses_at_once(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor | None:
    """The loss of each sample, [n], with its derivatives; ``None`` of a loss that is called for each sample alone."""
    found = _unreduced(loss, outputs)
    if found is not None:
        each, by_class = found
        if by_class and not targets.is_floating_point():
            counted = (targets != _option(loss, "ignore_index", -100)).reshape(len(outputs), -1)
            # 0/0 where every target is ignored, as the loss of that sample alone.
            return each(outputs, targets).reshape(len(outputs), -1).sum(dim=1) / counted.sum(dim=1)
        if by_class or outputs.shape == targets.shape:  # broadcasting would mix samples
            return each(outputs, targets).reshape(len(outputs), -1).mean(dim=1)
    return None


def _unreduced(loss: Loss, outputs: Tensor) -> tuple[Loss, bool] | None:
    """The loss with ``reduction="none"`` and whether it is a mean over targets; ``None`` if it is not PyTorch's own."""
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
    """An option of a loss: an attribute of a module, or a keyword of a ``functools.partial``."""
    return loss.keywords.get(name, default) if isinstance(loss, partial) else getattr(loss, name, default)
