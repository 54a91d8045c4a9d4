"""The parts of a run on the command line: ``--ascent asam --rho 0.7 --man 0.15 --swa --mixup``.

The options of a part are the fields of its dataclass, with their types, defaults and docstrings; :data:`FLAGS` names
the dataclasses behind each flag.  To put a new part on the command line, add its class there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any, Literal, get_origin

import tyro

from landscape.activations import MAN
from landscape.errors import FedscapeError
from trainers.algorithm import Algorithm
from trainers.parts.adversary import Affine
from trainers.parts.ascent import ASAM, GSAM, LESAM, SAM
from trainers.parts.local_optimizers import LocalAdamW, LocalMomentum, LocalOptimizer
from trainers.parts.local_schedules import Linear
from trainers.parts.options import described, field_docstrings, field_type
from trainers.parts.parts import Parts
from trainers.parts.privacy import ClientPrivacy
from trainers.parts.server_optimizers import Adagrad, Adam, Momentum, Yogi
from trainers.parts.server_steps import Extrapolation, Nesterov, Normalised
from trainers.parts.sol import SOL
from trainers.parts.start import Relaxed
from trainers.parts.swa import SWA
from trainers.settings import optional

# Written with run-time values, which type checkers refuse in Annotated[...] and Literal[...].
_annotated: Any = Annotated
_literal: Any = Literal


@dataclass(frozen=True)
class _MAN:
    """MAN as the command line has it: ``half`` is a variant by name."""

    zeta: float
    """ζ, weight of the penalty on activation norms (MAN) in the local loss"""
    variant: Literal["paper", "half"] = "paper"
    """half: ζ/2 in ζ's place, as in the authors' code"""
    layers: Annotated[tuple[str, ...], optional("GLOB [GLOB ...]", "all")] = ("*",)
    """layers whose activations MAN penalises, by name"""

    variance: Annotated[tuple[str, ...], optional("GLOB [GLOB ...]", "none")] = ()
    """layers whose activations' variance over the batch is penalised too, by name (a slip of the authors' code)"""

    def part(self) -> MAN:
        """The part of a run."""
        return MAN(self.zeta, self.layers, half=self.variant == "half", variance=self.variance)

    @staticmethod
    def recorded(part: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a recorded part."""
        variance = part.get("variance", ())  # earlier versions have none
        half = "half" if part["half"] else "paper"
        return {"zeta": part["zeta"], "variant": half, "layers": part["layers"], "variance": variance}


@dataclass(frozen=True)
class _Cutout:
    """Cutout as the command line has it: the side of the square is an option."""

    size: Annotated[int, tyro.conf.arg(metavar="PIXELS")] = 16
    """the square's side"""

    @staticmethod
    def recorded(part: int) -> dict[str, Any]:
        """The fields of a recorded part."""
        return {"size": part}

    def part(self) -> int:
        """The part of a run: the side.

        Raises:
            FedscapeError: it is below 1.
        """
        if self.size < 1:
            raise FedscapeError(f"--cutout-size is {self.size}: give at least 1")
        return self.size


@dataclass(frozen=True)
class _SGD:
    """Plain local steps: the run has no such part."""


def _local_optimizer(chosen: _SGD | LocalOptimizer) -> LocalOptimizer | None:
    return None if isinstance(chosen, _SGD) else chosen


@dataclass(frozen=True)
class Flag:
    """The flag of a part, and the options that are the fields of its dataclasses.

    Attributes:
        name: of the flag, and of the field of :class:`Parts`.
        kinds: the dataclasses that the flag chooses from, by name; a single one has the name ``""``; a part without
            options has none.
        help: what ``--help`` says of the flag; that of ``number`` where there is one.
        prefix: begins the name of each option, unless ``renamed`` (field -> name) has another one.
        number: the field that the flag itself gives, as in ``--man ZETA``.
        made: makes the part of a run from the dataclass, where that is not the part itself.
        fields_of: makes the dataclass's fields from what ``config.json`` has of the part, the other way round.

    Example:
        >>> from trainers.flags import Flag
        >>> from trainers.parts.server_optimizers import Adagrad, Momentum
        >>> flag = Flag("server_optimizer", {"momentum": Momentum, "adagrad": Adagrad}, prefix="server_")
        >>> flag.options()
        {'server_lr': 'lr', 'server_beta': 'beta', 'server_beta1': 'beta1', 'server_tau': 'tau', 'server_v0': 'v0'}
        >>> flag.part({"server_optimizer": "momentum", "server_beta": 0.5})
        Momentum(beta=0.5, lr=1.0)
    """

    name: str
    kinds: Mapping[str, type]
    help: str = ""
    prefix: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    number: str = ""
    made: Callable[[Any], Any] = lambda part: part
    fields_of: Callable[[Any], Mapping[str, Any]] = lambda recorded: recorded

    def options(self) -> dict[str, str]:
        """The field of each option, by the option's name; fields that all dataclasses have come first."""
        count: dict[str, int] = {}
        for kind in self.kinds.values():
            for each in fields(kind):
                count[each.name] = count.get(each.name, 0) + 1
        count.pop(self.number, None)
        names = sorted(count, key=lambda name: count[name] < len(self.kinds))
        return {self.renamed.get(name, self.prefix + name): name for name in names}

    def arguments(self) -> Iterator[tuple[str, Any, Any]]:
        """Name, type and default of the flag and of each option, as tyro takes them."""
        if self.number:
            text = " ".join(field_docstrings(self.kinds[""])[self.number].split())
            shown = tyro.conf.arg(help=text, metavar=self.number.upper(), help_behavior_hint="(default: none)")
            yield self.name, _annotated[float | None, shown], None
        elif self.kinds.keys() <= {""}:
            yield self.name, _annotated[bool, tyro.conf.arg(help=self.help)], False
        else:
            names = tuple(self.kinds)
            metavar = "{" + ",".join(names) + "}"
            shown = tyro.conf.arg(help=self.help, metavar=metavar, help_behavior_hint="(default: none)")
            yield self.name, _annotated[_literal[names] | None, shown], None
        for option, name in self.options().items():
            yield option, *self._option(name)

    def _option(self, name: str) -> tuple[Any, Any]:
        """Type and default of the option that is a field; the default is ``None``, as dataclasses may differ in it."""
        having = {key: kind for key, kind in self.kinds.items() if name in _defaults(kind)}
        kind = next(iter(having.values()))
        plain, extras = field_type(kind, name)
        text = field_docstrings(kind)[name]
        if plain is bool:
            return _annotated[(plain, tyro.conf.arg(help=text), *extras)], _defaults(kind)[name]
        if get_origin(plain) is Literal:  # its help shows values and default without our words
            return described(kind, name), _defaults(kind)[name]
        values = [f"{key} {_shown(_defaults(other)[name])}".strip() for key, other in having.items()]
        metavar, default = getattr(plain, "__name__", "").upper(), f"(default: {', '.join(values)})"
        shown = tyro.conf.arg(help=text, metavar=metavar, help_behavior_hint=default)
        return _annotated[(plain | None, shown, *extras)], None

    def part(self, given: Mapping[str, Any]) -> Any:
        """The part that the arguments ask for; ``None`` without its flag.

        Raises:
            FedscapeError: an option without the flag, an option of another choice, or numbers that make no sense.
        """
        chosen = given.get(self.name)
        asked = chosen is not None and chosen is not False
        flag = f"{_flag(self.name)} {self.number.upper() or (chosen if isinstance(chosen, str) else '')}".strip()
        kind = self.kinds.get(chosen if isinstance(chosen, str) else "") if asked else None
        values = {self.number: chosen} if self.number and asked else {}
        options = self.options()
        for option, _, default in self.arguments():
            value = given.get(option, default)
            if option == self.name or value == default:
                continue
            if kind is None:
                raise FedscapeError(f"{_flag(option)} is an option of {flag}: give that too")
            if options[option] not in _defaults(kind):
                raise FedscapeError(f"{_flag(option)} is no option of {flag}")
            values[options[option]] = value
        if not asked:
            return None
        return True if kind is None else self.made(kind(**values))

    def applies(self, option: str, chosen: Any) -> bool:
        """Whether an option has a meaning where the flag is given so (false or ``None``: not given).

        Example:
            >>> from trainers.flags import FLAGS
            >>> FLAGS[0].name, FLAGS[0].applies("eta", "asam"), FLAGS[0].applies("eta", "sam")
            ('ascent', True, False)
        """
        if chosen is None or chosen is False:
            return False
        kind = self.kinds.get("") or self.kinds.get(chosen)
        return kind is not None and self.options()[option] in _defaults(kind)

    def recorded(self, part: Any) -> dict[str, Any]:
        """The flag and its options from what ``config.json`` has of a part.

        A kind that the flag does not know has its recorded name, and no options.
        """
        if self.kinds.keys() <= {""}:
            name, kind = "", self.kinds.get("")
        else:
            known = {other.__name__.lower(): name for name, other in self.kinds.items()}
            name = known.get(part["name"], part["name"])
            kind = self.kinds.get(name)
        values = {} if kind is None else dict(self.fields_of(part))
        found = {option: values[field] for option, field in self.options().items() if field in values}
        return {self.name: values[self.number] if self.number else name or True, **found}


FLAGS = (
    Flag(
        "ascent",
        {"sam": SAM, "asam": ASAM, "gsam": GSAM, "lesam": LESAM, "sol": SOL},
        "where local gradients are taken: SAM, adaptive SAM, SAM that closes the surrogate gap, back towards the "
        "model that the client received the last time, or where predictions leave the server's (sol)",
        renamed={"alpha": "gsam_alpha", "temperature": "sol_temperature", "strength": "sol_strength"},
    ),
    Flag("man", {"": _MAN}, prefix="man_", number="zeta", made=_MAN.part, fields_of=_MAN.recorded),
    Flag("swa", {"": SWA}, "average the server's models along a cyclic local rate (SWA), into swa.pt", prefix="swa_"),
    Flag("mixup", {}, "mix pairs of samples in each local batch"),
    Flag(
        "cutout",
        {"": _Cutout},
        "set a square of each training image to the mean",
        prefix="cutout_",
        made=_Cutout.part,
        fields_of=_Cutout.recorded,
    ),
    Flag(
        "server_optimizer",
        {
            "momentum": Momentum,
            "adam": Adam,
            "adagrad": Adagrad,
            "yogi": Yogi,
            "nesterov": Nesterov,
            "extrapolation": Extrapolation,
            "normalised": Normalised,
        },
        "what the server makes of the clients' mean change: momentum, adaptive steps, momentum that looks ahead "
        "(FedACG's), a step as long as the changes point apart (FedExP's), or changes divided by the clients' steps "
        "(FedNova's)",
        prefix="server_",
        renamed={"lr": "server_optimizer_lr"},
    ),
    Flag(
        "adversary",
        {"affine": Affine},
        "what moves each client's inputs uphill while its model descends: an affine map",
        prefix="adversary_",
        renamed={"ascent_lr": "adversary_lr"},
    ),
    Flag(
        "local_optimizer",
        {"sgd": _SGD, "momentum": LocalMomentum, "adamw": LocalAdamW},
        "what a client makes of its directions, at the rate --lr (adamw wants a far smaller one, such as 0.001): plain "
        "steps (sgd, as without it), heavy-ball momentum with the weight decay in it, or AdamW with it decoupled",
        prefix="local_",
        made=_local_optimizer,
    ),
    Flag(
        "local_schedule",
        {"linear": Linear},
        "the local rate over the steps of a round: a straight line down (FedSWA's); without it the same for all",
        prefix="local_schedule_",
    ),
    Flag(
        "start",
        {"relaxed": Relaxed},
        "where clients begin: relaxed, beyond the model they receive, away from where they ended the last time "
        "(FedInit's); without it there",
        prefix="start_",
    ),
    Flag("dp", {"": ClientPrivacy}, prefix="dp_", number="noise"),
)


@dataclass(frozen=True)
class PartFlags:
    """Parts that go with any algorithm where they make sense (`fedscape algorithms` says where)."""

    def parts(self) -> Parts:
        """The parts asked for.

        Raises:
            FedscapeError: an option without its part, or numbers that make no sense.
        """
        parts = {flag.name: flag.part(vars(self)) for flag in FLAGS}
        return Parts(**{name: part for name, part in parts.items() if part is not None})


def part_flags(kind: type[Algorithm]) -> type[PartFlags]:
    """The flags that go with an algorithm: where it has a field of a flag's name, that flag is the algorithm's."""
    own = {each.name for each in fields(kind)}
    return make_dataclass(
        "PartFlags",
        [argument for flag in FLAGS for argument in flag.arguments() if argument[0] not in own],
        bases=(PartFlags,),
        namespace={"__doc__": PartFlags.__doc__},
        frozen=True,
    )


def without_idle(
    values: Mapping[str, Any], kind: type[Algorithm], flags: Sequence[str] | None = None
) -> dict[str, Any]:
    """Options without those of parts that are not chosen, or have no such option in the kind that is.

    Args:
        values: options by name with underscores, flags among them.
        kind: the algorithm, whose own options always apply.
        flags: of which parts; of all unless given.

    Example:
        >>> from trainers import FedAvg
        >>> from trainers.flags import without_idle
        >>> without_idle({"ascent": "sam", "rho": 0.1, "eta": 0.2, "lr": 0.1, "swa_cycle": 5}, FedAvg)
        {'ascent': 'sam', 'rho': 0.1, 'lr': 0.1}
    """
    own = {each.name for each in fields(kind)}
    idle = {
        option
        for flag in FLAGS
        if flags is None or flag.name in flags
        for option in flag.options()
        if option in values and option not in own and not flag.applies(option, values.get(flag.name))
    }
    return {name: value for name, value in values.items() if name not in idle}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _defaults(kind: type) -> dict[str, Any]:
    return {each.name: each.default for each in fields(kind)}
