"""Registries: models, data sets and algorithms by name, and the user's own as ``package.module:callable``."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from landscape.errors import FedscapeError, said_by

T = TypeVar("T")


def unknown_name(kind: str, name: str, known: list[str]) -> FedscapeError:
    """The error for an unknown name, with the most similar known name.

    Example:
        >>> from landscape.registry import unknown_name
        >>> print(unknown_name("model", "lenetfed", ["lenet_fed", "resnet"]))
        unknown model 'lenetfed': did you mean 'lenet_fed'? known are lenet_fed, resnet
    """
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return FedscapeError(f"unknown {kind} '{name}': {hint}known are {', '.join(known)}")


class Registry(Generic[T]):
    """A table of named objects of one kind.

    A name with a colon, ``package.module:callable``, is imported.  Names that come from a file (a checkpoint of
    unknown origin) must be looked up with ``imports=False``, because importing and calling what a file names would
    let the file choose which code runs.

    Args:
        kind: what the objects are, in a word or two.
        forms: what names may look like beside the table's, for the error of an unknown one.

    Example:
        >>> from landscape.registry import Registry
        >>> shapes = Registry("shape")
        >>> @shapes.register("square")
        ... def area(side):
        ...     return side**2
        >>> shapes.get("square")(3), list(shapes)
        (9, ['square'])
    """

    def __init__(self, kind: str, forms: Sequence[str] = ()) -> None:
        self.kind, self._forms = kind, forms
        self._table: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: register the decorated object under ``name``."""

        def put(thing: T) -> T:
            self._table[name] = thing
            return thing

        return put

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def items(self) -> list[tuple[str, T]]:
        """The pairs (name, object), in order of registration."""
        return list(self._table.items())

    def get(self, name: str, *, imports: bool = True) -> T:
        """The object called ``name``.

        Raises:
            FedscapeError: the name is unknown, or has a colon and cannot (or may not) be imported.
        """
        if name in self._table:
            return self._table[name]
        if ":" in name:
            if not imports:
                raise FedscapeError(
                    f"the file names the {self.kind} '{name}', which would import and run code: "
                    f"if you trust it, give the same --{self.kind.split()[0]} yourself"
                )
            return self._import(name)
        raise unknown_name(self.kind, name, [*self._table, *self._forms, "package.module:callable"])

    def _import(self, name: str) -> T:
        module_name, _, attribute = name.partition(":")
        try:
            thing = getattr(importlib.import_module(module_name), attribute)
        except Exception as error:  # the user's module may raise anything
            what = str(error) if isinstance(error, ImportError) else said_by(error)
            raise FedscapeError(f"cannot import the {self.kind} '{name}': {what}") from error
        if not callable(thing):
            raise FedscapeError(
                f"the {self.kind} '{name}' is not callable: give a class or a function, not a {type(thing).__name__}"
            )
        return thing
