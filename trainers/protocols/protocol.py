"""Protocols: options with the lines of code that they come from, and what they are under other options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from landscape.terminal.table import Table


@dataclass(frozen=True)
class Line:
    """The value of an option, and where the repository has it: ``file:line``."""

    value: Any
    source: str


Lines = Mapping[str, Line]
"""Options by name, with ``_`` for ``-``."""


def lines(**options: tuple[Any, str]) -> dict[str, Line]:
    """Options as ``name=(value, source)``.

    Example:
        >>> from trainers.protocols.protocol import lines
        >>> lines(lr=(0.1, "train.py:33"))
        {'lr': Line(value=0.1, source='train.py:33')}
    """
    return {name: Line(*told) for name, told in options.items()}


@dataclass(frozen=True)
class Protocol:
    """What a repository's code does, in our options.

    Attributes:
        name: of ``--protocol``.
        repository, commit: where the sources are.
        common: options for whatever is trained.
        algorithms: those of each of its algorithms, by our name: hyper-parameters, and settings that are its own.
        when: those that go with other options, by these and their values, ``{"data": "cifar10"}``; the value ``""`` is
            any, and ``algorithm`` is an option here.
        left: what the code does and no option of ours says, in a sentence each.

    Example:
        >>> from trainers.protocols.protocol import Protocol, lines
        >>> mine = Protocol("mine", "https://example.org/mine", "1234567", lines(lr=(0.1, "run.py:3")),
        ...     {"fedprox": lines(mu=(0.5, "run.py:4"))}, ((dict(swa=""), lines(swa_cycle=(5, "run.py:5"))),))
        >>> [*mine.lines("fedprox")], [*mine.lines("fedavg", {"swa": ""})]
        (['lr', 'mu'], ['lr', 'swa_cycle'])
    """

    name: str
    repository: str
    commit: str
    common: Lines
    algorithms: Mapping[str, Lines]
    when: tuple[tuple[Mapping[str, str], Lines], ...] = ()
    left: tuple[str, ...] = ()

    def lines(self, algorithm: str, given: Mapping[str, str] | None = None) -> dict[str, Line]:
        """The options of an algorithm, the later ones in place of the earlier; ``given`` are other options."""
        found = {**self.common, **self.algorithms.get(algorithm, {})}
        for conditions, more in self.when:
            values = {name: str(line.value) for name, line in found.items()} | dict(given or {}, algorithm=algorithm)
            if all(
                values.get(option) is not None and value in ("", values[option]) for option, value in conditions.items()
            ):
                found |= more
        return found

    def values(self, algorithm: str, names: Sequence[str] | None = None, **given: str) -> dict[str, Any]:
        """The values of an algorithm's options, all or those of ``names`` that there are, for ``dataclasses.replace``.

        Example:
            >>> from trainers import Settings
            >>> from trainers.protocols import protocol
            >>> protocol("fl-simulator").values("fedavg", ("clip", "lr_decay"))
            {'lr_decay': 0.998, 'clip': 10.0}
        """
        found = self.lines(algorithm, given)
        return {name: line.value for name, line in found.items() if names is None or name in names}


@dataclass(frozen=True)
class Expanded:
    """A protocol with what a command line says beside it.

    Attributes:
        protocol: which.
        algorithm: its name.
        given: the options on the command line, which go before the protocol's.
    """

    protocol: Protocol
    algorithm: str
    given: Mapping[str, str]

    @property
    def known(self) -> bool:
        """Whether the repository has the algorithm."""
        return self.algorithm in self.protocol.algorithms

    @property
    def note(self) -> str:
        """What is to be said where the repository has not the algorithm."""
        there = ", ".join(self.protocol.algorithms)
        return (
            f"the code of {self.protocol.name} has no {self.algorithm} (it has {there}): only what it does for all of "
            "them is taken"
        )

    def arguments(self) -> list[str]:
        """The options that the protocol stands for, without those that are given, as a command line has them."""
        words = []
        for name, line in self.protocol.lines(self.algorithm, self.given).items():
            if name not in self.given:
                values = line.value if isinstance(line.value, tuple) else (line.value,)
                words += [_flag(name), *map(str, values)]
        return words

    def table(self) -> Table:
        """Every option with its value and source, those that are given in place of the protocol's too."""
        rows = []
        for name, line in self.protocol.lines(self.algorithm, self.given).items():
            if name in self.given:
                rows.append((_flag(name), self.given[name] or "given", f"given here; {_shown(line)} in {line.source}"))
            else:
                rows.append((_flag(name), _shown(line), line.source))
        return Table(("option", "value", "source"), tuple(rows))

    def __str__(self) -> str:
        """What ``--show`` prints."""
        told = self.protocol
        heading = f"{told.name}: {told.repository} at {told.commit}, {self.algorithm}"
        left = [f"not said by any option: {sentence}" for sentence in told.left]
        notes = [] if self.known else [self.note]
        return "\n".join([heading, *notes, "", str(self.table()), *([""] if left else []), *left])


def given_options(arguments: Sequence[str]) -> dict[str, str]:
    """The options on a command line with their first values; ``""`` where they have none.

    Example:
        >>> from trainers.protocols.protocol import given_options
        >>> given_options(["--lr=0.5", "--per-round", "5", "--swa", "--man-layers", "a", "b"])
        {'lr': '0.5', 'per_round': '5', 'swa': '', 'man_layers': 'a'}
    """
    given = {}
    for place, word in enumerate(arguments):
        if re.match(r"--[A-Za-z]", word):
            name, has, value = word[2:].partition("=")
            following = arguments[place + 1] if place + 1 < len(arguments) else "--"
            given[name.replace("-", "_")] = (
                value if has else "" if re.match(r"--?[A-Za-z]|--$", following) else following
            )
    return given


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _shown(line: Line) -> str:
    return " ".join(map(str, line.value)) if isinstance(line.value, tuple) else str(line.value)
