"""What a file of unfinished eigenvalues must hold, so that the iteration can go on from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from landscape.storage.plain import Numbers
from landscape.storage.schema import Anything, Items, Number, OneOf, Record, Row, Rule, Truth, Wrong

_COUNT = Number(0, 1 << 53, whole=True)


@dataclass(frozen=True)
class _Events:
    """The record of a start: steps, and restarts of all the vectors that there are then
    (:class:`analysis.hessian.spectrum.evidence.StartRecord`).
    """

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        numbers = Numbers(dtype=torch.float64, finite=True)
        Items(Row((OneOf(("step", "restart")), numbers, Number(), Number(0))))(value, place)
        vectors = 0
        for i, (kind, array, _, _) in enumerate(value):
            here = f"{place}[{i}]"
            Numbers((vectors, None) if kind == "restart" else (None,))(array, here)
            if kind == "restart" and not vectors:
                raise Wrong(here, array, "a step, as there are no vectors yet")
            vectors = array.shape[1] if kind == "restart" else vectors + 1


_RECORD = Record({"events": _Events(), "open": Truth()}, extra=False)


@dataclass(frozen=True)
class Unfinished:
    """A rule (:mod:`landscape.storage.schema`): what ``state`` of the iteration, the stopping rule and the search give.

    Attributes:
        dimension: d.
        dtype: of the vectors.
        count: of eigenvalues wanted at both ends together.
    """

    dimension: int
    dtype: torch.dtype
    count: int

    def __call__(self, value: Any, place: str) -> None:
        """Raise :class:`Wrong` unless it is one."""
        vectors = Items(Numbers((self.dimension,), self.dtype, finite=True), most=self.dimension)
        first: dict[str, Rule] = {"basis": Numbers((None, self.dimension), self.dtype, finite=True), "waiting": vectors}
        others = ("projection", "couplings", "tridiagonal", "absorbed", "scale", "asymmetry", "generator", "record")
        unknown = dict.fromkeys(("question", "restarts", "history", "search"), Anything())
        Record({"process": Record(first, dict.fromkeys(others, Anything()), extra=False)}, unknown, extra=False)(
            value, place
        )
        steps, waiting = len(value["process"]["basis"]), len(value["process"]["waiting"])
        if not 1 <= steps <= self.dimension:
            raise Wrong("process.basis", value["process"]["basis"], f"1 to {self.dimension} vectors")
        array = torch.float64
        process: dict[str, Rule] = {
            **first,
            "projection": Numbers((steps, steps), array, finite=True),
            "couplings": Numbers((waiting, steps), array, finite=True),
            "tridiagonal": Truth(),
            "absorbed": Number(1, 1 << 53, whole=True),
            "scale": Number(0),
            "generator": Numbers((None,), torch.uint8),
            "record": _RECORD,
        }
        wanted = Numbers((self.count,), array, finite=True)
        search: dict[str, Rule] = {
            "values": wanted,
            "margin": wanted,
            "dimension": _COUNT,
            "count": _COUNT,
            "last": Number(0),
        }
        Record(
            {
                "process": Record(process, {"asymmetry": Number(0)}, extra=False),
                "restarts": _COUNT,
                "history": Items(wanted, most=3),
                "search": Record(
                    {"searched": _COUNT, "missed": Number(0, 1)},
                    {"steps": Record({**search, "record": _RECORD}, extra=False)},
                    extra=False,
                ),
            },
            {"question": Record({})},
            extra=False,
        )(value, place)
