"""Whole numbers that were given for real ones: 1 and 1.0 are one value of a rate, and one text in a run's key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin


def with_reals(values: Mapping[str, Any], of: object) -> dict[str, Any]:
    """Values by field, those of real fields as floats; of lists of real numbers each.

    Args:
        values: of fields of ``of``, by name.
        of: a dataclass of hyper-parameters, which declares the fields' types.

    Example:
        >>> from trainers import FedSAM
        >>> from trainers.runs.reals import with_reals
        >>> with_reals({"name": "fedsam", "rho": 1}, FedSAM(rho=1))
        {'name': 'fedsam', 'rho': 1.0}
    """
    real = {each.name for each in fields(of) if is_real(each.type)}  # type: ignore[arg-type]
    return {name: _real(value) if name in real else value for name, value in values.items()}


def is_real(declared: Any) -> bool:
    """Whether a field's type has real numbers and no whole ones.

    Args:
        declared: as a dataclass keeps it: a type, or the text of one, whose names need not be imported.

    Example:
        >>> from trainers.runs.reals import is_real
        >>> is_real("float | None"), is_real(tuple[float, ...]), is_real(int), is_real("int | float")
        (True, True, False, False)
    """
    names = _names(declared)
    return "float" in names and "int" not in names


def _names(declared: Any) -> set[str]:
    """Of the types in it; what is annotated to them is none."""
    if isinstance(declared, str):
        plain = declared.removeprefix("Annotated[").partition(",")[0] if declared.startswith("Annotated[") else declared
        return set(re.findall(r"\w+", plain))
    inner = get_args(declared)
    if get_origin(declared) is Annotated:
        return _names(inner[0])
    return set().union(*map(_names, inner)) if inner else {getattr(declared, "__name__", "")}


def _real(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_real, value))
    return float(value) if type(value) is int else value
