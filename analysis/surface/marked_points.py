"""Points of a plane that have a name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """A model that lies in a plane: pictures mark it at (``x``, ``y``) with its ``label``."""

    label: str
    x: float
    y: float
