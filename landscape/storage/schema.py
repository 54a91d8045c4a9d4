"""What a file must hold, declared as data: types, ranges and lengths of the values read from it, however nested.

Own code and no library: the values hold tensors, the sentences are ours, and importing one of the libraries takes
longer than reading a file.  A rule is called with a value and the place where it was found; :func:`require` adds the
file's name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from landscape.errors import FedscapeError

Rule = Callable[[Any, str], None]
"""Raises :class:`Wrong` where a value at a place (``settings.clients``, empty for the whole) is not as declared."""

SHOWN = 60
"""Characters of a value that an error shows."""


class Wrong(Exception):
    """A value that is not as declared."""

    def __init__(self, place: str, found: Any, wanted: str) -> None:
        super().__init__(f"{f'{printable(place)} is' if place else 'it holds'} {shown(found)}, not {wanted}")


def require(value: Any, rule: Rule, file: object) -> None:
    """Check the contents of a file.

    Args:
        value: what was read.
        rule: what it must be.
        file: its name, for the error.

    Raises:
        FedscapeError: something is not as declared; the sentence names the file, the place in it, what is there and
            what would be right.

    Example:
        >>> from landscape.storage.schema import Number, Record, require
        >>> run = Record({"round": Number(0, whole=True)})
        >>> require({"round": 3}, run, "result.json")
        >>> require({"round": -4}, run, "result.json")
        Traceback (most recent call last):
            ...
        landscape.errors.FedscapeError: result.json is damaged: round is -4, not a whole number from 0
    """
    try:
        rule(value, "")
    except Wrong as error:
        raise FedscapeError(f"{file} is damaged: {error}") from None
    except RecursionError:
        raise FedscapeError(f"{file} is damaged: it is nested too deep") from None


def printable(text: str, longest: int = 200) -> str:
    """A text from a file with what a terminal would obey spelt out, and not too long to be printed.

    Example:
        >>> from landscape.storage.schema import printable
        >>> print(printable("net\\x1b[2J"))
        net\\x1b[2J
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:longest])


def shown(value: Any) -> str:
    """A value as an error shows it: plain ones by their first characters, others by their kind."""
    if value is None or isinstance(value, (bool, float)):
        return str(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() < 200 else "a number of more than 60 digits"
    if isinstance(value, str):
        return f"'{printable(value, SHOWN)}{'…' if len(value) > SHOWN else ''}'"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, Mapping):
        return f"an object of {len(value)} entries"
    kind = f"a {type(value).__name__}"
    try:
        return f"{kind} of {value.dtype} {tuple(value.shape)}"
    except (AttributeError, RuntimeError):  # no array, or a tensor without a shape, such as a nested one
        return kind


def _below(place: str, name: object) -> str:
    return f"{place}.{name}" if place else str(name)


@dataclass(frozen=True)
class Number:
    """A number in a range, finite unless said otherwise; a whole one if asked for; truth values are none."""

    low: float | None = None
    high: float | None = None
    whole: bool = False
    finite: bool = True

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        kinds = (int,) if self.whole else (int, float)
        fits = isinstance(value, kinds) and not isinstance(value, bool)
        # Comparisons alone: a whole number may be too large for a float.
        fits = fits and not (self.finite and isinstance(value, float) and not math.isfinite(value))
        fits = fits and (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        if not fits:
            raise Wrong(place, value, f"a {'whole ' * self.whole}number{self._range()}")
        if isinstance(value, int) and value.bit_length() > 1000:
            raise Wrong(place, value, "a number that arithmetic can hold")

    def _range(self) -> str:
        ends = [f" from {self.low:g}"] if self.low is not None else []
        ends += [f" up to {self.high:,}"] if self.high is not None else []
        return "".join(ends)


@dataclass(frozen=True)
class Text:
    """A text of at most so many characters."""

    longest: int = 10_000

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        if not isinstance(value, str) or len(value) > self.longest:
            raise Wrong(place, value, f"a text of at most {self.longest:,} characters")


@dataclass(frozen=True)
class Truth:
    """``true`` or ``false``."""

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        if not isinstance(value, bool):
            raise Wrong(place, value, "true or false")


@dataclass(frozen=True)
class Anything:
    """Whatever is there: something else checks it."""

    def __call__(self, value: Any, place: str) -> None:
        """Accept it."""


@dataclass(frozen=True)
class Maybe:
    """Nothing (``null``), or what a rule says."""

    rule: Rule

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` where it is something else."""
        if value is not None:
            self.rule(value, place)


@dataclass(frozen=True)
class OneOf:
    """One of these texts."""

    values: tuple[str, ...]

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one of them."""
        if not isinstance(value, str) or value not in self.values:
            raise Wrong(place, value, f"one of {', '.join(self.values)}")


@dataclass(frozen=True)
class Either:
    """What one rule or another says; of several faults that of the last one is told."""

    rules: tuple[Rule, ...]

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` where it fits none."""
        for rule in self.rules[:-1]:
            try:
                return rule(value, place)
            except Wrong:
                continue
        return self.rules[-1](value, place)


@dataclass(frozen=True)
class Items:
    """A list (or tuple), each item as a rule says."""

    rule: Rule
    least: int = 0
    most: int | None = None

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        if not isinstance(value, (list, tuple)):
            raise Wrong(place, value, "a list")
        if len(value) < self.least or (self.most is not None and len(value) > self.most):
            wanted = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most or 'any number'}"
            raise Wrong(place, value, f"a list of {wanted}")
        for i, item in enumerate(value):
            self.rule(item, f"{place}[{i}]")


@dataclass(frozen=True)
class Row:
    """A list with as many items as there are rules, each as its rule says."""

    rules: tuple[Rule, ...]

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        if not isinstance(value, (list, tuple)) or len(value) != len(self.rules):
            raise Wrong(place, value, f"a list of {len(self.rules)}")
        for i, (rule, item) in enumerate(zip(self.rules, value, strict=True)):
            rule(item, f"{place}[{i}]")


@dataclass(frozen=True)
class Record:
    """An object with entries by name.

    Attributes:
        required, optional: the entries' rules.
        extra: whether others may be there: plain values of any kind.
    """

    required: Mapping[str, Rule]
    optional: Mapping[str, Rule] = field(default_factory=dict)
    extra: bool = True

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        if not isinstance(value, Mapping):
            raise Wrong(place, value, "an object")
        if missing := [name for name in self.required if name not in value]:
            raise Wrong(place, value, f"one with {', '.join(missing)}")
        for name, item in value.items():
            rule = self.required.get(name) or self.optional.get(name)
            if rule is not None:
                rule(item, _below(place, name))
            elif not self.extra or not isinstance(name, str):
                raise Wrong(_below(place, shown(name)), item, f"one of {', '.join((*self.required, *self.optional))}")
            else:
                Plain()(item, _below(place, name))


@dataclass(frozen=True)
class Table:
    """A list of lists of one length, at least one of at least one item."""

    rule: Rule

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        Items(Items(self.rule, least=1), least=1)(value, place)
        if len({len(row) for row in value}) > 1:
            raise Wrong(place, value, "a table of rows of one length")


@dataclass(frozen=True)
class Agree:
    """An object as a rule says, whose lists of these names have one length, those that are there."""

    rule: Rule
    names: tuple[str, ...]

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        self.rule(value, place)
        lengths = {name: len(value[name]) for name in self.names if name in value}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise Wrong(place, value, f"one with lists of one length ({told})")


@dataclass(frozen=True)
class Keyed:
    """An object whose keys and values follow one rule each."""

    key: Rule
    value: Rule

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        if not isinstance(value, Mapping):
            raise Wrong(place, value, "an object")
        for name, item in value.items():
            self.key(name, _below(place, "its key"))
            self.value(item, _below(place, name))


@dataclass(frozen=True)
class Plain:
    """Numbers, texts, truth values, nothing, and lists and objects of these: not too many and not nested deep.

    Not-a-number and the infinities may be among them.  What is there several times counts several times: a small file
    can name one list in many places, so that walking through it takes for ever.
    """

    most: int = 1_000_000
    deepest: int = 32

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` where there is something else."""
        left, waiting = self.most, [(value, place, 0)]
        while waiting:
            item, here, deep = waiting.pop()
            left -= 1
            if left < 0 or deep > self.deepest:
                raise Wrong(place, value, f"at most {self.most:,} values, nested {self.deepest} deep")
            if isinstance(item, (list, tuple)):
                waiting += [(inner, here, deep + 1) for inner in item[: left + 1]]
            elif isinstance(item, Mapping):
                if wrong := [name for name in item if type(name) not in (str, int)]:
                    raise Wrong(here, wrong[0], "a name")
                waiting += [(inner, _below(here, name), deep + 1) for name, inner in item.items()]
            elif isinstance(item, int) and item.bit_length() > 1000:
                raise Wrong(here, item, "a number that arithmetic can hold")
            elif item is not None and not isinstance(item, (bool, int, float, str)):
                raise Wrong(here, item, "a plain value")
