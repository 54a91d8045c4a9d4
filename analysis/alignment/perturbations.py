"""What the ascent step of one client does to the loss of the others and to that of the federation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from analysis.alignment.federation import Federation
from analysis.alignment.options import Asked
from analysis.alignment.plain import Plain
from analysis.alignment.sampling import influence_stderr
from landscape import ParameterSpace


@dataclass(frozen=True)
class Perturbations(Plain):
    """The clients' ascent steps ε_i = ε(∇f_i(w)) at one point; n clients, p̃_i their weights among themselves.

    Values are exact over all data; differences of two losses have the rounding of both.

    Attributes:
        gains: G_ij = f_j(w + ε_i) − f_j(w), [n, n]: a row is one client's step, the diagonal each one's own gain.
        global_gains: f(w + ε_i) − f(w), [n]: what a client's step does to everybody.
        worst: f(w + ε) − f(w), ε = ε(∇f(w)): one ascent step of the whole federation.
        mean_gain: f(w + ε̄) − f(w), ε̄ = Σ p̃_i ε_i.
        found: mean_gain / worst, how much of the federation's own step the clients' mean step finds; NaN unless
            worst > 0.
        found_stderr: its standard error where not all clients were measured, to first order in the clients' shares.
        lengthened_found: the same with ε̄ lengthened to the radius ρ: what is missing by direction alone.
        mean_length: ‖ε̄‖/ρ (asam: ‖T⁻¹ε̄‖/ρ), 1 where all clients ascend alike.
        rounding: about how far a gain is off by the rounding of losses.
    """

    letters: ClassVar[dict[str, str]] = {"gains": "nn", "global_gains": "n"}

    gains: np.ndarray
    global_gains: np.ndarray
    worst: float
    mean_gain: float
    found: float
    found_stderr: float
    lengthened_found: float
    mean_length: float
    rounding: float


def ascent_scale(asked: Asked, w: Tensor, space: ParameterSpace) -> Tensor:
    """The diagonal T of an ascent step, [d]: 1 (sam), or |w| + η on weights and scales and 1 on biases (asam)."""
    if asked.ascent == "sam":
        return torch.ones_like(w)
    adaptive = space.mask("weight", "scale", device=w.device)
    return torch.where(adaptive, w.abs() + asked.eta, torch.ones_like(w))


def ascent_step(gradient: Tensor, scale: Tensor, rho: float) -> Tensor:
    """ε = ρ T²g/‖Tg‖ (Foret et al., ICLR 2021, eq. 2, for T = 1; Kwon et al., ICML 2021, eq. 9); 0 where g is 0.

    Args:
        gradient: g, [..., d].
        scale: the diagonal of T, [d].
        rho: ρ.

    Example:
        >>> import torch
        >>> from analysis.alignment.perturbations import ascent_step
        >>> ascent_step(torch.tensor([3.0, 4.0]), torch.ones(2), rho=0.5)
        tensor([0.3000, 0.4000])
    """
    scaled = scale * gradient
    norms = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True, dtype=torch.float64)
    unit = torch.where(norms > 0, scaled / norms.clamp_min(torch.finfo(torch.float64).tiny), torch.zeros_like(norms))
    return (rho * scale * unit).to(gradient)


def cross_gains(
    federation: Federation,
    w: Tensor,
    each: Tensor,
    total: Tensor,
    asked: Asked,
    told: Callable[[int], None] = lambda done: None,
) -> Perturbations:
    """Measure the ascent steps of the measured clients at w; n + 4 evaluations of everybody's data, and a gradient.

    Args:
        federation: f and its clients.
        w: the point, [d].
        each, total: ∇f_i, [n, d], and ∇f, [d], there.
        asked: the ascent step.
        told: called with the number of evaluations done.
    """
    scale = ascent_scale(asked, w, federation.whole.space)
    here, loss = federation.values(w)
    steps = ascent_step(each, scale, asked.rho)
    gains, global_gains = np.empty((len(each), len(each))), np.empty(len(each))
    for i, step in enumerate(steps):
        there, high = federation.values(w + step)
        gains[i], global_gains[i] = there - here, high - loss
        told(i + 1)
    shares = torch.from_numpy(federation.shares).to(steps)
    mean = shares @ steps
    worst = _rise(federation, w + ascent_step(total, scale, asked.rho), loss)
    mean_gain = _rise(federation, w + mean, loss)
    round_mean = torch.where(scale > 0, mean / scale, torch.zeros_like(mean))  # where T is 0 (asam, η = 0) so is ε̄
    length = float(torch.linalg.vector_norm(round_mean, dtype=torch.float64)) / asked.rho
    longer = _rise(federation, w + mean / length, loss) if length > 0 else 0.0
    slopes = (steps - mean) @ federation.gradient(w + mean)
    influences = federation.shares * slopes.double().cpu().numpy()
    rises = worst > 0
    error = influence_stderr(influences, federation.population)
    return Perturbations(
        gains=gains,
        global_gains=global_gains,
        worst=worst,
        mean_gain=mean_gain,
        found=mean_gain / worst if rises else float("nan"),
        found_stderr=error / worst if rises else float("nan"),
        lengthened_found=longer / worst if rises else float("nan"),
        mean_length=length,
        rounding=4 * torch.finfo(w.dtype).eps * max(abs(loss), float(np.abs(here).max())),
    )


def _rise(federation: Federation, w: Tensor, loss: float) -> float:
    return sum(share * part.value(w) for share, part in federation.together) - loss
