"""The specification of a partition as text: ``dirichlet:0.1+replacement+sizes:0.3``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from landscape.errors import FedscapeError
from landscape.registry import unknown_name


@dataclass(frozen=True)
class Spec:
    """The specification of a partition.

    Attributes:
        name: iid, dirichlet, dirichlet-hsu, pathological, pam, natural, fl-simulator or fl-simulator-pathological.
        parameters: the numbers after the name.
        replacement: whether samples of a class that is used up are taken again.
        deviation: of the logarithm of the clients' sizes; 0: equal sizes.
    """

    name: str
    parameters: tuple[float, ...] = ()
    replacement: bool = False
    deviation: float = 0.0


_FORMS: dict[str, tuple[str, Callable[[list[float]], bool], str]] = {
    "iid": ("", lambda v: not v, "no parameter"),
    "dirichlet": (":ALPHA", lambda v: len(v) == 1 and v[0] > 0, "a positive number, as in dirichlet:0.1"),
    "dirichlet-hsu": (":ALPHA", lambda v: len(v) == 1 and v[0] >= 0, "a number of 0 or more, as in dirichlet-hsu:0.5"),
    "pathological": (
        ":CLASSES", lambda v: len(v) == 1 and v[0] >= 1 and v[0].is_integer(), "a whole number, as in pathological:3",
    ),
    "pam": ("[:ALPHA:BETA]", lambda v: len(v) == 2 and min(v) > 0, "two positive numbers or none, as in pam:0.1:10"),
    "natural": ("", lambda v: not v, "no parameter"),
    "fl-simulator": (":ALPHA", lambda v: len(v) == 1 and v[0] > 0, "a positive number, as in fl-simulator:0.1"),
    "fl-simulator-pathological": (
        ":CLASSES", lambda v: len(v) == 1 and v[0] >= 1 and v[0].is_integer(),
        "a whole number, as in fl-simulator-pathological:3",
    ),
}  # fmt: skip
_DEFAULTS = {"pam": (0.1, 10.0)}


def read_spec(text: str) -> Spec:
    """Parse ``NAME[:PARAMETERS][+replacement][+sizes:DEVIATION]``.

    Raises:
        FedscapeError: no such name or suffix, wrong parameters, suffixes that contradict the name.

    Example:
        >>> from landscape.partitions.spec import read_spec
        >>> read_spec("dirichlet:0.1+replacement")
        Spec(name='dirichlet', parameters=(0.1,), replacement=True, deviation=0.0)
    """
    body, *suffixes = re.split(r"\+(?=[a-z])", text)  # not at the + of 1e+3
    name, colon, parameters = body.partition(":")
    if name not in _FORMS:
        raise unknown_name("partition", name, [key + form for key, (form, _, _) in _FORMS.items()])
    form, fits, needed = _FORMS[name]
    if colon and not form:
        raise FedscapeError(f"the partition '{name}' takes no parameter, '{text}' gives one")
    values = _numbers(parameters) if colon else list(_DEFAULTS.get(name, ()))
    if values is None or not fits(values):
        raise FedscapeError(f"the partition '{text}' needs {needed}")
    replacement, deviation = False, 0.0
    for suffix in suffixes:
        word, _, number = suffix.partition(":")
        size = _numbers(number) if word == "sizes" else None
        if suffix == "replacement":
            replacement = True
        elif size and len(size) == 1 and size[0] >= 0:
            deviation = size[0]
        else:
            raise FedscapeError(
                f"the partition '{text}' ends in +{suffix}: give +replacement or +sizes:DEVIATION, as in +sizes:0.3"
            )
    spec = Spec(name, tuple(values), replacement, deviation)
    if name.startswith("fl-simulator") and suffixes:
        raise FedscapeError(f"'{name}' has replacement and equal sizes already: leave +{suffixes[0]} out")
    if name == "natural" and suffixes:
        raise FedscapeError(f"the natural clients have the samples they have: leave +{suffixes[0]} out")
    if deviation and not replacement and (name == "pathological" or spec.parameters == (0.0,)):
        raise FedscapeError(f"the sizes of '{body}' follow from the classes: leave +sizes out, or add +replacement")
    return spec


def _numbers(text: str) -> list[float] | None:
    try:
        values = [float(part) for part in text.split(":")]
    except ValueError:
        return None
    return values if all(map(math.isfinite, values)) else None
