"""Choosing layers and parameters by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from landscape.errors import FedscapeError


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a dotted name, or a module it lies beneath, matches one of the globs.

    ``layer1`` chooses all that lies in the module ``layer1``, ``*.weight`` every weight, ``layer?.0`` each stage's
    first block; a ``*`` stands for dots too.
    """
    parts = name.split(".")
    paths = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(fnmatchcase(path, pattern) for pattern in patterns for path in paths)


def chosen(names: Sequence[str], patterns: Sequence[str], what: str) -> list[str]:
    """The names that match some pattern, each once, in their own order.

    Args:
        names: to choose from.
        patterns: globs, as in :func:`matches`.
        what: what a name is the name of, for the error.

    Raises:
        FedscapeError: no pattern is given, or one matches no name.
    """
    if not patterns:
        raise FedscapeError(f"no {what} is asked for: there are {', '.join(names)}")
    for pattern in patterns:
        if not any(matches(name, [pattern]) for name in names):
            raise FedscapeError(f"no {what} matches '{pattern}': there are {', '.join(names)}")
    return [name for name in names if matches(name, patterns)]
