"""Public names of a package that are imported when they are asked for, not with the package (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package; ``--help`` and completion thus need no PyTorch.

    Args:
        package: its name.
        names: the module that each public name is in.

    Example:
        >>> from landscape.lazy import lazily
        >>> get, names = lazily("landscape", {"FedscapeError": "landscape.errors"})
        >>> get("FedscapeError"), names()
        (<class 'landscape.errors.FedscapeError'>, ['FedscapeError'])
        >>> get("Nothing")
        Traceback (most recent call last):
            ...
        AttributeError: module 'landscape' has no attribute 'Nothing'
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(names[name]), name)
        setattr(sys.modules[package], name, value)  # the next time it is there
        return value

    return get, lambda: sorted(names)
