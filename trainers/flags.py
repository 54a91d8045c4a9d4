"""The parts of a run on the command line: ``--ascent asam --rho 0.7 --man 0.15 --swa --mixup``."""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass, replace
from typing import Annotated, Any, Literal

import tyro

from landscape.activations import MAN
from landscape.errors import FedscapeError
from trainers.algorithm import Algorithm
from trainers.algorithms import FedASAM, FedGSAM, FedSAM
from trainers.parts.parts import Parts
from trainers.parts.server_optimizers import Adagrad, Adam, Momentum, Yogi
from trainers.parts.swa import SWA
from trainers.settings import optional

_ASCENTS = {"sam": FedSAM().ascent, "asam": FedASAM().ascent, "gsam": FedGSAM().ascent}
_OPTIMIZERS = {"momentum": Momentum(), "adam": Adam(), "adagrad": Adagrad(), "yogi": Yogi()}
_CUTOUT = 16


def _by_default(field: str, parts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {getattr(part, field):g}" for name, part in parts.items() if hasattr(part, field))


@dataclass(frozen=True)
class PartFlags:
    """Parts that go with any algorithm where they make sense (``python -m trainers list`` says where)."""

    ascent: Annotated[Literal["sam", "asam", "gsam"] | None, optional("{sam,asam,gsam}", "none")] = None
    """where local gradients are taken: SAM, adaptive SAM, or SAM that closes the surrogate gap"""
    rho: Annotated[float | None, optional("FLOAT", _by_default("rho", _ASCENTS))] = None
    """ρ, radius of the ascent step"""
    eta: Annotated[float | None, optional("FLOAT", _by_default("eta", _ASCENTS))] = None
    """η, added to |w| in ASAM's scaling"""
    gsam_alpha: Annotated[float | None, optional("FLOAT", _by_default("alpha", _ASCENTS))] = None
    """α, weight of GSAM's ascent across SAM's gradient"""
    man: Annotated[float | None, optional("ZETA", "none")] = None
    """ζ, weight of the penalty on activation norms (MAN) in the local loss"""
    man_variant: Literal["paper", "half"] = "paper"
    """half: ζ/2 in ζ's place, as in the authors' code"""
    man_layers: Annotated[tuple[str, ...] | None, optional("GLOB [GLOB ...]", "all")] = None
    """layers whose activations MAN penalises, by name"""
    swa: bool = False
    """average the server's models along a cyclic local rate (SWA), into swa.pt"""
    swa_start: Annotated[float | None, optional("SHARE", f"{SWA.start:g}")] = None
    """share of the rounds before averaging begins"""
    swa_cycle: Annotated[int | None, optional("ROUNDS", f"{SWA.cycle}")] = None
    """c, rounds of a cycle of the rate"""
    swa_lr: Annotated[float | None, optional("FLOAT", f"{SWA.lr:g}")] = None
    """γ2, the lowest local rate of a cycle"""
    mixup: bool = False
    """mix pairs of samples in each local batch"""
    cutout: bool = False
    """set a square of each training image to the mean"""
    cutout_size: Annotated[int | None, optional("PIXELS", f"{_CUTOUT}")] = None
    """the square's side"""
    server_optimizer: Annotated[
        Literal["momentum", "adam", "adagrad", "yogi"] | None, optional("{momentum,adam,adagrad,yogi}", "none")
    ] = None
    """what the server makes of the clients' mean change"""
    server_optimizer_lr: Annotated[float | None, optional("FLOAT", _by_default("lr", _OPTIMIZERS))] = None
    """the server optimiser's rate; the algorithm's own --server-lr multiplies what comes out of it"""
    server_beta: Annotated[float | None, optional("FLOAT", _by_default("beta", _OPTIMIZERS))] = None
    """β, the server's momentum"""
    server_beta1: Annotated[float | None, optional("FLOAT", _by_default("beta1", _OPTIMIZERS))] = None
    """β1, decay of the first moment"""
    server_beta2: Annotated[float | None, optional("FLOAT", _by_default("beta2", _OPTIMIZERS))] = None
    """β2, decay of the second moment"""
    server_tau: Annotated[float | None, optional("FLOAT", _by_default("tau", _OPTIMIZERS))] = None
    """τ, the degree of adaptivity"""

    def parts(self) -> Parts:
        """The parts asked for.

        Raises:
            FedscapeError: an option without its part, or numbers that make no sense.
        """
        half = True if self.man_variant == "half" else None
        return Parts(
            ascent=_changed(
                _ASCENTS.get(self.ascent or ""),
                f"--ascent {self.ascent or ''}",
                [("--rho", "rho", self.rho), ("--eta", "eta", self.eta), ("--gsam-alpha", "alpha", self.gsam_alpha)],
            ),
            man=_changed(
                None if self.man is None else MAN(self.man),
                "--man ZETA",
                [("--man-variant", "half", half), ("--man-layers", "layers", self.man_layers)],
            ),
            swa=_changed(
                SWA() if self.swa else None,
                "--swa",
                [
                    ("--swa-start", "start", self.swa_start),
                    ("--swa-cycle", "cycle", self.swa_cycle),
                    ("--swa-lr", "lr", self.swa_lr),
                ],
            ),
            mixup=self.mixup,
            cutout=_side(self.cutout, self.cutout_size),
            server_optimizer=_changed(
                _OPTIMIZERS.get(self.server_optimizer or ""),
                f"--server-optimizer {self.server_optimizer or ''}",
                [
                    ("--server-optimizer-lr", "lr", self.server_optimizer_lr),
                    ("--server-beta", "beta", self.server_beta),
                    ("--server-beta1", "beta1", self.server_beta1),
                    ("--server-beta2", "beta2", self.server_beta2),
                    ("--server-tau", "tau", self.server_tau),
                ],
            ),
        )


def part_flags(kind: type[Algorithm]) -> type[PartFlags]:
    """The flags that go with an algorithm: where it has a field of a flag's name, the flag is that field."""
    taken = [field.name for field in fields(kind) if field.name in PartFlags.__dataclass_fields__]
    absent = tyro.conf.Suppress[tyro.conf.Fixed[float | None]]
    return make_dataclass(
        "PartFlags",
        [(name, absent, None) for name in taken],
        bases=(PartFlags,),
        namespace={"__doc__": PartFlags.__doc__},
        frozen=True,
    )


def _changed(part: Any, chosen: str, options: list[tuple[str, str, Any]]) -> Any:
    """A part with some of its fields changed; ``options`` are (flag, field, value or ``None``)."""
    given = {flag: (field, value) for flag, field, value in options if value is not None}
    for flag, (field, _) in given.items():
        if part is None:
            raise FedscapeError(f"{flag} is an option of {chosen.strip()}: give that too")
        if not hasattr(part, field):
            raise FedscapeError(f"{flag} is no option of {chosen}")
    return replace(part, **dict(given.values())) if given else part


def _side(cutout: bool, size: int | None) -> int:
    if size is None:
        return _CUTOUT if cutout else 0
    if not cutout:
        raise FedscapeError("--cutout-size is an option of --cutout: give that too")
    if size < 1:
        raise FedscapeError(f"--cutout-size is {size}: give at least 1")
    return size
