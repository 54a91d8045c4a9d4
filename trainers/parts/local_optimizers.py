"""The local-optimiser part: how a client turns the direction of a local step into the step.

The algorithm's direction, clipped, takes the place of the gradient.  Without this part the step is plain SGD's,
w ← w − η (direction + weight_decay · w).  What an optimiser remembers begins anew each round, or stays with the client.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Annotated, Literal, Protocol

import torch
import tyro
from torch import Tensor

from landscape.errors import FedscapeError

LocalState = Literal["fresh", "kept"]
"""Whether an optimiser's memory begins anew each round or stays with the client."""
_PREFIX = "local_optimizer_"  # of the names of its memory among a client's tensors


class LocalOptimizer(Protocol):
    """Replaces the step of plain SGD by one computed from the direction and a memory."""

    @property
    def state(self) -> LocalState:
        """Whether the memory begins anew each round or stays with the client."""
        ...

    def initial(self, w: Tensor) -> dict[str, Tensor]:
        """The memory before the first step; ``w`` is a model, [..., d]."""
        ...

    def step(
        self, w: Tensor, direction: Tensor, memory: dict[str, Tensor], lr: float | Tensor, weight_decay: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The model after a step along −``direction`` ([..., d] both), and the new memory."""
        ...


@dataclass(frozen=True)
class LocalMomentum:
    """Heavy-ball momentum: v ← βv + u, w ← w − η v, with u = direction + weight_decay · w and v_0 = 0.

    Polyak, 1964, without damping, as ``torch.optim.SGD``: a steady u becomes u/(1 − β), and the momentum holds the
    weight decay.  Nesterov's form (Sutskever et al., ICML 2013) steps along u + βv.

    Example:
        >>> import torch
        >>> from trainers import LocalMomentum
        >>> momentum, w, u = LocalMomentum(momentum=0.5), torch.tensor([4.0]), torch.tensor([1.0])
        >>> w, memory = momentum.step(w, u, momentum.initial(w), lr=1.0, weight_decay=0.0)
        >>> momentum.step(w, u, memory, lr=1.0, weight_decay=0.0)  # v = 0.5 · 1 + 1, and 3 − 1.5
        (tensor([1.5000]), {'velocity': tensor([1.5000])})
    """

    momentum: Annotated[float, tyro.conf.arg(metavar="BETA")] = 0.9
    """β, share of the velocity that the next step keeps"""
    nesterov: bool = False
    """step along u + βv in place of v (Nesterov's momentum)"""
    state: LocalState = "fresh"
    """the optimiser's memory: fresh each round, or kept by the client from round to round; kept takes one model of
    memory a client (momentum) or two (adamw), in --client-store"""

    def __post_init__(self) -> None:
        _require(0 <= self.momentum < 1, self, "β from 0 to below 1")
        _require(self.momentum > 0 or not self.nesterov, self, "β above 0 for Nesterov's momentum")
        _require(self.state in ("fresh", "kept"), self, "a state of fresh or kept")

    def initial(self, w: Tensor) -> dict[str, Tensor]:
        """v = 0."""
        return {"velocity": torch.zeros_like(w)}

    def step(
        self, w: Tensor, direction: Tensor, memory: dict[str, Tensor], lr: float | Tensor, weight_decay: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """w − η v, or w − η (u + βv)."""
        u = direction + weight_decay * w if weight_decay else direction
        velocity = self.momentum * memory["velocity"] + u
        return w - lr * (u + self.momentum * velocity if self.nesterov else velocity), {"velocity": velocity}


@dataclass(frozen=True)
class LocalAdamW:
    """Adam with decoupled weight decay (Loshchilov & Hutter, ICLR 2019, Algorithm 2), as ``torch.optim.AdamW``.

    w ← (1 − η · weight_decay) w; m ← β1 m + (1 − β1) u; v ← β2 v + (1 − β2) u²;
    w ← w − η m̂/(√v̂ + ε), m̂ = m/(1 − β1^t), v̂ = v/(1 − β2^t), u the direction, t the steps since m = v = 0.
    The decay is part of no objective: what the steps settle at is not a minimum of loss and ‖w‖² together.

    Example:
        >>> import torch
        >>> from trainers import LocalAdamW
        >>> adamw, w = LocalAdamW(beta1=0.5, beta2=0.75, eps=1.0), torch.tensor([4.0])
        >>> w, memory = adamw.step(w, torch.tensor([3.0]), adamw.initial(w), lr=0.5, weight_decay=0.5)
        >>> w  # m̂ = 3 and v̂ = 9: 0.75 · 4 − 0.5 · 3/(3 + 1)
        tensor([2.6250])
        >>> memory["m"], memory["v"]  # 0.5 · 3, and 0.25 · 9
        (tensor([1.5000]), tensor([2.2500]))
    """

    beta1: float = 0.9
    """β1, decay of the first moment"""
    beta2: float = 0.999
    """β2, decay of the second moment"""
    eps: float = 1e-8
    """ε, added to the root of the second moment"""
    state: LocalState = "fresh"
    """whether m, v and t begin anew each round or stay with the client"""

    def __post_init__(self) -> None:
        _require(0 <= self.beta1 < 1 and 0 <= self.beta2 < 1, self, "β1 and β2 from 0 to below 1")
        _require(self.eps > 0, self, "ε above 0")
        _require(self.state in ("fresh", "kept"), self, "a state of fresh or kept")

    def initial(self, w: Tensor) -> dict[str, Tensor]:
        """m = v = 0, and t = 0 as one number a client."""
        # In float64 whatever w is: in float32, 1 − 0.999^t would be off by 1e-5.
        count = torch.zeros_like(w[..., :1], dtype=torch.float64)
        return {"m": torch.zeros_like(w), "v": torch.zeros_like(w), "count": count}

    def step(
        self, w: Tensor, direction: Tensor, memory: dict[str, Tensor], lr: float | Tensor, weight_decay: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The decayed model less η m̂/(√v̂ + ε)."""
        count = memory["count"] + 1
        m = self.beta1 * memory["m"] + (1 - self.beta1) * direction
        v = self.beta2 * memory["v"] + (1 - self.beta2) * direction**2
        first, second = ((1 - beta**count).to(w.dtype) for beta in (self.beta1, self.beta2))
        decayed = (1 - lr * weight_decay) * w
        return decayed - lr * (m / first) / ((v / second).sqrt() + self.eps), {"m": m, "v": v, "count": count}


def kept_memory(optimizer: LocalOptimizer | None, w: Tensor) -> dict[str, Tensor]:
    """The tensors that a client keeps for its optimiser between rounds, with their initial values at ``w``.

    Example:
        >>> import torch
        >>> from trainers import LocalMomentum
        >>> from trainers.parts.local_optimizers import kept_memory
        >>> kept_memory(LocalMomentum(state="kept"), torch.ones(2)), kept_memory(LocalMomentum(), torch.ones(2))
        ({'local_optimizer_velocity': tensor([0., 0.])}, {})
    """
    if optimizer is None or optimizer.state == "fresh":
        return {}
    return {_PREFIX + name: tensor for name, tensor in optimizer.initial(w).items()}


def begin_round(optimizer: LocalOptimizer | None, client: SimpleNamespace, w: Tensor) -> None:
    """Give a client a fresh memory for this round's steps, unless it keeps its own; ``w`` is where it starts, [d]."""
    if optimizer is not None and optimizer.state == "fresh":
        _remember(client, optimizer.initial(w))


def optimized(
    optimizer: LocalOptimizer,
    w: Tensor,
    direction: Tensor,
    client: SimpleNamespace,
    lr: float | Tensor,
    weight_decay: float,
) -> Tensor:
    """The model after a step of the optimiser, [..., d]; its memory is among the client's tensors.

    Example:
        >>> import torch
        >>> from trainers import LocalMomentum, State
        >>> from trainers.parts.local_optimizers import begin_round, optimized
        >>> momentum, client, w = LocalMomentum(0.5), State(), torch.tensor([4.0])
        >>> begin_round(momentum, client, w)
        >>> optimized(momentum, w, torch.tensor([1.0]), client, lr=1.0, weight_decay=0.0)
        tensor([3.])
        >>> client.local_optimizer_velocity
        tensor([1.])
    """
    names = optimizer.initial(w)
    memory = {name: getattr(client, _PREFIX + name) for name in names}
    w, memory = optimizer.step(w, direction, memory, lr, weight_decay)
    _remember(client, memory)
    return w


def _remember(client: SimpleNamespace, memory: dict[str, Tensor]) -> None:
    for name, tensor in memory.items():
        setattr(client, _PREFIX + name, tensor)


def _require(condition: bool, optimizer: LocalMomentum | LocalAdamW, rule: str) -> None:
    if not condition:
        values = ", ".join(f"{name}={value}" for name, value in asdict(optimizer).items())
        raise FedscapeError(f"{type(optimizer).__name__} needs {rule}, not {values}")
