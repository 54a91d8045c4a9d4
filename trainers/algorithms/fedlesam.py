"""SAM whose perturbation is the change of the server's model since the client last saw it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import Tensor

from landscape.compute.devices import on_device
from landscape.errors import FedscapeError
from trainers.algorithm import Algorithm, Gradient, Mean, Round, State
from trainers.algorithms.combination import Combination
from trainers.algorithms.fedavg import FedAvg
from trainers.algorithms.feddyn import FedDyn
from trainers.algorithms.scaffold import Scaffold
from trainers.parts.ascent import LESAM, Surroundings

_BASES: dict[str, type[Algorithm]] = {"fedavg": FedAvg, "scaffold": Scaffold, "feddyn": FedDyn}
_OPTIONS = ("alpha", "server_lr")


@dataclass(frozen=True)
class OfficialLESAM(LESAM):
    """LESAM as the authors' code computes it: the ``change`` that the server sends is that of the last round.

    The k-th parameter tensor is moved by −ρ Δ_k/(Σ_j |Δ_j| + norm_eps) in all of its entries, Δ_k the k-th coordinate
    of the flat change; nothing is kept on the clients.

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import State
        >>> from trainers.algorithms.fedlesam import OfficialLESAM
        >>> from trainers.parts import Surroundings
        >>> space = ParameterSpace.of(torch.nn.Linear(2, 1))  # a weight of two entries and a bias
        >>> around = Surroundings(space, server=State(change=torch.tensor([3.0, -1.0, 5.0])))
        >>> OfficialLESAM(rho=0.5).gradient(torch.zeros(3), lambda w: w, around)  # −0.5 (3, 3, −1)/4
        tensor([-0.3750, -0.3750,  0.1250])
    """

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def gradient(self, w: Tensor, gradient: Callable[[Tensor], Tensor], around: Surroundings) -> Tensor:
        """The gradient at the point that is moved tensor by tensor."""
        sizes = on_device(torch.tensor(around.space.sizes), w.device)
        first = around.server.change[: len(sizes)]
        norm = first.abs().sum() + (around.round.norm_eps or torch.finfo(w.dtype).tiny)
        return gradient(w - self.rho / norm * first.repeat_interleave(sizes, output_size=around.space.dimension))

    def remember(self, client: State, server: State) -> None:
        """Nothing."""


def _of_the_base(default: float) -> Any:
    return tyro.conf.arg(metavar="FLOAT", help_behavior_hint=f"(default: {default})")


@dataclass(frozen=True)
class FedLESAM(Combination):
    """Locally estimated global perturbation: uphill is back to the model the client received the last time.

    Client: its base's step with g(w + ρ (w^old − w^t)/‖w^old − w^t‖) for g(w): one gradient a step, and one
    perturbation for all steps of a round; w^old is the server's model as the client last received it.
    Server: as the base.  The bases are FedAvg (FedLESAM), SCAFFOLD (FedLESAM-S) and FedDyn (FedLESAM-D); the ascent
    alone goes with any other algorithm too (``--ascent lesam``).

    Variant official, the authors' code: w^old is the model one round ago, the same for all clients; one coordinate of
    the flat w^old − w^t, that of the tensor's number, is taken for each whole parameter tensor, and the norm is the
    sum of these coordinates' sizes; and FedLESAM-S multiplies c − c_i by α.  The change of the model is then sent too.
    Traffic per sampled client: as the base (one model down, one up; with SCAFFOLD two and two).

    Example:
        >>> from trainers import FedLESAM
        >>> algorithm = FedLESAM(rho=0.5, base="feddyn", alpha=0.3)
        >>> algorithm.ascent, algorithm.base_algorithm
        (LESAM(rho=0.5), FedDyn(alpha=0.3, sizes='equal', proximal='full'))
        >>> FedLESAM(alpha=0.3)
        Traceback (most recent call last):
            ...
        landscape.errors.FedscapeError: FedLESAM on fedavg has no alpha: leave out --alpha, or give --base feddyn
    """

    paper = "Fan et al., ICML 2024, Algorithm 1"

    rho: float = 0.05
    """ρ, length of the perturbation; 0 is the base"""
    base: Literal["fedavg", "scaffold", "feddyn"] = "fedavg"
    """what it perturbs: fedavg (FedLESAM), scaffold (FedLESAM-S) or feddyn (FedLESAM-D)"""
    alpha: Annotated[float | None, _of_the_base(0.1)] = None
    """α of the base feddyn, weight of its regulariser; of the official scaffold, the factor of c − c_i"""
    server_lr: Annotated[float | None, _of_the_base(1.0)] = None
    """η_g of the bases fedavg and scaffold, the server's rate"""
    variant: Literal["paper", "official"] = "paper"
    """official: the authors' code, whose perturbation has one number for each parameter tensor"""

    def __post_init__(self) -> None:
        LESAM(self.rho)
        if self.base not in _BASES:
            raise FedscapeError(f"FedLESAM needs a base of fedavg, scaffold or feddyn, not base={self.base}")
        if self.variant not in ("paper", "official"):
            raise FedscapeError(f"FedLESAM needs a variant of paper or official, not {self.variant}")
        for name in _OPTIONS:
            having = [base for base, kind in _BASES.items() if name in _names(kind)]
            if self.variant == "official" and name == "alpha":
                having.append("scaffold")
            if getattr(self, name) is not None and self.base not in having:
                flag = name.replace("_", "-")
                raise FedscapeError(
                    f"FedLESAM on {self.base} has no {name}: leave out --{flag}, or give --base {' or '.join(having)}"
                )
        self.base_algorithm  # noqa: B018 - its class checks the values

    @cached_property
    def base_algorithm(self) -> Algorithm:
        """The base, with the options of its own that are given."""
        kind = _BASES[self.base]
        given = {name: getattr(self, name) for name in _OPTIONS if name in _names(kind)}
        return kind(**{name: value for name, value in given.items() if value is not None})

    @property
    def ascent(self) -> LESAM:
        """The LESAM part."""
        return LESAM(self.rho) if self.variant == "paper" else OfficialLESAM(self.rho)

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """As the base; officially the model's last change, 0 before the first, too."""
        change = {"change": torch.zeros_like(w)} if self.variant == "official" else {}
        return {**self.base_algorithm.server_state(w), **change}

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """As the base; officially the model's last change, too."""
        change = {"change": server.change} if self.variant == "official" else {}
        return {**self.base_algorithm.broadcast(server), **change}

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """As the base with the ascent's gradient; FedLESAM-S officially g + α(c − c_i)."""
        if self.variant == "official" and self.base == "scaffold":
            return gradient(w) + self._factor * (server.c - client.c)
        return self.base_algorithm.direction(w, gradient, client, server, round)

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """As the base; officially the model's change is kept, too."""
        before = server.w
        self.base_algorithm.server_step(server, mean, round)
        if self.variant == "official":
            server.change = server.w - before

    @property
    def _factor(self) -> float:
        return 0.1 if self.alpha is None else self.alpha

    def hyper_parameters(self) -> dict[str, Any]:
        """The radius, the base, the base's own hyper-parameters with their values, and the variant."""
        bases = self.base_algorithm.hyper_parameters()
        own = {name: bases[name] for name in _OPTIONS if name in bases}
        if self.variant == "official" and self.base == "scaffold":
            own["alpha"] = self._factor
        return {"rho": self.rho, "base": self.base, **own, "variant": self.variant}

    def upgraded(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """As any algorithm's; an earlier version recorded α, without effect, where the base has none."""
        variant = recorded.get("variant", "paper")
        defaults = FedLESAM(base=recorded["base"], variant=variant).hyper_parameters()
        has = {"name", *defaults}
        return {**defaults, **{name: value for name, value in recorded.items() if name in has}}


def _names(kind: type[Algorithm]) -> list[str]:
    return [each.name for each in fields(kind)]
