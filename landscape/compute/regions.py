"""Marks in the work that a profiler reads: whose part of a round, a product or a point each operator is.

Without a profiler (:mod:`landscape.profiling`) a mark costs the call of a function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, ParamSpec, Protocol, TypeVar

import torch

Unit = Literal["round", "product", "point"]
"""What is repeated, and looked at one by one: a round of training, a product with a matrix, a point of a surface."""

P = ParamSpec("P")
T = TypeVar("T")


class Watcher(Protocol):
    """Who is told of the marks."""

    def region(self, name: str) -> AbstractContextManager[None]:
        """What is entered around a part of a unit."""
        ...

    def unit(self, name: Unit, device: torch.device, precision: str) -> AbstractContextManager[None]:
        """What is entered around a unit."""
        ...


_watcher: Watcher | None = None


def watch(watcher: Watcher | None) -> Watcher | None:
    """Tell this one of the marks from now on (``None``: nobody); the one that was told before."""
    global _watcher
    before, _watcher = _watcher, watcher
    return before


def region(name: str) -> AbstractContextManager[None]:
    """Around a part of a unit; parts lie in each other, and time counts for the innermost one."""
    return nullcontext() if _watcher is None else _watcher.region(name)


def marked(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function that is a part of a unit.

    Example:
        >>> from landscape.compute.regions import marked
        >>> @marked("sums")
        ... def total(*numbers):
        ...     return sum(numbers)
        >>> total(1, 2)
        3
    """

    def mark(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> T:
            if _watcher is None:
                return function(*args, **kwargs)
            with _watcher.region(name):
                return function(*args, **kwargs)

        return inside

    return mark


def within(name: str, items: Iterable[T]) -> Iterator[T]:
    """The items; what is done to get each is a part of a unit, and what is done with it is not."""
    found = iter(items)
    while True:
        with region(name):
            try:
                item = next(found)
            except StopIteration:
                return
        yield item


def unit(name: Unit, device: torch.device, precision: str) -> AbstractContextManager[None]:
    """Around a unit of the work, on this device, in this arithmetic (as :class:`landscape.compute.precision.Precision`
    names it)."""
    return nullcontext() if _watcher is None else _watcher.unit(name, device, precision)
