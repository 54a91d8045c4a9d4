"""What a client's ascent step, or the perturbation that its algorithm used, does to the losses of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from analysis.alignment.cost import Work
from analysis.alignment.federation import Federation
from analysis.alignment.gradients import products_of
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
    losses: tuple[np.ndarray, float],
    each: Tensor,
    total: Tensor,
    asked: Asked,
    told: Callable[[int], None] = lambda done: None,
) -> Perturbations:
    """Measure the ascent steps of the measured clients at w; n + 3 evaluations of everybody's data, and a gradient.

    Args:
        federation: f and its clients.
        w: the point, [d].
        losses: f_i(w), [n], and f(w).
        each, total: ∇f_i, [n, d], and ∇f, [d], there.
        asked: the ascent step.
        told: called with the number of evaluations done.
    """
    scale = ascent_scale(asked, w, federation.whole.space)
    here, loss = losses
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
    brought = _brought(mean, scale, asked.rho)  # where T is 0 (asam, η = 0) so is ε̄
    longer = _rise(federation, w + brought, loss) if brought is not None else 0.0
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
        mean_length=_radius(mean, scale) / asked.rho,
        rounding=4 * torch.finfo(w.dtype).eps * max(abs(loss), float(np.abs(here).max())),
    )


def share_error(found: float, worst: float, rounding: float) -> float:
    """How far a share found of a rise ``worst`` is off by the rounding of both rises; NaN unless ``worst`` > 0."""
    return rounding * (1 + abs(found)) / worst if worst > 0 else float("nan")


def _rise(federation: Federation, w: Tensor, loss: float) -> float:
    return sum(share * part.value(w) for share, part in federation.together) - loss


USED_TITLES = {
    "used_length": "length of the perturbation that a client used, ‖ε_i‖",
    "used_own_gain": "rise of f_i by the perturbation that client i used",
    "used_own_gain_at_rho": "the same, ε_i brought to the radius ρ",
    "used_global_gain": "rise of f by the perturbation that a client used",
    "used_global_gain_at_rho": "the same, ε_i brought to the radius ρ",
    "used_cosine_with_own": "cosine of the perturbation that a client used and its ∇f_i",
    "used_cosine_with_global": "cosine of the perturbation that a client used and ∇f",
    "used_cosine_with_ascent": "cosine of the perturbation that a client used and f's own ascent step",
    "used_agreement": "length of the mean of the used perturbations over their mean length",
    "used_mean_gain": "rise of f by the mean of the used perturbations",
    "used_worst_gain": "rise of f by its own ascent step, at the model received",
    "used_worst_case_found": "share of that rise which this mean finds, brought to the radius ρ",
    "server_length": "length of the server's own perturbation",
    "server_gain": "rise of f by the server's own perturbation",
    "server_worst_case_found": "share of the rise by f's own ascent step which it finds, brought to the radius ρ",
    "server_cosine_with_global": "cosine of the server's own perturbation and ∇f",
}
"""What the quantities of :class:`UsedPerturbations` are."""


@dataclass(frozen=True)
class UsedPerturbations(Plain):
    """The perturbations ε_i that the clients of a round used in their last local steps, at the model w they received.

    ε_i is the step of one mini-batch at the client's last local iterate: it is measured at w, where the algorithms
    mean it to be the federation's ascent.  Algorithms have radii of their own, so that lengths are told, and what is
    compared is brought to one radius ρ by ‖T⁻¹ε‖ = ρ (sam: T = 1, the Euclidean norm; asam: :func:`ascent_scale` at w,
    coordinates with T = 0 do not count).  ε = ε(∇f(w)) is the federation's own ascent step of that radius.

    Attributes:
        lengths: ‖ε_i‖, [n].
        own_gains: f_i(w + ε_i) − f_i(w), as used, and with ε_i brought to ρ (NaN where ε_i = 0), [n, 2].
        global_gains: the same of f, [n, 2].
        with_own, with_global: cosines of ε_i with ∇f_i(w) and with ∇f(w), [n].
        with_ascent: cosine of ε_i with ε, [n]: with sam that with ∇f(w).
        agreement: ‖ε̄‖ / Σ p̃_i ‖ε_i‖, ε̄ = Σ p̃_i ε_i: 1 where all are alike.  Of few clients it is above that of all,
            as chance does not cancel in ε̄: no standard error is told.
        mean_gain: f(w + ε̄) − f(w).
        worst: f(w + ε) − f(w).
        found: (f(w + ρ ε̄/‖T⁻¹ε̄‖) − f(w)) / worst; NaN unless worst > 0 and ε̄ ≠ 0.
        mean_gain_stderr, found_stderr: standard errors where not all clients were measured, to first order in the
            clients' shares.
        server: of the server's own perturbation u of its model w^t: ‖u‖, f(w^t + u) − f(w^t), the share of the rise by
            f's own ascent step at w^t that u finds, brought to ρ, that rise, and the cosine of u with ∇f(w^t); NaN
            without one, [5].
        rounding: about how far a gain is off by the rounding of losses.
    """

    letters: ClassVar[dict[str, str]] = {
        "lengths": "n", "own_gains": "n2", "global_gains": "n2", "with_own": "n", "with_global": "n",
        "with_ascent": "n", "server": "5",
    }  # fmt: skip

    lengths: np.ndarray
    own_gains: np.ndarray
    global_gains: np.ndarray
    with_own: np.ndarray
    with_global: np.ndarray
    with_ascent: np.ndarray
    agreement: float
    mean_gain: float
    mean_gain_stderr: float
    worst: float
    found: float
    found_stderr: float
    server: np.ndarray
    rounding: float

    def of_clients(self) -> Iterator[tuple[str, np.ndarray, float]]:
        """Names of :data:`USED_TITLES`, values [n] and errors of the measurement."""
        yield "used_length", self.lengths, 0.0
        for k, way in enumerate(("", "_at_rho")):
            yield f"used_own_gain{way}", self.own_gains[:, k], self.rounding
            yield f"used_global_gain{way}", self.global_gains[:, k], self.rounding
        yield "used_cosine_with_own", self.with_own, 0.0
        yield "used_cosine_with_global", self.with_global, 0.0
        yield "used_cosine_with_ascent", self.with_ascent, 0.0

    def of_all(self, population: int) -> Iterator[tuple[str, float, float, float]]:
        """Names, values, standard errors of the sampling of clients from so many, and errors of the measurement."""
        yield "used_agreement", self.agreement, 0.0 if len(self.lengths) == population else float("nan"), 0.0
        yield "used_mean_gain", self.mean_gain, self.mean_gain_stderr, self.rounding
        yield "used_worst_gain", self.worst, 0.0, self.rounding
        yield "used_worst_case_found", self.found, self.found_stderr, share_error(self.found, self.worst, self.rounding)
        if np.isfinite(self.server[0]):
            length, gain, found, worst, cosine = map(float, self.server)
            yield "server_length", length, 0.0, 0.0
            yield "server_gain", gain, 0.0, self.rounding
            yield "server_worst_case_found", found, 0.0, share_error(found, worst, self.rounding)
            yield "server_cosine_with_global", cosine, 0.0, 0.0


def measure_used(
    federation: Federation,
    w: Tensor,
    steps: Tensor,
    server: tuple[Tensor, Tensor] | None,
    asked: Asked,
    told: Callable[[int], None] = lambda done: None,
) -> UsedPerturbations:
    """Measure the perturbations that the measured clients used; what it takes is :func:`used_work`.

    Args:
        federation: f and its clients.
        w: the model that they received, [d].
        steps: ε_i of the measured clients, finite, [n, d].
        server: the server's model w^t and its perturbation, [d] both, where it has one.
        asked: the ascent step that they are compared with.
        told: called with the number of clients done.
    """
    scale = ascent_scale(asked, w, federation.whole.space)
    here, loss = federation.values(w)
    each, total = federation.gradients(w)
    own, everybody = np.full((len(steps), 2), np.nan), np.full((len(steps), 2), np.nan)
    for i, step in enumerate(steps):
        for k, one in enumerate((step, _brought(step, scale, asked.rho))):
            if one is not None:
                there, high = federation.values(w + one)
                own[i, k], everybody[i, k] = there[i] - here[i], high - loss
        told(i + 1)
    ideal = ascent_step(total, scale, asked.rho)
    worst = _rise(federation, w + ideal, loss)
    shares = torch.from_numpy(federation.shares).to(steps)
    mean = shares @ steps
    lengths = _norms(steps)
    whole = float(federation.shares @ lengths)
    longer, turning = _found(federation, w, steps, mean, scale, asked.rho)
    slopes = ((steps - mean) @ federation.gradient(w + mean)).double().cpu().numpy()
    rises = worst > 0
    with_own = [_cosines(one[None], slope)[0] for one, slope in zip(steps, each, strict=True)]
    return UsedPerturbations(
        lengths=lengths,
        own_gains=own,
        global_gains=everybody,
        with_own=np.array(with_own),
        with_global=_cosines(steps, total),
        with_ascent=_cosines(steps, ideal),
        agreement=float(_norms(mean[None])[0]) / whole if whole > 0 else float("nan"),
        mean_gain=_rise(federation, w + mean, loss),
        mean_gain_stderr=influence_stderr(federation.shares * slopes, federation.population),
        worst=worst,
        found=(longer - loss) / worst if rises else float("nan"),
        found_stderr=influence_stderr(turning, federation.population) / worst if rises else float("nan"),
        server=_of_server(federation, server, w, (loss, total, worst), asked),
        rounding=4 * torch.finfo(w.dtype).eps * max(abs(loss), float(np.abs(here).max())),
    )


def used_work(clients: int, server: bool, elsewhere: bool) -> Work:
    """What :func:`measure_used` takes, in passes over everybody's data.

    Args:
        clients: whose perturbations there are.
        server: whether the server has one.
        elsewhere: whether that is of another model than the clients received.
    """
    return Work(2.0 * clients + 4 + (2 + 2 * elsewhere) * server, 3.0 + (server and elsewhere), 0)


def _found(
    federation: Federation, w: Tensor, steps: Tensor, mean: Tensor, scale: Tensor, rho: float
) -> tuple[float, np.ndarray]:
    """f at w + ρ ε̄/‖T⁻¹ε̄‖, NaN where ε̄ = 0, and its derivatives by the clients' shares, [n]."""
    longer = _brought(mean, scale, rho)
    if longer is None:
        return float("nan"), np.full(len(steps), np.nan)
    slope, factor = federation.gradient(w + longer), rho / _radius(mean, scale)
    inward = _over(_over(longer, scale), scale) / rho**2  # T⁻²ε̄, which no step along the sphere has a part in
    apart = steps - mean
    along, outward = products_of(apart, torch.stack([slope, inward])).T
    turned = factor * (along - float(products_of(slope[None], longer[None])[0, 0]) * outward)
    return _rise(federation, w + longer, 0.0), federation.shares * turned


def _of_server(
    federation: Federation,
    server: tuple[Tensor, Tensor] | None,
    w: Tensor,
    there: tuple[float, Tensor, float],
    asked: Asked,
) -> np.ndarray:
    """Length, gain, share of the worst rise, this rise, cosine; ``there`` are loss, gradient and worst rise at w."""
    if server is None:
        return np.full(5, np.nan)
    at, step = server
    scale = ascent_scale(asked, at, federation.whole.space)
    loss, slope, worst = there
    if not torch.equal(at, w):
        loss, slope = _rise(federation, at, 0.0), federation.gradient(at)
        worst = _rise(federation, at + ascent_step(slope, scale, asked.rho), loss)
    longer = _brought(step, scale, asked.rho)
    found = _rise(federation, at + longer, loss) / worst if longer is not None and worst > 0 else float("nan")
    gain = _rise(federation, at + step, loss)
    return np.array([_norms(step[None])[0], gain, found, worst, _cosines(step[None], slope)[0]])


def _over(step: Tensor, scale: Tensor) -> Tensor:
    """T⁻¹ε, 0 where T is."""
    return torch.where(scale > 0, step / scale, torch.zeros_like(step))


def _radius(step: Tensor, scale: Tensor) -> float:
    """‖T⁻¹ε‖."""
    return float(torch.linalg.vector_norm(_over(step, scale), dtype=torch.float64))


def _brought(step: Tensor, scale: Tensor, rho: float) -> Tensor | None:
    """The step with ‖T⁻¹ε‖ = ρ; ``None`` where it is 0."""
    radius = _radius(step, scale)
    return step * (rho / radius) if radius > 0 else None


def _norms(steps: Tensor) -> np.ndarray:
    """Of rows [n, d], [n]."""
    return torch.linalg.vector_norm(steps, dim=-1, dtype=torch.float64).cpu().numpy()


def _cosines(steps: Tensor, direction: Tensor) -> np.ndarray:
    """Of rows [n, d] with one direction [d], [n]; NaN where one of both is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = products_of(steps, direction[None])[:, 0] / (_norms(steps) * _norms(direction[None])[0])
    return np.clip(found, -1.0, 1.0)
