"""The ascent part: where the gradient of a local step is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from landscape.errors import FedscapeError
from landscape.space import ParameterSpace
from trainers.parts.state import Round, State
from trainers.parts.vectors import unit


class MiniBatch(Protocol):
    """What an ascent step may ask of the step's mini-batch besides the gradient of its loss."""

    def divergence(self, w: Tensor, reference: Tensor, temperature: float) -> Tensor:
        """The gradient in w of KL(softmax(z(reference)/T) ‖ softmax(z(w)/T)), [..., d] -> [..., d].

        z are the logits of the mini-batch, T the temperature; the divergence is the mean over the samples (pixels
        count as such).  Exactly 0 at w = reference, also with dropout: both points have the same draws.
        """
        ...


@dataclass(frozen=True)
class Surroundings:
    """What an ascent step may read beside the point and the gradient.

    Attributes:
        space: the parameters behind the flat vector.
        client: what the client keeps, the ascent's own tensors among it.
        server: what the client received; its ``w`` is the model w^t.
        round: the round and the local step.
        batch: the step's mini-batch.
    """

    space: ParameterSpace
    client: State = field(default_factory=State)
    server: State = field(default_factory=State)
    round: Round = field(default_factory=lambda: Round(1, lr=0.0, participation=1.0))
    batch: MiniBatch | None = None


class Ascent:
    """Replaces the gradient at ``w`` by the gradient at a perturbed point, on the same mini-batch.

    The perturbation may follow from the gradient, or from what the client received and keeps (:class:`Surroundings`).

    Example:
        >>> from dataclasses import dataclass
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import State
        >>> from trainers.parts import Ascent, Surroundings
        >>> @dataclass(frozen=True)
        ... class AwayFromServer(Ascent):
        ...     rho: float = 0.5
        ...
        ...     def gradient(self, w, gradient, around):
        ...         return gradient(w + self.rho * (w - around.server.w))
        >>> space = ParameterSpace.of(torch.nn.Linear(1, 1, bias=False))
        >>> around = Surroundings(space, server=State(w=torch.tensor([1.0])))
        >>> AwayFromServer().gradient(torch.tensor([3.0]), lambda w: 2 * w, around)  # 2 (3 + 0.5 (3 − 1))
        tensor([8.])
    """

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """Initial values of the tensors that a client keeps for the ascent; ``w`` is the initial model."""
        return {}

    def gradient(self, w: Tensor, gradient: Callable[[Tensor], Tensor], around: Surroundings) -> Tensor:
        """The gradient to descend along, [..., d]."""
        raise NotImplementedError

    def remember(self, client: State, server: State) -> None:
        """Update what a client keeps for the ascent, after its last local step; ``server`` is what it received."""


def _require(condition: bool, part: SAM | ASAM | GSAM | LESAM, rule: str) -> None:
    if not condition:
        values = ", ".join(f"{name}={value}" for name, value in asdict(part).items())
        raise FedscapeError(f"{type(part).__name__} needs {rule}, not {values}")


@dataclass(frozen=True)
class SAM(Ascent):
    """∇f(w + ε), ε = ρ g/‖g‖ with g = ∇f(w) (Foret et al., ICLR 2021, eq. 2; Qu et al., ICML 2022, eq. 4).

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import SAM
        >>> from trainers.parts import Surroundings
        >>> around = Surroundings(ParameterSpace.of(torch.nn.Linear(2, 1, bias=False)))
        >>> SAM(rho=0.5).gradient(torch.tensor([3.0, 4.0]), lambda w: 2 * w, around)  # 2 ((3, 4) + 0.5 (6, 8)/10)
        tensor([6.6000, 8.8000])
    """

    rho: float = 0.05
    """ρ, radius of the ascent step"""

    def __post_init__(self) -> None:
        _require(self.rho >= 0, self, "a radius ρ of 0 or more")

    def gradient(self, w: Tensor, gradient: Callable[[Tensor], Tensor], around: Surroundings) -> Tensor:
        """The gradient at the perturbed point; one norm over all parameters."""
        return gradient(w + self.rho * unit(gradient(w), around.round.norm_eps))


@dataclass(frozen=True)
class ASAM(Ascent):
    """∇f(w + ε), ε = ρ T²g/‖Tg‖, T = |w| + η (Kwon et al., ICML 2021, eq. 9 and Algorithm 1).

    T is |w| + η on weights and normalisation scales and 1 on biases, as in the authors' code.

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import ASAM
        >>> from trainers.parts import Surroundings
        >>> around = Surroundings(ParameterSpace.of(torch.nn.Linear(1, 1)))  # a weight and a bias: T = (|w| + 1, 1)
        >>> w, g = torch.tensor([2.0, 5.0]), torch.tensor([1.0, 4.0])  # Tg = (3, 4): ε = 0.5 (3 · 3, 4)/5
        >>> ASAM(rho=0.5, eta=1.0).gradient(w, lambda p: g + p - w, around)
        tensor([1.9000, 4.4000])
    """

    rho: float = 0.7
    """ρ, radius of the ascent step"""
    eta: float = 0.2
    """η, added to |w| in ASAM's scaling"""

    def __post_init__(self) -> None:
        _require(self.rho >= 0 and self.eta >= 0, self, "ρ and η of 0 or more")

    def gradient(self, w: Tensor, gradient: Callable[[Tensor], Tensor], around: Surroundings) -> Tensor:
        """The gradient at the perturbed point; one norm over all parameters."""
        adaptive = around.space.mask("weight", "scale", device=w.device)
        t = torch.where(adaptive, w.abs() + self.eta, torch.ones_like(w))
        return gradient(w + self.rho * t * unit(t * gradient(w), around.round.norm_eps))


@dataclass(frozen=True)
class GSAM(Ascent):
    """g_p − α g_⊥: g_p = ∇f(w + ρ g/‖g‖) is SAM's gradient, g_⊥ the part of g = ∇f(w) orthogonal to g_p.

    Descending along g_p lowers the worst loss nearby; ascending along g_⊥ does not change it to first order and
    closes the surrogate gap, the worst loss minus f(w) (Zhuang et al., ICLR 2022, Algorithm 1).  Here ρ is
    constant; the authors decrease it with the learning rate.

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import GSAM
        >>> from trainers.parts import Surroundings
        >>> around = Surroundings(ParameterSpace.of(torch.nn.Linear(2, 1, bias=False)))
        >>> w, slopes = torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0])  # g = (3, 4), g_p = ∇f(4.5, 4)
        >>> GSAM(rho=2.5, alpha=0.0).gradient(w, lambda w: slopes * w, around)  # SAM's
        tensor([4.5000, 8.0000])
        >>> GSAM(rho=2.5, alpha=1.0).gradient(w, lambda w: slopes * w, around)  # g_⊥ = (0.5697, −0.3205)
        tensor([3.9303, 8.3205])
    """

    rho: float = 0.05
    """ρ, radius of the ascent step"""
    alpha: float = 0.2
    """α, weight of GSAM's ascent across SAM's gradient"""

    def __post_init__(self) -> None:
        _require(self.rho >= 0 and self.alpha >= 0, self, "ρ and α of 0 or more")

    def gradient(self, w: Tensor, gradient: Callable[[Tensor], Tensor], around: Surroundings) -> Tensor:
        """The corrected gradient; one norm and one inner product over all parameters."""
        g = gradient(w)
        worst = gradient(w + self.rho * unit(g, around.round.norm_eps))
        along = unit(worst)
        across = g - (g * along).sum(dim=-1, keepdim=True) * along
        return worst - self.alpha * across


@dataclass(frozen=True)
class LESAM(Ascent):
    """∇f(w + ε), ε = ρ (w^old − w^t)/‖w^old − w^t‖, the same for all local steps of a round (Fan et al., ICML 2024).

    w^old is the server's model as the client last received it: uphill is back to where the server was.  One gradient a
    step.  A client that never took part has w^old = w^0, the initial model, which all are given: in the first round
    there is no perturbation, and who joins in round t looks back along w^0 − w^t.
    The training loss is that of the perturbed points, the only ones a client visits.

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import LESAM, State
        >>> from trainers.parts import Surroundings
        >>> space = ParameterSpace.of(torch.nn.Linear(2, 1, bias=False))
        >>> client, received = State(old=torch.tensor([4.0, 5.0])), State(w=torch.tensor([1.0, 1.0]))
        >>> ascent, around = LESAM(rho=0.5), Surroundings(space, client, received)
        >>> ascent.gradient(received.w, lambda w: w, around)  # (1, 1) + 0.5 (3, 4)/5
        tensor([1.3000, 1.4000])
        >>> ascent.remember(client, received)
        >>> client.old
        tensor([1., 1.])
    """

    rho: float = 0.05
    """ρ, radius of the ascent step"""

    def __post_init__(self) -> None:
        _require(self.rho >= 0, self, "a radius ρ of 0 or more")

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """w^old = w^0."""
        return {"old": w}

    def gradient(self, w: Tensor, gradient: Callable[[Tensor], Tensor], around: Surroundings) -> Tensor:
        """The gradient ρ away, towards w^old."""
        return gradient(w + self.rho * unit(around.client.old - around.server.w, around.round.norm_eps))

    def remember(self, client: State, server: State) -> None:
        """w^old = w^t."""
        client.old = server.w.expand_as(client.old)
