"""The server-optimiser part: how the server turns the clients' mean change into its step.

The mean change ‹d› = ‹w_i − w^t› takes the place of a negative gradient; ``lr`` is the optimiser's rate η_g.  If the
algorithm has a server rate too, it multiplies the optimiser's step.  Without this part the step is ‹d› itself:
averaging.  Those that ask the clients for more than d_i are in :mod:`trainers.parts.server_steps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from landscape.errors import FedscapeError
from trainers.parts.local_optimizers import LocalOptimizer
from trainers.parts.state import State


@dataclass(frozen=True)
class LocalSteps:
    """How a client moved from where it began to where it ended.

    Attributes:
        lr: η, the round's local rate.
        shares: η_k/η of its steps, [K].
        optimizer: its local optimiser; ``None``: plain steps.
        proximal: μ of the proximal term in its direction; 0 without.
    """

    lr: float
    shares: Sequence[float]
    optimizer: LocalOptimizer | None = None
    proximal: float = 0.0


class ServerOptimizer:
    """Replaces the mean change ‹d› by a step computed from it and from a state of its own.

    A subclass has ``step``, and the other methods where clients begin elsewhere than at w^t, or send more than d_i.

    Example:
        >>> import torch
        >>> from trainers.parts import ServerOptimizer
        >>> class Sign(ServerOptimizer):
        ...     def step(self, delta, state):
        ...         return 0.1 * delta.sign(), state
        >>> Sign().step(torch.tensor([3.0, -2.0]), {})
        (tensor([ 0.1000, -0.1000]), {})
    """

    counts_clients: ClassVar[bool] = False
    """whether the step depends on how many clients came (``mean.clients``), which differential privacy hides"""

    def state(self, w: Tensor) -> dict[str, Tensor]:
        """The initial state of the optimiser; ``w`` is the initial model, [d]."""
        return {}

    def ahead(self, w: Tensor, state: dict[str, Tensor]) -> Tensor:
        """The model that clients receive: w^t unless overridden."""
        return w

    def sent(self, upload: dict[str, Tensor], local: LocalSteps) -> dict[str, Tensor]:
        """What a client sends, made from the algorithm's upload, whose ``delta`` is d_i [d]."""
        return upload

    def change(self, mean: State, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The step to take in place of ``mean.delta``, and the new state; ``mean`` is of all that was sent."""
        return self.step(mean.delta, state)

    def step(self, delta: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The step to take in place of ``delta`` ([d]), and the new state."""
        raise NotImplementedError

    def refusal(self, local: LocalOptimizer) -> str:
        """Why it makes no sense with a local optimiser; empty where it does."""
        return ""


@dataclass(frozen=True)
class Momentum(ServerOptimizer):
    """v ← βv + ‹d›; the change is η_g v (Hsu et al., 2019, FedAvgM).  No damping: a steady ‹d› becomes ‹d›/(1 − β).

    Example:
        >>> import torch
        >>> from trainers import Momentum
        >>> momentum, delta = Momentum(beta=0.5, lr=2.0), torch.tensor([1.0])
        >>> first, state = momentum.step(delta, momentum.state(torch.zeros(1)))
        >>> second, state = momentum.step(delta, state)
        >>> first, second  # 2 · 1, then 2 (0.5 · 1 + 1)
        (tensor([2.]), tensor([3.]))
    """

    beta: float = 0.9
    """β, the server's momentum"""
    lr: float = 1.0
    """the server optimiser's rate; the algorithm's own --server-lr multiplies what comes out of it"""

    def __post_init__(self) -> None:
        require(self.lr > 0, self, "a rate η_g above 0")
        require(0 <= self.beta < 1, self, "β from 0 to below 1")

    def state(self, w: Tensor) -> dict[str, Tensor]:
        """v = 0."""
        return {"v": torch.zeros_like(w)}

    def step(self, delta: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """η_g v."""
        v = self.beta * state["v"] + delta
        return self.lr * v, {"v": v}


@dataclass(frozen=True)
class Adam(ServerOptimizer):
    """m ← β1 m + (1 − β1)‹d›; v ← β2 v + (1 − β2)‹d›²; the change is η_g m/(√v + τ).

    Reddi et al., ICLR 2021, Algorithm 2.  m_0 = 0 and v_0 = τ²; neither is corrected for its start.  With ``v0="zero"``
    v_0 = 0, as in FL-Simulator; with ``v0="corrected"`` v_0 = 0, and m/(1 − β1^t) and v/(1 − β2^t) take the places of m
    and v, t the number of the step, as in ``torch.optim.Adam``, which Caldarola et al.'s code uses.

    Example:
        >>> import torch
        >>> from trainers import Adam
        >>> adam = Adam(beta1=0.5, beta2=0.625, tau=1.0, lr=2.0)
        >>> change, state = adam.step(torch.tensor([3.0]), adam.state(torch.zeros(1)))
        >>> state  # 0.5 · 3, and 0.625 · 1 + 0.375 · 9
        {'m': tensor([1.5000]), 'v': tensor([4.])}
        >>> change  # 2 · 1.5/(2 + 1)
        tensor([1.])
    """

    beta1: float = 0.9
    """β1, decay of the first moment"""
    beta2: float = 0.99
    """β2, decay of the second moment"""
    tau: float = 0.001
    """τ, the degree of adaptivity"""
    lr: float = 0.1
    """the server optimiser's rate; the algorithm's own --server-lr multiplies what comes out of it"""
    v0: Literal["tau", "zero", "corrected"] = "tau"
    """where the second moment begins: tau: at τ²; zero: at 0 (FL-Simulator); corrected: at 0, and both moments are
    corrected for their start, as in PyTorch's Adam"""

    def __post_init__(self) -> None:
        require(0 <= self.beta1 < 1 and 0 <= self.beta2 < 1, self, "β1 and β2 from 0 to below 1")
        require(self.tau > 0 and self.lr > 0, self, "τ and a rate η_g above 0")
        require(self.v0 in ("tau", "zero", "corrected"), self, "v0 of tau, zero or corrected")

    def state(self, w: Tensor) -> dict[str, Tensor]:
        """m = 0, v = v_0; the number of steps where the moments are corrected."""
        count = torch.zeros(1, dtype=torch.float64, device=w.device)
        moments = _moments(w, self.tau if self.v0 == "tau" else 0.0)
        return {**moments, "count": count} if self.v0 == "corrected" else moments

    def step(self, delta: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """η_g m/(√v + τ)."""
        v = self.beta2 * state["v"] + (1 - self.beta2) * delta**2
        if self.v0 != "corrected":
            return _adapted(self, delta, state["m"], v)
        count, m = state["count"] + 1, self.beta1 * state["m"] + (1 - self.beta1) * delta
        first, second = 1 - self.beta1 ** int(count), 1 - self.beta2 ** int(count)
        return self.lr * (m / first) / ((v / second).sqrt() + self.tau), {"m": m, "v": v, "count": count}


@dataclass(frozen=True)
class Adagrad(ServerOptimizer):
    """As Adam, but v ← v + ‹d›² (Reddi et al., ICLR 2021, Algorithm 2).

    Example:
        >>> import torch
        >>> from trainers import Adagrad
        >>> adagrad = Adagrad(tau=3.0, lr=2.0)
        >>> adagrad.step(torch.tensor([4.0]), adagrad.state(torch.zeros(1)))  # v = 9 + 16, the change is 2 · 4/(5 + 3)
        (tensor([1.]), {'m': tensor([4.]), 'v': tensor([25.])})
    """

    beta1: float = 0.0
    """β1, decay of the first moment"""
    tau: float = 0.001
    """τ, the degree of adaptivity"""
    lr: float = 0.1
    """the server optimiser's rate; the algorithm's own --server-lr multiplies what comes out of it"""
    v0: Literal["tau", "zero"] = "tau"
    """where the second moment begins: tau: at τ²; zero: at 0 (PyTorch's Adagrad)"""

    def __post_init__(self) -> None:
        require(0 <= self.beta1 < 1, self, "β1 from 0 to below 1")
        require(self.tau > 0 and self.lr > 0, self, "τ and a rate η_g above 0")
        require(self.v0 in ("tau", "zero"), self, "v0 of tau or zero")

    def state(self, w: Tensor) -> dict[str, Tensor]:
        """m = 0, v = v_0."""
        return _moments(w, self.tau if self.v0 == "tau" else 0.0)

    def step(self, delta: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """η_g m/(√v + τ)."""
        return _adapted(self, delta, state["m"], state["v"] + delta**2)


@dataclass(frozen=True)
class Yogi(Adam):
    """As Adam, but v ← v − (1 − β2)‹d›² sign(v − ‹d›²) (Reddi et al., ICLR 2021, Algorithm 2).

    Example:
        >>> import torch
        >>> from trainers import Yogi
        >>> yogi = Yogi(beta1=0.5, beta2=0.25, tau=1.0, lr=3.0)
        >>> yogi.step(torch.tensor([2.0]), yogi.state(torch.zeros(1)))  # v = 1 + 0.75 · 4, the change is 3 · 1/(2 + 1)
        (tensor([1.]), {'m': tensor([1.]), 'v': tensor([4.])})
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.v0 != "corrected", self, "v0 of tau or zero")

    def step(self, delta: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """η_g m/(√v + τ); v cannot become negative: only a number below v is subtracted from it."""
        v, square = state["v"], delta**2
        v = v - (1 - self.beta2) * square * (v - square).sign()
        return _adapted(self, delta, state["m"], v)


def _moments(w: Tensor, tau: float) -> dict[str, Tensor]:
    return {"m": torch.zeros_like(w), "v": torch.full_like(w, tau**2)}


def _adapted(optimizer: Adam | Adagrad, delta: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    m = optimizer.beta1 * m + (1 - optimizer.beta1) * delta
    return optimizer.lr * m / (v.sqrt() + optimizer.tau), {"m": m, "v": v}


def require(condition: bool, optimizer: Any, rule: str) -> None:
    """Check the numbers of an optimiser, a dataclass.

    Raises:
        FedscapeError: the condition does not hold.
    """
    if not condition:
        values = ", ".join(f"{name}={value}" for name, value in asdict(optimizer).items())
        raise FedscapeError(f"{type(optimizer).__name__} needs {rule}, not {values}")
