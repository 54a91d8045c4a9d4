"""Measured parts as plain lists and numbers, for files, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, TypeVar

import numpy as np

from landscape import FedscapeError
from landscape.storage.files import json_ready

P = TypeVar("P", bound="Plain")


class Plain:
    """A dataclass of arrays of floats and of numbers, texts and lists, that goes into a JSON file and comes back.

    Values that are not finite are ``null`` there and NaN when they come back.  ``letters`` says the shape of every
    array by letters, each of which stands for one length, and digits, which stand for themselves.
    """

    letters: ClassVar[dict[str, str]]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts and lists by name."""
        return {
            field.name: json_ready(value.tolist() if isinstance(value, np.ndarray) else value)
            for field in fields(self)  # type: ignore[arg-type]
            for value in [getattr(self, field.name)]
        }

    @classmethod
    def of_dict(cls: type[P], found: Any, lengths: dict[str, int]) -> P:
        """From what :meth:`to_dict` gave.

        Args:
            found: it, as read from a file.
            lengths: what letters must stand for.

        Raises:
            FedscapeError: names, shapes or kinds are others.
        """
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        if not isinstance(found, dict) or sorted(found) != sorted(names):
            raise FedscapeError(f"these are no numbers of {cls.__name__}")
        known, values = {str(digit): digit for digit in range(10)} | lengths, dict(found)
        for name in names:
            shape = cls.letters.get(name)
            if shape is None:
                values[name] = _number(found[name], name)
                continue
            try:
                array = np.array(found[name], dtype=float)
            except (TypeError, ValueError) as error:
                raise FedscapeError(f"{name} is no array of numbers") from error
            agree = array.ndim == len(shape) and all(
                known.setdefault(letter, length) == length for letter, length in zip(shape, array.shape, strict=True)
            )
            if not agree:
                raise FedscapeError(f"{name} has the shape {array.shape}, which does not fit the rest")
            values[name] = array
        return cls(**values)


def _number(value: Any, name: str) -> Any:
    if value is None:
        return float("nan")
    if not isinstance(value, (int, float)):
        raise FedscapeError(f"{name} is no number")
    return value
