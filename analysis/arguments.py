"""Keyword arguments of the measuring functions, sorted into the groups of options they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any, TypeVar

G = TypeVar("G", bound=tuple[Any, ...])


def grouped(function: str, given: Mapping[str, Any], groups: G) -> G:
    """Groups of options with some of their fields changed: each keyword goes to the group that has such a field.

    So a function takes whole groups, which its command line shares, and single options as keywords.

    Args:
        function: its name, for the error.
        given: options by name.
        groups: frozen dataclasses; no two have a field of the same name.

    Raises:
        TypeError: none of the groups has such a field.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Where:
        ...     device: str = "auto"
        >>> @dataclass(frozen=True)
        ... class Effort:
        ...     tolerance: float = 1e-3
        >>> grouped("measure", {"tolerance": 0.1}, (Where(), Effort()))
        (Where(device='auto'), Effort(tolerance=0.1))
        >>> grouped("measure", {"tolerence": 0.1}, (Where(), Effort()))
        Traceback (most recent call last):
        TypeError: measure() has no option 'tolerence': did you mean 'tolerance'?
    """
    owners = {field.name: i for i, group in enumerate(groups) for field in fields(group)}
    for name in given:
        if name not in owners:
            near = get_close_matches(name, owners, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(owners)}"
            raise TypeError(f"{function}() has no option '{name}': {hint}")
    changed = tuple(
        replace(group, **{name: value for name, value in given.items() if owners[name] == i})
        for i, group in enumerate(groups)
    )
    return changed  # type: ignore[return-value]
