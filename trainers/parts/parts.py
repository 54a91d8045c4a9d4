"""The parts of a run: ascent, MAN, server SWA, mixup, cutout, optimisers, an adversary, differential privacy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from landscape.activations import MAN
from landscape.errors import FedscapeError
from trainers.parts.adversary import Adversary
from trainers.parts.ascent import Ascent
from trainers.parts.local_optimizers import LocalOptimizer
from trainers.parts.local_schedules import Linear
from trainers.parts.privacy import ClientPrivacy
from trainers.parts.server_optimizers import ServerOptimizer
from trainers.parts.start import Relaxed
from trainers.parts.swa import SWA

OWN = {
    "ascent": "ascent",
    "server_optimizer": "server_optimizer",
    "adversary": "adversary",
    "local_schedule": "local_schedule",
    "start": "relaxed",
}
"""Parts that an algorithm may have of its own, and its attribute that holds it."""


class HasParts(Protocol):
    """What :meth:`Parts.check` asks of an algorithm: the parts of its own, and those that it cannot be combined with.

    A protocol, because algorithms import parts and not the other way round.
    """

    @property
    def ascent(self) -> Ascent | None: ...

    @property
    def server_optimizer(self) -> ServerOptimizer | None: ...

    @property
    def adversary(self) -> Adversary | None: ...

    @property
    def local_schedule(self) -> Linear | None: ...

    @property
    def relaxed(self) -> Relaxed | None: ...

    @property
    def excludes(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Parts:
    """The parts of a run that are added to its algorithm; none unless given.

    Attributes:
        ascent: where the gradients of local steps are taken: ``SAM(0.05)``, ``ASAM(0.7, 0.2)``, ``GSAM(0.05, 0.1)``,
            ``LESAM(0.05)``.
        man: the penalty on activation norms added to the local loss.
        swa: averaging of server models.
        mixup: pairs of samples of each local batch are mixed, one λ ~ Beta(1, 1) a batch (Zhang et al., ICLR 2018).
        cutout: side of the square set to the mean in each training image (DeVries & Taylor, 2017); 0: none.
        server_optimizer: how the server turns the mean change into its step: ``Momentum(0.9)``, ``Adam()``, ...
        adversary: what moves the inputs of each client uphill while its model descends: ``Affine()``.
        local_optimizer: how a client turns a direction into its step: ``LocalMomentum(0.9)``, ``LocalAdamW()``; plain
            SGD unless given.
        local_schedule: the local rate over the steps of a round: ``Linear(0.1)``; the same for all unless given.
        start: where clients begin: ``Relaxed(0.1)``; at the model they receive unless given.
        dp: what is sent is clipped and noised: ``ClientPrivacy(1.0, clip=0.2)``.

    Example:
        >>> from trainers import SAM, SWA, FedSAM, Parts, Scaffold
        >>> parts = Parts(ascent=SAM(0.05), swa=SWA(cycle=5))
        >>> recorded = parts.recorded()
        >>> recorded["ascent"], recorded["swa"]["cycle"], recorded["swa"]["variant"]
        ({'name': 'sam', 'rho': 0.05}, 5, 'paper')
        >>> parts.check(Scaffold())
        >>> parts.check(FedSAM())
        Traceback (most recent call last):
            ...
        landscape.errors.FedscapeError: FedSAM has its own ascent (SAM): two make no sense, leave out --ascent
    """

    ascent: Ascent | None = None
    man: MAN | None = None
    swa: SWA | None = None
    mixup: bool = False
    cutout: int = 0
    server_optimizer: ServerOptimizer | None = None
    adversary: Adversary | None = None
    local_optimizer: LocalOptimizer | None = None
    local_schedule: Linear | None = None
    start: Relaxed | None = None
    dp: ClientPrivacy | None = None

    def __post_init__(self) -> None:
        if self.cutout < 0:
            raise FedscapeError(f"the cutout square's side is {self.cutout}: give 0 (none) or more")

    def chosen(self) -> dict[str, Any]:
        """The parts that are given, by name."""
        return {name: part for name, part in vars(self).items() if part}

    def recorded(self) -> dict[str, Any]:
        """The parts that are given with their hyper-parameters, as ``config.json`` stores them."""
        plain = {}
        for name, part in self.chosen().items():
            is_value = hasattr(part, "__dataclass_fields__")
            plain[name] = {"name": type(part).__name__.lower(), **asdict(part)} if is_value else part
        return plain

    def check(self, algorithm: HasParts) -> None:
        """Check that these parts can be combined with an algorithm.

        Raises:
            FedscapeError: the algorithm has a part of its own in the same place, or excludes the part.
        """
        name = type(algorithm).__name__
        for own, attribute in OWN.items():
            there = getattr(algorithm, attribute)
            if there is not None and getattr(self, own) is not None:
                what = own.replace("_", " ")
                flag = f"--{own.replace('_', '-')}"
                raise FedscapeError(
                    f"{name} has its own {what} ({type(there).__name__}): two make no sense, leave out {flag}"
                )
        for part, reason in algorithm.excludes.items():
            if part in self.chosen():
                raise FedscapeError(f"{name} cannot be combined with --{part.replace('_', '-')}: {reason}")
        optimizer = self.server_optimizer or algorithm.server_optimizer
        hides = isinstance(self.dp, ClientPrivacy) and self.dp.noise > 0
        if hides and optimizer is not None and optimizer.counts_clients:
            raise FedscapeError(
                f"{name} with {type(optimizer).__name__} on the server cannot be combined with --dp: its step depends "
                "on how many clients came, which no noise hides"
            )
        local = self.local_optimizer
        if optimizer is not None and local is not None and (reason := optimizer.refusal(local)):
            told = f"{name} with {type(optimizer).__name__} on the server"
            raise FedscapeError(f"{told} cannot be combined with this --local-optimizer: {reason}")
