"""The ascent part: where the gradient of a local step is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol

import torch
from torch import Tensor

from landscape.errors import FedscapeError
from landscape.space import ParameterSpace
from trainers.parts.vectors import unit


class Ascent(Protocol):
    """Replaces the gradient at ``w`` by one that looks uphill first, on the same mini-batch."""

    def gradient(self, w: Tensor, gradient: Callable[[Tensor], Tensor], space: ParameterSpace) -> Tensor:
        """The gradient to descend along, [..., d]."""
        ...


def _require(condition: bool, part: SAM | ASAM | GSAM, rule: str) -> None:
    if not condition:
        values = ", ".join(f"{name}={value}" for name, value in asdict(part).items())
        raise FedscapeError(f"{type(part).__name__} needs {rule}, not {values}")


@dataclass(frozen=True)
class SAM:
    """∇f(w + ε), ε = ρ g/‖g‖ with g = ∇f(w) (Foret et al., ICLR 2021, eq. 2; Qu et al., ICML 2022, eq. 4)."""

    rho: float = 0.05
    """ρ, radius of the ascent step"""

    def __post_init__(self) -> None:
        _require(self.rho >= 0, self, "a radius ρ of 0 or more")

    def gradient(self, w: Tensor, gradient: Callable[[Tensor], Tensor], space: ParameterSpace) -> Tensor:
        """The gradient at the perturbed point; one norm over all parameters."""
        return gradient(w + self.rho * unit(gradient(w)))


@dataclass(frozen=True)
class ASAM:
    """∇f(w + ε), ε = ρ T²g/‖Tg‖, T = |w| + η (Kwon et al., ICML 2021, eq. 9 and Algorithm 1).

    T is |w| + η on weights and normalisation scales and 1 on biases, as in the authors' code.
    """

    rho: float = 0.7
    """ρ, radius of the ascent step"""
    eta: float = 0.2
    """η, added to |w| in ASAM's scaling"""

    def __post_init__(self) -> None:
        _require(self.rho >= 0 and self.eta >= 0, self, "ρ and η of 0 or more")

    def gradient(self, w: Tensor, gradient: Callable[[Tensor], Tensor], space: ParameterSpace) -> Tensor:
        """The gradient at the perturbed point; one norm over all parameters."""
        adaptive = space.mask("weight", "scale", device=w.device)
        t = torch.where(adaptive, w.abs() + self.eta, torch.ones_like(w))
        return gradient(w + self.rho * t * unit(t * gradient(w)))


@dataclass(frozen=True)
class GSAM:
    """g_p − α g_⊥: g_p = ∇f(w + ρ g/‖g‖) is SAM's gradient, g_⊥ the part of g = ∇f(w) orthogonal to g_p.

    Descending along g_p lowers the worst loss nearby; ascending along g_⊥ does not change it to first order and
    closes the surrogate gap, the worst loss minus f(w) (Zhuang et al., ICLR 2022, Algorithm 1).  ρ stays the same:
    the authors let it fall with the learning rate.
    """

    rho: float = 0.05
    """ρ, radius of the ascent step"""
    alpha: float = 0.2
    """α, weight of GSAM's ascent across SAM's gradient"""

    def __post_init__(self) -> None:
        _require(self.rho >= 0 and self.alpha >= 0, self, "ρ and α of 0 or more")

    def gradient(self, w: Tensor, gradient: Callable[[Tensor], Tensor], space: ParameterSpace) -> Tensor:
        """The corrected gradient; one norm and one inner product over all parameters."""
        g = gradient(w)
        worst = gradient(w + self.rho * unit(g))
        along = unit(worst)
        across = g - (g * along).sum(dim=-1, keepdim=True) * along
        return worst - self.alpha * across
