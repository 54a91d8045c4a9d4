"""One thing where a function takes several: a checkpoint, a run, a name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def several(given: T | Iterable[T]) -> list[T]:
    """What was given, as a list: one thing, such as a path, stands for a list of it.

    A text is one name, never its letters.

    Example:
        >>> from landscape.several import several
        >>> several("runs/a"), several(["runs/a", "runs/b"]), several(())
        (['runs/a'], ['runs/a', 'runs/b'], [])
    """
    if isinstance(given, (str, os.PathLike)) or not isinstance(given, Iterable):
        return [given]
    return list(given)
