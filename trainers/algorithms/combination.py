"""Algorithms that are another one with parts: an ascent, a server optimiser, a start, a schedule, an adversary."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from landscape.errors import FedscapeError
from trainers.algorithm import PERTURBED, Algorithm, Gradient, LocalData, Mean, Round, State
from trainers.parts.adversary import Adversary
from trainers.parts.ascent import Ascent
from trainers.parts.local_schedules import Linear
from trainers.parts.options import described
from trainers.parts.server_optimizers import ServerOptimizer
from trainers.parts.start import Relaxed


class Combination(Algorithm):
    """An algorithm whose arithmetic is that of its base; a subclass says which base and parts it has."""

    @property
    def base_algorithm(self) -> Algorithm:
        """The algorithm that the parts are added to."""
        raise NotImplementedError

    @property
    def bias(self) -> str:
        """The base's, with what the parts add to it."""
        moved = "moved inputs" if self.adversary else ""
        perturbed = PERTURBED if getattr(self.ascent, "rho", 0.0) > 0 else ""
        return ", ".join(filter(None, [moved, self.base_algorithm.bias or perturbed]))

    @property
    def excludes(self) -> Mapping[str, str]:  # type: ignore[override]
        """As the base, and what the server optimiser rules out."""
        counts = self.server_optimizer is not None and self.server_optimizer.counts_clients
        hidden = {"dp": "its server's step depends on how many clients came, which no noise hides"} if counts else {}
        return {**self.base_algorithm.excludes, **hidden}

    @property
    def on_server(self) -> frozenset[str]:  # type: ignore[override]
        """As the base."""
        return self.base_algorithm.on_server

    @property
    def proximal_weight(self) -> float:
        """As the base."""
        return self.base_algorithm.proximal_weight

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """As the base."""
        return self.base_algorithm.client_state(w)

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """As the base."""
        return self.base_algorithm.server_state(w)

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """As the base."""
        return self.base_algorithm.broadcast(server)

    @property
    def perturbs(self) -> bool:  # type: ignore[override]
        """As the base."""
        return self.base_algorithm.perturbs

    def server_perturbation(self, server: State) -> Tensor | None:
        """As the base."""
        return self.base_algorithm.server_perturbation(server)

    @property
    def two_phases(self) -> bool:  # type: ignore[override]
        """As the base."""
        return self.base_algorithm.two_phases

    def ask(self, client: State, server: State, data: LocalData, round: Round) -> dict[str, Tensor]:
        """As the base."""
        return self.base_algorithm.ask(client, server, data, round)

    def answer(self, server: State, mean: Mean, round: Round) -> dict[str, Tensor]:
        """As the base."""
        return self.base_algorithm.answer(server, mean, round)

    def prepare(self, client: State, server: State, data: LocalData, round: Round) -> None:
        """As the base."""
        self.base_algorithm.prepare(client, server, data, round)

    def start(self, client: State, server: State, round: Round) -> Tensor:
        """As the base."""
        return self.base_algorithm.start(client, server, round)

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """As the base, with the ascent's gradient."""
        return self.base_algorithm.direction(w, gradient, client, server, round)

    def pull(self, client: State) -> float | Tensor:
        """As the base."""
        return self.base_algorithm.pull(client)

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """As the base."""
        return self.base_algorithm.upload(w, client, server, round, steps)

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """As the base."""
        self.base_algorithm.server_step(server, mean, round)


@dataclass(frozen=True)
class Option:
    """A hyper-parameter of a named combination: its default and help there, and whose field it is.

    Attributes:
        default: its value unless given.
        help: what ``--help`` says of it.
        of: the field of the part or base, where that has another name.
    """

    default: Any
    help: str
    of: str = ""


class _Named(Combination):
    """What :func:`named` makes: ``kinds`` are the classes of base and parts, ``sources`` tells whose field each
    hyper-parameter is, and which.
    """

    kinds: ClassVar[Mapping[str, type]]
    sources: ClassVar[Mapping[str, tuple[str, str]]]

    def __post_init__(self) -> None:
        for part in self.kinds:
            try:
                self._made(part)
            except FedscapeError as error:
                raise FedscapeError(f"{type(self).__name__}: {error}") from error

    @cached_property
    def base_algorithm(self) -> Algorithm:
        """The algorithm that the parts are added to."""
        return self._made("base")

    @property
    def ascent(self) -> Ascent | None:
        """The ascent part."""
        return self._made("ascent")

    @property
    def server_optimizer(self) -> ServerOptimizer | None:
        """The server optimiser."""
        return self._made("server_optimizer")

    @property
    def adversary(self) -> Adversary | None:
        """The adversary."""
        return self._made("adversary")

    @property
    def local_schedule(self) -> Linear | None:
        """The schedule of the local rate within a round."""
        return self._made("local_schedule")

    @property
    def relaxed(self) -> Relaxed | None:
        """The start of the clients."""
        return self._made("relaxed")

    def _made(self, part: str) -> Any:
        if part not in self.kinds:
            return None
        values = {there: getattr(self, name) for name, (whose, there) in self.sources.items() if whose == part}
        return self.kinds[part](**values)


def named(
    name: str,
    base: type[Algorithm],
    parts: Mapping[str, type],
    options: Mapping[str, Option],
    *,
    paper: str,
    text: str,
) -> type[Any]:
    """The dataclass of a named combination.

    Its hyper-parameters are ``options``, then every other field of the parts and of the base, with its own default and
    help; a field whose name is taken by then stays at its default.

    Args:
        name: of the class.
        base: the algorithm that the parts are added to.
        parts: classes by the name of the property: ``ascent``, ``server_optimizer``, ``adversary``,
            ``local_schedule``, ``relaxed``.
        options: hyper-parameters with their defaults and help, in order of position.
        paper: as that of :class:`Algorithm`.
        text: the class's docstring.

    Raises:
        TypeError: an option that is no field of the parts or the base.

    Example:
        >>> from trainers import SAM, FedProx
        >>> from trainers.algorithms.combination import Option, named
        >>> radius = {"rho": Option(0.1, "ρ, radius")}
        >>> told = {"paper": "ours", "text": "FedProx on SAM's gradient."}
        >>> FedProxSAM = named("FedProxSAM", FedProx, {"ascent": SAM}, radius, **told)
        >>> algorithm = FedProxSAM(0.3, mu=0.5)
        >>> algorithm, algorithm.ascent, algorithm.base_algorithm
        (FedProxSAM(rho=0.3, mu=0.5, proximal='full'), SAM(rho=0.3), FedProx(mu=0.5, proximal='full'))
    """
    kinds = {**parts, "base": base}
    there = [(part, each.name) for part, kind in kinds.items() for each in fields(kind)]
    sources = {}
    for option, told in options.items():
        found = [place for place in there if place[1] == (told.of or option)]
        if not found:
            raise TypeError(f"{name}: no part has the field {told.of or option}")
        sources[option] = found[0]
    for place in there:
        if place not in sources.values():
            sources.setdefault(place[1], place)
    body = {"__doc__": text, "paper": paper, "kinds": kinds, "sources": sources}
    made = make_dataclass(name, _arguments(kinds, sources, options), bases=(_Named,), namespace=body, frozen=True)
    # As in collections.namedtuple: the class belongs to the module that asks for it, where pickle looks it up.  From
    # Python 3.12 on make_dataclass says that it belongs to this one.
    made.__module__ = sys._getframe(1).f_globals["__name__"]
    return made


def _arguments(
    kinds: Mapping[str, type], sources: Mapping[str, tuple[str, str]], options: Mapping[str, Option]
) -> Iterator[tuple[str, Any, Any]]:
    for name, (part, there) in sources.items():
        (own,) = (each for each in fields(kinds[part]) if each.name == there)
        told = options.get(name, Option(own.default, ""))
        yield name, described(kinds[part], there, told.help), field(default=told.default)
