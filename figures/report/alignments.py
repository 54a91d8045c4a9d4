"""What ``fedscape alignment`` wrote, found again for the models of a report page by their digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.alignment.rounds import TITLES
from landscape.errors import FedscapeError
from landscape.storage.reading import read_json
from landscape.storage.schema import Items, Keyed, Maybe, Number, Record, Text, Wrong, printable

ASKED = {"top": "K", "rho": "ρ", "ascent": "ascent steps"}
"""What decides an alignment's numbers beside the clients: what it is called in ``asked``, and in words."""
_COUNT, _REAL = Number(0, 1 << 60, whole=True), Maybe(Number(-1e60, 1e60))
_MEAN = Record(
    dict.fromkeys(("value", "stderr", "low", "high", "measurement_error"), _REAL)
    | {"count": _COUNT, "left_out": _COUNT}
)
_ROUND = Record(
    {
        "round": _COUNT, "clients": Items(_COUNT, least=1), "clients_with_data": _COUNT, "order": Items(_COUNT),
        "ordered": Text(200), "local_models_of": Items(_COUNT), "means": Keyed(Text(200), _MEAN),
    },
    {
        "used_perturbations_of": Items(_COUNT), "model_digest": Text(64),
        "notes": Items(Text(2000)), "not_measured": Keyed(Text(200), Text(2000)),
    },
)  # fmt: skip


def _round(value: Any, place: str) -> None:
    """A rule: a round whose order is one of its clients, and whose local models are theirs."""
    _ROUND(value, place)
    clients = value["clients"]
    if len(set(clients)) < len(clients) or sorted(value["order"]) != sorted(clients):
        raise Wrong(f"{place}.order", value["order"], "one of the clients, each once")
    for name in _CLIENTS_OF.values():
        if not set(value.get(name, ())) <= set(clients):
            raise Wrong(f"{place}.{name}", value[name], "some of the clients")


ALIGNMENT = Record(
    {
        "asked": Record({"top": _COUNT, "rho": _REAL, "ascent": Text(20)}),
        "runs": Items(Record({"run": Text(), "label": Text(1000), "rounds": Items(_round, least=1)}), least=1),
    }
)
"""What an ``alignment.json`` must hold (:mod:`landscape.storage.schema`)."""

_CLIENTS_OF = {"local": "local_models_of", "used": "used_perturbations_of"}
"""By part: the entry that names the clients whose pairs its tables are of, where it is not ``clients``."""
_MAPS = {
    "cosines": ("cosine of gradients", "cos(∇f_i, ∇f_j)"),
    "gains": ("rise of f_j by client i's ascent step", "f_j(w + ε_i) − f_j(w)"),
    "overlaps": ("overlap of top-K eigenspaces", "‖U_iᵀU_j‖² / K, Frobenius"),
    "between": ("barrier of f between local models", "rise above the chord"),
}
"""Title and label of tables over pairs of clients; others go by their names."""


@dataclass(frozen=True)
class Aligned:
    """What was measured of one model's clients against the federation.

    Attributes:
        label: what the run is called there.
        asked: what was asked for there.
        rounds: those up to the model's, ascending; the last one is the model's.
    """

    label: str
    asked: Mapping[str, Any]
    rounds: Sequence[Mapping[str, Any]]

    @property
    def last(self) -> Mapping[str, Any]:
        """That of the model."""
        return self.rounds[-1]

    def maps(self) -> list[dict[str, Any]]:
        """The tables over all pairs of clients at the model, alike clients side by side; numbers have five digits.

        Returns:
            Of each its ``name``, ``title``, ``label``, the ``clients`` in their order, and the ``values``; ``ends`` of
            its scale where they follow from what it is.
        """
        found = []
        for part, tables in self.last.items():
            clients = list(self.last.get(_CLIENTS_OF.get(part, "clients"), ()))
            for name, table in tables.items() if isinstance(tables, dict) else ():
                if len(clients) < 2 or name.endswith("errors") or not _is_table(table, len(clients)):
                    continue
                order = [clients.index(client) for client in self.last["order"] if client in clients]
                values = np.array(table, dtype=float)[np.ix_(order, order)]
                if not np.isfinite(values).any():
                    continue
                title, label = _MAPS.get(name, (name.replace("_", " "), name.replace("_", " ")))
                found.append(
                    {
                        "name": name,
                        "title": title,
                        "label": label,
                        "clients": [clients[i] for i in order],
                        "values": [[float(f"{value:.5g}") for value in row] for row in values],
                        "ends": {"cosines": [-1, 1], "overlaps": [0, 1]}.get(name),
                    }
                )
        return found


def _is_table(value: Any, size: int) -> bool:
    """Whether it is a table of numbers (or ``null``), [size, size]."""
    return (
        isinstance(value, list)
        and len(value) == size
        and all(isinstance(row, list) and len(row) == size for row in value)
        and all(item is None or type(item) in (int, float) for row in value for item in row)
    )


def title_of(quantity: str) -> str:
    """What a mean is of, in words."""
    return TITLES.get(quantity, quantity.replace("_", " "))


def read_alignments(paths: Sequence[Path], digests: Sequence[str]) -> tuple[list[Aligned | None], list[str]]:
    """What was measured of these models.

    Args:
        paths: folders that ``fedscape alignment`` wrote, or their ``alignment.json``.
        digests: of the models (:meth:`landscape.Checkpoint.digest`).

    Returns:
        For each model what is known of it, or ``None``; and sentences on runs that are of none of the models.

    Raises:
        FedscapeError: no such file, one that is damaged or of an earlier version, two of one model, or none of any.
    """
    found: dict[str, Aligned] = {}
    origin: dict[str, Path] = {}
    others = []
    for path in paths:
        file = path / "alignment.json" if path.is_dir() else path
        contents = read_json(file, ALIGNMENT)
        for run in contents["runs"]:
            label, rounds = printable(run["label"]), sorted(run["rounds"], key=lambda one: one["round"])
            if missing := [one["round"] for one in rounds if not one.get("model_digest")]:
                raise FedscapeError(
                    f"{file} does not say which model round {missing[0]} of {label} is: it is of an earlier version; "
                    "give its command again, which reads what it has kept"
                )
            mine = [k for k, one in enumerate(rounds) if one["model_digest"] in digests]
            if not mine:
                others.append(f"{label}, round {rounds[-1]['round']}, of {file} is none of these models")
            for k in mine:
                digest = rounds[k]["model_digest"]
                if origin.setdefault(digest, file) != file:
                    raise FedscapeError(
                        f"{label}, round {rounds[k]['round']}, is in several alignments: give one of them"
                    )
                if digest in found:
                    continue  # a run under two names
                found[digest] = Aligned(label, contents["asked"], rounds[: k + 1])
    if paths and not found:
        raise FedscapeError(
            f"none of the models is in {', '.join(map(str, paths))}: give fedscape alignment the same runs "
            f"({'; '.join(others)})"
        )
    return [found.get(digest) for digest in digests], others
