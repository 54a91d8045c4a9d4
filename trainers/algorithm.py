"""The base class of algorithms: hyper-parameters and a few lines of arithmetic on flat vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, ClassVar, Protocol

from torch import Tensor

from landscape.errors import FedscapeError
from trainers.parts.adversary import Adversary
from trainers.parts.ascent import Ascent
from trainers.parts.local_schedules import Linear
from trainers.parts.server_optimizers import ServerOptimizer
from trainers.parts.start import Relaxed
from trainers.parts.state import Round as Round
from trainers.parts.state import State as State
from trainers.parts.vectors import unit as unit

Gradient = Callable[[Tensor], Tensor]
"""The mini-batch gradient as a function of the point, [..., d] -> [..., d]; every call within one step uses the same
mini-batch.  If the run has an ascent part, this is already the gradient at the perturbed point."""


PERTURBED = "perturbed gradients"
"""Why an algorithm of the SAM family has a bias."""


class Mean(State):
    """The mean of each uploaded tensor over the sampled clients, in the run's client weights p_i.

    A tensor ``x`` has the mean ‹x› = Σ_S p_i x_i / Σ_S p_i.  The models' change ``delta`` has that too, unless the run
    aggregates without bias: Σ_S p_i d_i/π, π the probability that a client is sampled.

    ``all_clients`` holds Σ_{i∈S} p_i x_i of the same tensors, the mean over all clients of a change that those
    not sampled do not make.  State that is a mean over all clients, Σ p_i state_i, is kept so by adding it.

    ``steps`` is the mean number of local steps K that the sampled clients took, weighted as ``delta``; ``clients`` is
    how many they are.

    Example:
        >>> import torch
        >>> from trainers import Mean, State
        >>> mean = Mean(delta=torch.tensor([2.0]), all_clients=State(delta=torch.tensor([0.5])), steps=5.0)
        >>> mean.delta, mean.all_clients.delta, mean.steps
        (tensor([2.]), tensor([0.5000]), 5.0)
    """

    all_clients: State
    steps: float
    clients: int


class LocalData(Protocol):
    """What an algorithm can ask of a client's data.

    Attributes:
        samples: n_i.
        size: N n_i/n, the client's number of samples over the mean client's.
        epochs: E, passes over them in the round's local steps.
    """

    samples: int
    size: float
    epochs: float

    def gradient(self, w: Tensor) -> Tensor:
        """The gradient of the loss over all of the client's data, without augmentation, [d] -> [d]."""
        ...


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm.  A subclass adds its hyper-parameters as fields and overrides what differs.

    The tensors are flat: ``w`` is [d], or [S, d] where an executor advances S clients together; write
    elementwise arithmetic and norms over the last axis (:func:`unit`), and the same text serves both.
    Client and server states may be assigned to, never changed in place.

    Example:
        >>> from dataclasses import dataclass
        >>> import torch
        >>> from trainers import Algorithm, Round, State
        >>> @dataclass(frozen=True)
        ... class SignSGD(Algorithm):
        ...     paper = "Bernstein et al., ICML 2018"
        ...     scale: float = 1.0
        ...
        ...     def __post_init__(self):
        ...         self.require(self.scale > 0, "a scale above 0")
        ...
        ...     def direction(self, w, gradient, client, server, round):
        ...         return self.scale * gradient(w).sign()
        >>> w, received = torch.tensor([3.0, -4.0]), State(w=torch.zeros(2))
        >>> SignSGD(0.5).direction(w, lambda w: w, State(), received, Round(1, lr=0.1, participation=0.5))
        tensor([ 0.5000, -0.5000])
        >>> SignSGD(0.0)
        Traceback (most recent call last):
            ...
        landscape.errors.FedscapeError: SignSGD needs a scale above 0, not scale=0.0
    """

    paper: ClassVar[str]
    """Authors, venue and year, and which algorithm or equation of theirs is followed."""
    drift: ClassVar[str] = "uncorrected local drift"
    """Why local steps of a constant rate keep it from a stationary point of F = Σ p_i f_i, even with full batches
    (``python -m trainers list`` shows it); empty where it corrects them."""
    excludes: ClassVar[Mapping[str, str]] = {}
    """Parts (fields of :class:`~trainers.parts.parts.Parts`) that make no sense with it, each with the reason."""
    two_phases: ClassVar[bool] = False
    """Whether the sampled clients are asked for something (:meth:`ask`), and answered (:meth:`answer`), before their
    local work: a round of two trips."""
    pooled: ClassVar[bool] = False
    """Whether one client holds all data, whatever clients and partition were asked for."""

    perturbs: ClassVar[bool] = False
    """Whether :meth:`direction` itself asks for the gradient at a perturbed point, and for that one last: how far that
    is from ``w`` is then kept with ``--save-clients``.  An ascent part (:attr:`ascent`) is seen without it."""

    on_server: ClassVar[frozenset[str]] = frozenset()
    """Tensors in the messages of :meth:`broadcast` and :meth:`upload` that are no traffic, because the server has what
    they are made of: where it keeps the clients' states itself, which here are stored beside the clients' work."""

    @property
    def bias(self) -> str:
        """Why it does not come to rest at a stationary point of F = Σ p_i f_i, with these hyper-parameters; empty if
        it does: with unequal clients of whom some are sampled, many full-batch local steps and no weight decay."""
        return self.drift or (PERTURBED if getattr(self.ascent, "rho", 0.0) > 0 else "")

    @property
    def ascent(self) -> Ascent | None:
        """The ascent part that belongs to the algorithm, or ``None``."""
        return None

    @property
    def adversary(self) -> Adversary | None:
        """The adversary that belongs to the algorithm, or ``None``."""
        return None

    @property
    def server_optimizer(self) -> ServerOptimizer | None:
        """The server optimiser that belongs to the algorithm, or ``None``."""
        return None

    @property
    def local_schedule(self) -> Linear | None:
        """The schedule of the local rate within a round that belongs to the algorithm, or ``None``."""
        return None

    @property
    def relaxed(self) -> Relaxed | None:
        """The start of the clients that belongs to the algorithm, or ``None``."""
        return None

    @property
    def proximal_weight(self) -> float:
        """μ, where the direction has a proximal term μ(w − w^t) with the same μ for all; 0 without one."""
        return 0.0

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """Initial values of the tensors that a client keeps between rounds; ``w`` is the initial model."""
        return {}

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """Initial values of the tensors that the server keeps in addition to the model ``w``."""
        return {}

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """The tensors that a sampled client receives: the model and all of the server's state unless overridden."""
        return server.tensors()

    def server_perturbation(self, server: State) -> Tensor | None:
        """The perturbation of the model that the server itself has for the round that begins, [d], where the algorithm
        is about one; ``server`` is its state.  It is kept with ``--save-clients``, and nothing else reads it."""
        return None

    def ask(self, client: State, server: State, data: LocalData, round: Round) -> dict[str, Tensor]:
        """What a sampled client sends before its local work, from all of its data; only if ``two_phases``."""
        return {}

    def answer(self, server: State, mean: Mean, round: Round) -> dict[str, Tensor]:
        """The tensors that the sampled clients receive beside the broadcast, from the means of what they sent at
        first; only if ``two_phases``.  ``server`` is the server's own state, which may be updated."""
        return {}

    def prepare(self, client: State, server: State, data: LocalData, round: Round) -> None:
        """Compute what a client needs from all of its data, before its first local step of a round."""

    def start(self, client: State, server: State, round: Round) -> Tensor:
        """Where a client's local steps begin: the model it received, unless overridden."""
        return server.w

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """The descent direction of one local step at ``w``; ``server`` is what the client received.

        ``round.step`` is the number k of the step, ``round.steps`` the number K of those that the client takes.
        """
        return gradient(w)

    def pull(self, client: State) -> float | Tensor:
        """α of a proximal term α(w − w^t) in the direction, of which ``--clip-at linear`` leaves α w unclipped.

        :attr:`proximal_weight`, unless a client has its own, or the term belongs to a dual one.
        """
        return self.proximal_weight

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """The tensors that a client sends after ``steps`` local steps, which ended at ``w``; updates its state.

        For several clients in rows ``steps`` is a column [S, 1] where their numbers differ, as ``round.steps`` is.
        """
        return {"delta": w - server.w}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """Update the server's model and state from the means of what the clients sent.

        If the run has a server optimiser, ``mean.delta`` is already the change that the optimiser computed.
        """
        server.w = server.w + mean.delta

    def hyper_parameters(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)

    def upgraded(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Hyper-parameters that an earlier version recorded, with those it did not have at their defaults."""
        defaults = {each.name: each.default for each in fields(self) if each.default is not MISSING}
        return {**defaults, **recorded}

    def require(self, condition: bool, rule: str) -> None:
        """Check hyper-parameters; to be called in ``__post_init__``.

        Raises:
            FedscapeError: the condition does not hold.
        """
        if not condition:
            values = ", ".join(f"{name}={value}" for name, value in self.hyper_parameters().items())
            raise FedscapeError(f"{type(self).__name__} needs {rule}, not {values}")
