"""Several values of an option, as a grid's file has them: lists and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from landscape.errors import FedscapeError

_DIGITS = 12
"""Of the points of a range, so that 0.1 is the 0.1 that somebody else has written."""
_MOST = 10_000


def several(value: Any, place: str) -> list[Any]:
    """The values of an option.

    A list has them one by one; a table is a range, ``{from, to}`` of whole numbers, ``{from, to, steps}`` with so many
    points at equal distances, or, with ``log = true``, ratios, to 12 digits; or ``{values = [...]}``.  With ``as``,
    such as ``as = "dirichlet:{}"``, each value is that text with it in place of ``{}``.  Anything else is one value.

    Raises:
        FedscapeError: a range that is none; the sentence names ``place``.

    Example:
        >>> several({"from": 0.01, "to": 1, "steps": 3, "log": True}, "rho")
        [0.01, 0.1, 1.0]
        >>> several({"from": 0, "to": 2}, "seed"), several("iid", "partition")
        ([0, 1, 2], ['iid'])
        >>> several({"values": [0.1, 0.6], "as": "dirichlet:{}"}, "partition")
        ['dirichlet:0.1', 'dirichlet:0.6']
    """
    if isinstance(value, list):
        found = value
    elif isinstance(value, dict):
        found = _range(value, place)
    else:
        return [value]
    if not found:
        raise FedscapeError(f"{place} has no value: give one or more")
    return found


def _range(told: Mapping[str, Any], place: str) -> list[Any]:
    allowed = ("from", "to", "steps", "log", "values", "as")
    if unknown := [name for name in told if name not in allowed]:
        raise FedscapeError(f"{place}: a range has no {unknown[0]}: give {', '.join(allowed)}")
    if "values" in told:
        if not isinstance(told["values"], list) or told.keys() & {"from", "to", "steps", "log"}:
            raise FedscapeError(f"{place}: give values = [...] alone, or a range by from and to")
        points = told["values"]
    else:
        points = _points(told, place)
    pattern = told.get("as")
    if pattern is None:
        return points
    if not isinstance(pattern, str) or "{}" not in pattern:
        raise FedscapeError(f'{place}: as is {pattern}: give a text with {{}} in it, such as "dirichlet:{{}}"')
    return [pattern.replace("{}", f"{x:.{_DIGITS}g}" if isinstance(x, float) else str(x)) for x in points]


def _points(told: Mapping[str, Any], place: str) -> list[Any]:
    low: Any = told.get("from")
    high: Any = told.get("to")
    log = told.get("log", False)
    if not (_number(low) and _number(high) and isinstance(log, bool)):
        raise FedscapeError(f"{place}: a range needs numbers from and to, such as {{from = 0, to = 2}}")
    whole = isinstance(low, int) and isinstance(high, int)
    if "steps" not in told:
        if not whole or log or high < low or high - low >= _MOST:
            raise FedscapeError(f"{place}: give the range its number of steps, such as steps = 5")
        return list(range(low, high + 1))
    steps = told["steps"]
    if not isinstance(steps, int) or isinstance(steps, bool) or not 2 <= steps <= _MOST:
        raise FedscapeError(f"{place}: steps is {steps}: give the number of points, 2 to {_MOST}")
    if log and min(low, high) <= 0:
        raise FedscapeError(f"{place}: a logarithmic range from {low} to {high}: give numbers above 0")
    shares = [i / (steps - 1) for i in range(steps)]
    points = [low * (high / low) ** t if log else low + (high - low) * t for t in shares]
    rounded = [float(f"{point:.{_DIGITS}g}") for point in points]
    if whole and not log and all(point.is_integer() for point in rounded):
        return [int(point) for point in rounded]
    return rounded


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")
