"""SAM whose perturbation is the change of the server's model since the client last saw it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any, Literal

import tyro

from landscape.errors import FedscapeError
from trainers.algorithm import Algorithm
from trainers.algorithms.combination import Combination
from trainers.algorithms.fedavg import FedAvg
from trainers.algorithms.feddyn import FedDyn
from trainers.algorithms.scaffold import Scaffold
from trainers.parts.ascent import LESAM

_BASES: dict[str, type[Algorithm]] = {"fedavg": FedAvg, "scaffold": Scaffold, "feddyn": FedDyn}
_OPTIONS = ("alpha", "server_lr")


def _of_the_base(default: float) -> Any:
    return tyro.conf.arg(metavar="FLOAT", help_behavior_hint=f"(default: {default})")


@dataclass(frozen=True)
class FedLESAM(Combination):
    """Locally estimated global perturbation: uphill is back to the model the client received the last time.

    Client: its base's step with g(w + ρ (w^old − w^t)/‖w^old − w^t‖) for g(w): one gradient a step, and one
    perturbation for all steps of a round; w^old is the server's model as the client last received it.
    Server: as the base.  The bases are FedAvg (FedLESAM), SCAFFOLD (FedLESAM-S) and FedDyn (FedLESAM-D); the ascent
    alone goes with any other algorithm too (``--ascent lesam``).

    The authors' code departs from their paper: its w^old is the model one round ago, the same for all clients; it
    takes one coordinate of the flat difference for each parameter tensor; and FedLESAM-S scales c − c_i by
    FedDyn's α.  The paper's form is the one here.
    Traffic per sampled client: as the base (one model down, one up; with SCAFFOLD two and two).

    Example:
        >>> from trainers import FedLESAM
        >>> algorithm = FedLESAM(rho=0.5, base="feddyn", alpha=0.3)
        >>> algorithm.ascent, algorithm.base_algorithm
        (LESAM(rho=0.5), FedDyn(alpha=0.3))
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
    """α of the base feddyn, weight of its regulariser"""
    server_lr: Annotated[float | None, _of_the_base(1.0)] = None
    """η_g of the bases fedavg and scaffold, the server's rate"""

    def __post_init__(self) -> None:
        LESAM(self.rho)
        if self.base not in _BASES:
            raise FedscapeError(f"FedLESAM needs a base of fedavg, scaffold or feddyn, not base={self.base}")
        for name in _OPTIONS:
            having = [base for base, kind in _BASES.items() if name in _names(kind)]
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
        given = {name: getattr(self, name) for name in _names(kind)}
        return kind(**{name: value for name, value in given.items() if value is not None})

    @property
    def ascent(self) -> LESAM:
        """The LESAM part."""
        return LESAM(self.rho)

    def hyper_parameters(self) -> dict[str, Any]:
        """The radius, the base, and the base's own hyper-parameters with their values."""
        return {"rho": self.rho, "base": self.base, **self.base_algorithm.hyper_parameters()}

    def upgraded(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """As any algorithm's; an earlier version recorded α, without effect, where the base has none."""
        has = {"name", "rho", "base", *_names(_BASES[recorded["base"]])}
        defaults = FedLESAM(base=recorded["base"]).hyper_parameters()
        return {**defaults, **{name: value for name, value in recorded.items() if name in has}}


def _names(kind: type[Algorithm]) -> list[str]:
    return [each.name for each in fields(kind)]
