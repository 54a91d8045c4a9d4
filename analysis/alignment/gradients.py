"""How the gradients of the clients lie to one another and to that of the federation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from analysis.alignment.plain import Plain
from landscape import FedscapeError

_PIECE = 2**16
"""Coordinates summed in float64 at a time: this takes little memory."""


@dataclass(frozen=True)
class Gradients(Plain):
    """The gradients of n clients at one point; exact over all of their data, but for rounding.

    Attributes:
        losses: f_i(w), [n].
        loss: f(w).
        accuracies: of each client, [n]; NaN for targets that are no classes.
        accuracy: Σ p_i a_i.
        norms: ‖∇f_i‖, [n].
        norm: ‖∇f‖.
        cosines: cos(∇f_i, ∇f_j), [n, n]; NaN for a client whose gradient is 0.
        with_global: cos(∇f_i, ∇f), [n].
        along_global: the share of ‖∇f_i‖² along ∇f: (∇f_iᵀ∇f)²/(‖∇f_i‖²‖∇f‖²), the square of that cosine, [n].
    """

    letters: ClassVar[dict[str, str]] = {
        "losses": "n",
        "accuracies": "n",
        "norms": "n",
        "cosines": "nn",
        "with_global": "n",
        "along_global": "n",
    }

    losses: np.ndarray
    loss: float
    accuracies: np.ndarray
    accuracy: float
    norms: np.ndarray
    norm: float
    cosines: np.ndarray
    with_global: np.ndarray
    along_global: np.ndarray


def compare_gradients(
    each: Tensor,
    total: Tensor,
    losses: tuple[np.ndarray, float],
    accuracies: tuple[np.ndarray, float],
) -> Gradients:
    """Norms and cosines of gradients.

    Args:
        each: ∇f_i, [n, d].
        total: ∇f, [d].
        losses, accuracies: of the clients, [n], and of f.

    Raises:
        FedscapeError: a gradient that is not finite.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from analysis.alignment.gradients import compare_gradients
        >>> none = np.zeros(2), 0.0
        >>> found = compare_gradients(torch.tensor([[3.0, 0.0], [0.0, 4.0]]), torch.tensor([1.5, 2.0]), none, none)
        >>> found.norms.tolist(), found.cosines[0, 1].item(), np.round(found.along_global, 2).tolist()
        ([3.0, 4.0], 0.0, [0.36, 0.64])
    """
    rows = torch.cat([each, total[None]])
    if not bool(rows.isfinite().all()):
        raise FedscapeError("a gradient at the model is not finite: there is nothing to compare")
    gram = products_of(rows, rows)
    norms = np.sqrt(np.diag(gram))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.clip(gram / np.outer(norms, norms), -1.0, 1.0)
    n = len(each)
    where = np.arange(n)
    cosines[where, where] = np.where(norms[:n] > 0, 1.0, np.nan)
    towards = cosines[:n, n]
    return Gradients(
        losses=losses[0],
        loss=losses[1],
        accuracies=accuracies[0],
        accuracy=accuracies[1],
        norms=norms[:n],
        norm=float(norms[n]),
        cosines=cosines[:n, :n],
        with_global=towards,
        along_global=towards**2,
    )


def products_of(a: Tensor, b: Tensor) -> np.ndarray:
    """A Bᵀ of rows [m, d] and [n, d] in float64, [m, n]."""
    total = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    for x, y in zip(a.split(_PIECE, dim=1), b.split(_PIECE, dim=1), strict=True):
        total += x.double() @ y.double().T
    return total.cpu().numpy()
