"""Choose layers and parameters by patterns over their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from landscape.errors import FedscapeError
from landscape.several import several


def matches(name: str, patterns: Iterable[str] | str) -> bool:
    """Whether a dotted name, or the name of a module that contains it, matches one of the globs, or the only one.

    ``layer1`` matches everything in the module ``layer1``, ``*.weight`` every weight, ``layer?.0`` the first block of
    each stage; a ``*`` matches dots too.

    Example:
        >>> from landscape.name_patterns import matches
        >>> matches("layer1.0.conv1.weight", ["layer1"]), matches("layer1.0.conv1.weight", ["layer?.1"])
        (True, False)
    """
    globs: list[str] = several(patterns)
    parts = name.split(".")
    paths = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(fnmatchcase(path, pattern) for pattern in globs for path in paths)


def matching_names(names: Sequence[str], patterns: Sequence[str] | str, what: str) -> list[str]:
    """The names that match some pattern, each once, in their own order.

    Args:
        names: to choose from.
        patterns: globs, as in :func:`matches`, or one.
        what: the kind of thing that has these names, for the error message.

    Raises:
        FedscapeError: no pattern is given, or one matches no name.

    Example:
        >>> from landscape.name_patterns import matching_names
        >>> matching_names(["conv.weight", "conv.bias", "fc.weight"], ["fc", "*.bias"], "parameter")
        ['conv.bias', 'fc.weight']
    """
    globs: list[str] = several(patterns)
    if not globs:
        raise FedscapeError(f"no {what} is asked for: there are {', '.join(names)}")
    for pattern in globs:
        if not any(matches(name, [pattern]) for name in names):
            raise FedscapeError(f"no {what} matches '{pattern}': there are {', '.join(names)}")
    return [name for name in names if matches(name, globs)]
