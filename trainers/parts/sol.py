"""The ascent of stabilised orthogonal learning: the gradient where predictions have left the server's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor

from landscape.errors import FedscapeError
from landscape.space import ParameterSpace
from trainers.parts.ascent import Ascent, Surroundings
from trainers.parts.vectors import unit


@dataclass(frozen=True)
class SOL(Ascent):
    """∇f(w + ε), ε along q = ∇KL(softmax(z(w^t)/T) ‖ softmax(z(w)/T)), z the logits of the step's mini-batch.

    ``fixed``: ε = ρ q/‖q‖.  ``adaptive``: ε = ρ Λ ⊙ q/‖q‖ with Λ = |w − w^t| divided, in each parameter tensor, by its
    norm along the first axis: where the client has moved most.  From the authors' code (Lee et al., CVPR 2024), whose T
    is a constant 3 and whose clients have momentum 0.9 (``--local-optimizer momentum``).
    At w = w^t, a client's first step, q is 0 and so is ε; in their code it is rounding noise there, which ``fixed``
    blows up to length ρ.  Two gradients a step and one forward pass more; the training loss is that of the perturbed
    points.

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import SOL, State
        >>> from trainers.parts import Surroundings
        >>> class Pull:  # a mini-batch whose divergence is ‖w − w^t‖²
        ...     def divergence(self, w, reference, temperature):
        ...         return 2 * (w - reference)
        >>> space, received = ParameterSpace.of(torch.nn.Linear(2, 1, bias=False)), State(w=torch.zeros(2))
        >>> around, w = Surroundings(space, server=received, batch=Pull()), torch.tensor([3.0, 4.0])
        >>> SOL(rho=0.5).gradient(w, lambda w: w, around)  # (3, 4) + 0.5 (3, 4)/5
        tensor([3.3000, 4.4000])
        >>> SOL(rho=0.5).gradient(received.w, lambda w: w, around)  # q = 0
        tensor([0., 0.])
    """

    rho: float = 1.0
    """ρ, radius of the ascent step; 0: none"""
    temperature: float = 3.0
    """T, temperature of the predictions that are compared (the authors': 3)"""
    strength: Literal["fixed", "adaptive"] = "fixed"
    """the ascent step: fixed, of length ρ, or adaptive, most where the client has moved most"""

    def __post_init__(self) -> None:
        good = self.rho >= 0 and self.temperature > 0 and self.strength in ("fixed", "adaptive")
        if not good:
            values = ", ".join(f"{name}={value}" for name, value in asdict(self).items())
            raise FedscapeError(
                f"SOL needs a radius ρ of 0 or more, T above 0 and a strength of fixed or adaptive, not {values}"
            )

    def gradient(self, w: Tensor, gradient: Callable[[Tensor], Tensor], around: Surroundings) -> Tensor:
        """The gradient at the perturbed point; one norm over all parameters."""
        assert around.batch is not None
        anchor = around.server.w.expand_as(w)
        up = unit(around.batch.divergence(w, anchor, self.temperature))
        if self.strength == "adaptive":
            up = _moved(w - anchor, around.space) * up
        return gradient(w + self.rho * up)


def _moved(change: Tensor, space: ParameterSpace) -> Tensor:
    """Λ: |change|, in each tensor of parameters divided by its norm along the first axis; [..., d] -> [..., d]."""
    axis = change.dim() - 1
    parts = space.unflatten(change.abs()).values()
    axes = [part[..., None] if part.dim() == axis else part for part in parts]  # a single number has none
    return torch.cat([torch.nn.functional.normalize(part, dim=axis).flatten(axis) for part in axes], dim=-1)
