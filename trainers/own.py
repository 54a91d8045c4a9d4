"""An algorithm of the user's own, named ``package.module:Class`` on the command line."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from landscape.compute.devices import memory_ran_out
from landscape.errors import FedscapeError, comes_through, said_by
from trainers.algorithm import Algorithm


def own_algorithm(name: str, taken: frozenset[str] = frozenset()) -> type[Algorithm]:
    """The class that a name typed by the user stands for; importing it runs the module's code.

    Never to be called with a name that a file gives: a checkpoint must not decide which code runs.  The module is
    looked for where Python looks for modules, and in the current folder.

    Args:
        name: ``package.module:Class``.
        taken: names that its hyper-parameters cannot have.

    Raises:
        FedscapeError: there is no such module or class, the module fails, or the class is no algorithm.

    Example:
        >>> from trainers.own import own_algorithm
        >>> own_algorithm("trainers.algorithms.fedprox:FedProx")
        <class 'trainers.algorithms.fedprox.FedProx'>
        >>> own_algorithm("trainers.algorithms.fedprox:FedPrix")
        Traceback (most recent call last):
            ...
        landscape.errors.FedscapeError: trainers.algorithms.fedprox has no FedPrix: its algorithms are FedProx
    """
    module_name, _, attribute = name.partition(":")
    if not (attribute.isidentifier() and all(part.isidentifier() for part in module_name.split("."))):
        raise FedscapeError(f"an algorithm of your own is package.module:Class, not {name}")
    module = _module(module_name, name)
    kind = getattr(module, attribute, None)
    if kind is None:
        raise FedscapeError(f"{module_name} has no {attribute}: {_there(module)}")
    if not _is_algorithm(kind):
        raise FedscapeError(f"{name} is no algorithm, a subclass of trainers.Algorithm: {_there(module)}")
    if "__dataclass_fields__" not in vars(kind):
        raise FedscapeError(f"{name} needs the decorator @dataclass(frozen=True), which makes its fields options")
    clashing = sorted({each.name for each in fields(kind)} & taken)
    if clashing:
        raise FedscapeError(
            f"{name} has a hyper-parameter {clashing[0]}, a name that a setting or record of every run has: "
            "give it another one"
        )
    try:
        get_type_hints(kind, include_extras=True)
    except Exception as error:
        raise FedscapeError(f"the types of {name}'s fields cannot be read: {error}") from error
    return kind


@contextmanager
def own_running(kind: type[Algorithm]) -> Iterator[None]:
    """Inside, an algorithm may run that is a user's own: what its code raises becomes one sentence with its line.

    Raises:
        FedscapeError: in place of what came out of a module of the user's.
    """
    try:
        yield
    except (FedscapeError, MemoryError):
        raise
    except Exception as error:  # the user's code may raise anything
        if memory_ran_out(error) or not comes_through(error, kind):
            raise
        name = f"{kind.__module__}:{kind.__qualname__}"
        raise FedscapeError(f"the algorithm '{name}' fails: {said_by(error)}") from error


def _module(module_name: str, name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:  # a console script has its own folder there
        sys.path.append(here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise FedscapeError(
                f"there is no module {module_name} for the algorithm {name}: it must be in this folder, {here}, "
                "or installed"
            ) from error
        raise FedscapeError(f"importing {module_name} for the algorithm {name} fails: {error}") from error
    except Exception as error:
        raise FedscapeError(f"importing {module_name} for the algorithm {name} fails: {said_by(error)}") from error


def _is_algorithm(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Algorithm) and thing is not Algorithm


def _there(module: ModuleType) -> str:
    names = [name for name, thing in vars(module).items() if _is_algorithm(thing)]
    return f"its algorithms are {', '.join(names)}" if names else "there is none in it"
