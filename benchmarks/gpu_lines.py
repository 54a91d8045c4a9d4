"""Algorithms and parts from lines such as ``scaffold --ascent asam``, where ``tyro`` is not installed.

A GPU that is lent may have PyTorch, NumPy and SciPy and little else, and no way to install more.  Of what this package
requires, ``tyro`` reads command lines alone: :func:`stand_in` takes its place for the modules that import it, and
:func:`read` reads the lines of ``benchmarks/all_algorithms.py``.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock


def stand_in() -> bool:
    """Put something that can be imported in the place of ``tyro`` where there is none; whether it did."""
    try:
        import_module("tyro")
    except ModuleNotFoundError:
        sys.modules |= {"tyro": MagicMock(), "tyro.constructors": MagicMock()}
        return True
    return False


sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this repository's packages, installed or not
MISSING = stand_in()
"""Whether ``tyro`` is missing: importing this module first makes the others importable."""

from all_algorithms import LINES  # noqa: E402

from landscape import FedscapeError  # noqa: E402
from trainers import ASAM, MAN, SWA, Algorithm, ClientPrivacy, Parts  # noqa: E402
from trainers.algorithms import ALGORITHMS  # noqa: E402
from trainers.parts import Adam, Momentum, Nesterov, Relaxed  # noqa: E402

__all__ = ["LINES", "MISSING", "read"]

OF_THE_RUN = ("sampling", "weighting", "aggregation", "evaluated_model")
"""Options that say neither algorithm nor parts."""


def read(line: str) -> tuple[Algorithm, Parts]:
    """The algorithm and the parts that a line asks for.

    Raises:
        FedscapeError: an option that is not known here.

    Example:
        >>> algorithm, parts = read("fedsol --rho 0.5 --mixup")
        >>> algorithm, parts.mixup
        (FedSOL(rho=0.5, temperature=3.0, strength='fixed', server_lr=1.0), True)
    """
    name, *words = line.split()
    given: dict[str, Any] = {}
    option = ""
    for word in words:
        if word.startswith("--"):
            option = word[2:].replace("-", "_")
            given[option] = True
        else:
            given[option] = word
    kind = ALGORITHMS.get(name)
    own = {each.name: type(each.default)(given.pop(each.name)) for each in fields(kind) if each.name in given}
    parts = _parts(given)
    if unknown := given.keys() - set(OF_THE_RUN):
        raise FedscapeError(f"{line}: the options {', '.join(sorted(unknown))} are not known here")
    return kind(**own), parts


def _parts(given: dict[str, Any]) -> Parts:
    """The parts; their options are taken out."""
    found: dict[str, Any] = {name: True for name in ("mixup",) if given.pop(name, False)}
    if given.pop("swa", False):
        found["swa"] = SWA()
    if zeta := given.pop("man", None):
        found["man"] = MAN(float(zeta))
    if given.pop("cutout", False):
        found["cutout"] = int(given.pop("cutout_size"))
    if given.pop("ascent", None) == "asam":
        found["ascent"] = ASAM()
    if noise := given.pop("dp", None):
        found["dp"] = ClientPrivacy(float(noise), clip=float(given.pop("dp_clip")))
    if given.pop("start", None) == "relaxed":
        found["start"] = Relaxed(average=given.pop("start_average"))
    if chosen := given.pop("server_optimizer", None):
        rate = {"lr": float(given.pop("server_optimizer_lr"))} if "server_optimizer_lr" in given else {}
        found["server_optimizer"] = {"adam": Adam, "momentum": Momentum, "nesterov": Nesterov}[chosen](**rate)
    return Parts(**found)
