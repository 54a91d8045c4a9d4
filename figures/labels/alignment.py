"""Clients' losses beside the federation's, as labelled arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.alignment.local_models import QUANTITIES, WHERE
from analysis.alignment.plain import Plain
from analysis.alignment.results import Alignment, RunAlignment
from analysis.alignment.rounds import TITLES, RoundAlignment
from figures.contents.content import CURVATURE
from figures.labels.arrays import Variables, grown, plain, tree

if TYPE_CHECKING:
    from xarray import DataTree

_LETTERS = {"n": "client", "k": "rank", "3": "place", "5": "measure"}
"""Dimensions by the letters of :class:`analysis.alignment.plain.Plain`; a second ``n`` is the other client."""
_OWN_AXES: dict[str, tuple[str, ...]] = {
    "distances": ("client", "end"),
    "products": ("data",),
    "own_gains": ("client", "length"),
    "global_gains": ("client", "length"),
    "server": ("of_server",),
}
"""Last dimensions of arrays whose digits mean something of their own."""
_AXES: dict[str, Sequence[Any]] = {
    "place": WHERE,
    "measure": QUANTITIES,
    "end": ("received", "aggregate"),
    "data": ("one client", "all clients"),
    "length": ("as used", "at ρ"),
    "of_server": ("length", "gain", "found", "worst", "cosine"),
}
_NATS = {
    "losses", "loss", "gains", "global_gains", "own_gains", "worst", "mean_gain", "mean_gain_stderr", "rounding",
    "to_aggregate", "between",
}  # fmt: skip
_UNITS = dict.fromkeys(_NATS, "nat") | {
    "norms": "nat / parameter",
    "norm": "nat / parameter",
    "values": CURVATURE,
    "bounds": CURVATURE,
    "global_values": CURVATURE,
    "global_bounds": CURVATURE,
    "angles": "degree",
    "global_angles": "degree",
    "distances": "parameter",
    "lengths": "parameter",
    "server": "parameter, nat, 1, nat, 1",
}
"""Units of what the parts hold; cosines, shares, counts and flags have none."""
_OF_MEASURE = {"loss": "nat", "accuracy": "1", "sharpness": "nat", "lambda_max": CURVATURE, "trace": CURVATURE}


def unit_of(quantity: str) -> str:
    """The unit of a quantity of :data:`analysis.alignment.rounds.TITLES`.

    Example:
        >>> from figures.labels.alignment import unit_of
        >>> unit_of("lambda_max_global"), unit_of("own_gain"), unit_of("overlap"), unit_of("distance_to_aggregate")
        ('loss / parameter²', 'nat', '1', 'parameter')
    """
    if quantity.startswith(("lambda_max", "trace")):
        return CURVATURE
    if quantity.startswith(("loss", "sharpness", "barrier")) or "gain" in quantity:
        return "nat"
    return "parameter" if quantity.startswith("distance") or quantity.endswith("_length") else "1"


def alignment(found: Alignment) -> DataTree:
    """``quantities`` by run, round and name, with both errors; ``runs/LABEL`` as :func:`run_alignment`."""
    children = {"quantities": _quantities(found)}
    for i, run in enumerate(found.runs):
        children[f"runs/{_names(found)[i].replace('/', '-')}"] = run_alignment(run)
    asked = {"asked": json.dumps(asdict(found.asked), sort_keys=True), "device": found.device, "dtype": found.dtype}
    return grown(children, asked)


def run_alignment(run: RunAlignment) -> DataTree:
    """The parts of a run's rounds (``gradients``, ``perturbations``, ``curvature``, ``local``): by round and client, of
    pairs also by ``client_other``; not-a-number for clients that were not measured in a round."""
    clients = sorted({client for one in run.rounds for client in one.clients})
    names = [field.name for field in fields(RoundAlignment)]
    parts = {name: [getattr(one, name) for one in run.rounds] for name in names}
    children = {
        name: _part(run, name, clients) for name, found in parts.items() if any(isinstance(p, Plain) for p in found)
    }
    shares = np.full((len(run.rounds), len(clients)), np.nan)
    for row, one in zip(shares, run.rounds, strict=True):
        row[[clients.index(client) for client in one.clients]] = one.shares
    missing = {one.round: one.missing for one in run.rounds if one.missing}
    made = tree(
        {"share": (("round", "client"), shares, {"long_name": "weight among the measured clients"})},
        {"round": [one.round for one in run.rounds], "client": clients},
        {"title": run.label, "path": run.path, "missing": json.dumps(missing), "left_out": json.dumps(run.left_out)},
        children,
    )
    made.attrs |= plain({"clients_with_data": run.rounds[-1].population if run.rounds else None})
    return made


def round_alignment(one: RoundAlignment) -> DataTree:
    """One round, as :func:`run_alignment`."""
    return run_alignment(RunAlignment(f"round {one.round}", "", (one,), {}))


def _names(found: Alignment) -> list[str]:
    """The runs' labels, with a number where two are alike."""
    labels = [run.label for run in found.runs]
    return [label if labels.count(label) == 1 else f"{label} ({i + 1})" for i, label in enumerate(labels)]


def _quantities(found: Alignment) -> DataTree:
    rounds = sorted({one.round for run in found.runs for one in run.rounds})
    measured = [{one.round: {q.name: q for q in one.quantities()} for one in run.rounds} for run in found.runs]
    there = {name for run in measured for one in run.values() for name in one}
    names = [name for name in TITLES if name in there]
    shape, of = (len(measured), len(rounds), len(names)), ("run", "round", "quantity")
    kinds = ("value", "sampling_error", "measurement_error", "low", "high", "clients")
    arrays = {kind: np.full(shape, np.nan) for kind in kinds}
    for i, run in enumerate(measured):
        for number, one in run.items():
            for name, q in one.items():
                at = i, rounds.index(number), names.index(name)
                told = (q.mean.value, q.mean.stderr, q.error, q.mean.low, q.mean.high, q.mean.count)
                for kind, value in zip(kinds, told, strict=True):
                    arrays[kind][at] = value
    variables: Variables = {
        kind: (of, values, {"units": "1" if kind == "clients" else "as the coordinate unit"})
        for kind, values in arrays.items()
    }
    coordinates = {
        "run": _names(found),
        "round": rounds,
        "quantity": names,
        "title": ("quantity", [TITLES[name] for name in names]),
        "unit": ("quantity", [unit_of(name) for name in names]),
    }
    return tree(variables, coordinates, {})


def _part(run: RunAlignment, name: str, clients: Sequence[int]) -> DataTree:
    """One part of all rounds; not-a-number in those that have not got it."""
    found = [getattr(one, name) for one in run.rounds]
    first = next(part for part in found if isinstance(part, Plain))
    variables: Variables = {}
    coordinates: dict[str, Any] = {}
    for field in fields(first):  # type: ignore[arg-type]
        letters = first.letters.get(field.name, "")
        own = _OWN_AXES.get(field.name, ()) if any(letter.isdigit() for letter in letters) else ()
        axes = own or tuple(_LETTERS.get(letter, f"{field.name}_{letter}") for letter in letters)
        rows = []
        for one, part in zip(run.rounds, found, strict=True):
            value = np.asarray(getattr(first if part is None else part, field.name), dtype=float)
            value = np.full_like(value, np.nan) if part is None else value
            mine = getattr(one, f"{name}_clients", one.clients)
            rows.append(_spread(value, letters, [clients.index(client) for client in mine], len(clients), part is None))
        named = tuple("client_other" if axis == "client" and i else axis for i, axis in enumerate(axes))
        unit = "as the coordinate unit" if "measure" in named else _UNITS.get(field.name, "1")
        variables[field.name] = (("round", *named), np.stack(rows), {"units": unit})
        for axis, size in zip(named, np.stack(rows).shape[1:], strict=True):
            numbers = clients if axis in ("client", "client_other") else np.arange(1, size + 1)
            coordinates[axis] = _AXES.get(axis, numbers)
    if "measure" in coordinates:
        coordinates["unit"] = ("measure", [_OF_MEASURE[name] for name in QUANTITIES])
    coordinates = {axis: list(v) if axis in _AXES else v for axis, v in coordinates.items()}
    return tree(variables, {"round": [one.round for one in run.rounds], **coordinates}, {})


def _spread(value: np.ndarray, letters: str, places: Sequence[int], count: int, none: bool) -> np.ndarray:
    """An array over some clients as one over all of them."""
    axes = letters.count("n")
    whole = np.full((count,) * axes + value.shape[axes:], np.nan)
    if not none:
        whole[np.ix_(*[places] * axes) if axes else ...] = value
    return whole
