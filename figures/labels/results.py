"""Results as labelled arrays: xarray trees with named coordinates, units and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis import HessianReport, Surface
from analysis.accuracy import ClientAccuracies
from analysis.alignment.results import Alignment, RunAlignment
from analysis.alignment.rounds import RoundAlignment
from analysis.corruptions.robustness import Robustness
from analysis.hessian.client_results import ClientCurves, ClientEigenvalues
from analysis.hessian.density import Density
from analysis.hessian.layers import LayerEigenvalues
from figures.contents.content import CURVATURE
from figures.labels.alignment import alignment, round_alignment, run_alignment
from figures.labels.arrays import Form, Variables, tree
from landscape import FedscapeError

if TYPE_CHECKING:
    from xarray import DataTree

_UNITS = {
    "seconds": "s",
    "bytes": "byte",
    "drift": "parameter²",
    "train_loss": "nat",
    "test_loss": "nat",
    "swa_test_loss": "nat",
}
"""Units of the metrics whose names begin so; the others have none."""


def labelled(result: object) -> DataTree:
    """A result as a tree of labelled arrays, which selects by name, plots, and goes to netCDF, Zarr or pandas.

    Args:
        result: a spectrum (:class:`analysis.HessianReport`), :class:`~analysis.hessian.density.Density`,
            :class:`analysis.Surface`, eigenvalues of layers or clients, clients over the rounds, accuracies of
            clients or under corruptions, alignment (:func:`analysis.measure_alignment`) of all runs, one, or a round.

    Returns:
        Coordinates are ``rank`` of an eigenvalue (1 for the first), ``eigenvalue``, ``probe``, ``node``, ``x``, ``y``,
        ``layer``, ``client``, ``client_other``, ``round``, ``run``, ``quantity``, ``model``, ``corruption``,
        ``severity``; attributes say the units, and where the numbers come from.

    Raises:
        FedscapeError: another object; xarray is not installed.

    Example:
        >>> import torch
        >>> from analysis import measure_hessian
        >>> from figures import labelled
        >>> from landscape import Landscape
        >>> line = torch.nn.Linear(2, 1, bias=False)
        >>> data = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.zeros(2, 1)
        >>> there = Landscape(line, data, torch.nn.functional.mse_loss, device="cpu")  # Hessian: diag(1, 4)
        >>> found = labelled(measure_hessian(there, 2))
        >>> [round(float(found.value.sel(rank=rank)), 4) for rank in (1, 2)], found.value.attrs["units"]
        ([4.0, 1.0], 'loss / parameter²')
    """
    for kind, arrays in _KINDS.items():
        if isinstance(result, kind):
            return arrays(result)
    known = ", ".join(kind.__name__ for kind in _KINDS)
    raise FedscapeError(f"a {type(result).__name__} has no labelled form: give one of {known}")


def curves(metrics: Sequence[Mapping[str, Any]], title: str) -> DataTree:
    """The records of a run over its rounds; rounds in which a number was not measured have not-a-number.

    Args:
        metrics: one record a round, as in ``metrics.jsonl``.
        title: of the run.

    Raises:
        FedscapeError: xarray is not installed.
    """
    names = dict.fromkeys(name for record in metrics for name in record)
    variables: Variables = {}
    for name in names:
        column = [record.get(name) for record in metrics]
        if name != "round" and all(value is None or isinstance(value, (int, float)) for value in column):
            numbers = np.array([np.nan if value is None else value for value in column], dtype=float)
            unit = next((unit for start, unit in _UNITS.items() if name.startswith(start)), "1")
            variables[name] = ("round", numbers, {"units": unit, "long_name": name.replace("_", " ")})
    return tree(variables, {"round": [record["round"] for record in metrics]}, {"title": title})


def _spectrum(report: HessianReport) -> DataTree:
    eigen = report.eigen
    variables: Variables = {
        "value": ("rank", eigen.values, {"units": CURVATURE, "long_name": f"{report.which} eigenvalues"}),
        "residual": ("rank", eigen.residuals, {"units": CURVATURE, "long_name": "‖H v − λ v‖"}),
        "error_bound": ("rank", eigen.bounds, {"units": CURVATURE}),
        "converged": ("rank", eigen.converged),
        "loss": ((), report.loss, {"units": "nat"}),
    }
    if report.accuracy is not None:
        variables["accuracy"] = ((), report.accuracy, {"units": "1"})
    if report.trace is not None:
        variables["trace"] = ((), report.trace.value, {"units": CURVATURE})
        variables["trace_stderr"] = ((), report.trace.stderr, {"units": CURVATURE})
    if report.sampling is not None:
        what = f"95 % interval of the value over all {report.sampling.population:,} samples"
        variables["low"] = ("rank", report.sampling.low, {"units": CURVATURE, "long_name": what})
        variables["high"] = ("rank", report.sampling.high, {"units": CURVATURE, "long_name": what})
    attributes = {
        name: getattr(report, name)
        for name in (
            "title", "which", "matrix", "split", "samples", "parameters", "dtype", "device", "hvps", "seconds",
            "weight_decay", "man",
        )
    }  # fmt: skip
    ranks = np.arange(1, len(eigen.values) + 1)
    children = {} if report.density is None else {"density": _density(report.density)}
    return tree(variables, {"rank": ranks}, attributes, children)


def _density(density: Density) -> DataTree:
    unit = {"units": f"1 / ({CURVATURE})"}
    variables: Variables = {
        "density": ("eigenvalue", density.values, unit),
        "stderr": ("eigenvalue", density.stderr, {**unit, "long_name": "standard error over the probes"}),
        "nodes": (("probe", "node"), density.nodes, {"units": CURVATURE}),
        "weights": (("probe", "node"), density.weights, {"units": "1"}),
        "atoms": ("atom", density.atoms, {"units": CURVATURE}),
    }
    if len(density.quadrature):
        variables["quadrature_error"] = ("eigenvalue", density.quadrature, unit)
    places = ("eigenvalue", density.grid, {"units": CURVATURE})
    return tree(variables, {"eigenvalue": places}, {"width": density.width, "products": density.products})


def _surface(surface: Surface) -> DataTree:
    units = {"loss": "nat", "loss_stderr": "nat", "lambda_max": CURVATURE}
    variables: Variables = {}
    for name in ("loss", "loss_stderr", "accuracy", "accuracy_stderr", "lambda_max", "error", "measured", "computed"):
        if (values := getattr(surface, name)) is not None:
            variables[name] = (("y", "x"), values, {"units": units.get(name, "1")})
    attributes = {**vars(surface.provenance), "seconds": surface.seconds, "kind": surface.kind}
    names = surface.axis_labels or ("step along direction 1", "step along direction 2")
    along = {
        axis: (axis, getattr(surface, axis), {"units": "1", "long_name": name})
        for axis, name in zip("xy", names, strict=True)
    }
    children = {} if surface.test is None else {"test": _surface(surface.test)}
    return tree(variables, along, attributes, children)


def _layers(found: LayerEigenvalues) -> DataTree:
    coordinates = {"layer": list(found.layers), "rank": np.arange(1, found.values.shape[1] + 1)}
    variables = {**_eigenvalues(found, "layer"), "parameters": ("layer", found.parameters)}
    return tree(variables, coordinates, {"hvps": found.hvps})


def _clients(found: ClientEigenvalues) -> DataTree:
    coordinates = {"client": found.clients, "rank": np.arange(1, found.values.shape[1] + 1)}
    variables: Variables = {
        **_eigenvalues(found, "client"),
        "loss": ("client", found.losses, {"units": "nat"}),
        "samples": ("client", found.samples),
    }
    if found.accuracies is not None:
        variables["accuracy"] = ("client", found.accuracies, {"units": "1"})
    named = {"title": found.title, "round": found.round, "model": found.model, "hvps": found.hvps}
    return tree(variables, coordinates, named)


def _rounds(found: ClientCurves) -> DataTree:
    variables: Variables = {"lambda_max": (("round", "client"), found.table(), {"units": CURVATURE})}
    if found.together:
        whole = [found.together.get(int(number), (np.nan, np.nan)) for number in found.rounds]
        variables["together"] = ("round", [value for value, _ in whole], {"units": CURVATURE})
        variables["together_error_bound"] = ("round", [bound for _, bound in whole], {"units": CURVATURE})
    return tree(variables, {"round": found.rounds, "client": found.clients}, {"title": found.name})


def _corruptions(found: Robustness) -> DataTree:
    axes = ("model", "corruption", "severity")
    variables: Variables = {
        "accuracy": (axes, found.accuracy, {"units": "1"}),
        "loss": (axes, found.loss, {"units": "nat"}),
        "clean_accuracy": ("model", found.clean_accuracy, {"units": "1"}),
        "clean_loss": ("model", found.clean_loss, {"units": "nat"}),
    }
    coordinates = dict(zip(axes, (list(found.labels), list(found.corruptions), list(found.severities)), strict=True))
    attributes = {name: getattr(found, name) for name in ("data", "images", "generated", "samples", "seed", "dtype")}
    return tree(variables, coordinates, attributes)


def _eigenvalues(found: LayerEigenvalues | ClientEigenvalues, of: str) -> Variables:
    return {
        "value": ((of, "rank"), found.values, {"units": CURVATURE, "long_name": f"largest eigenvalues of a {of}"}),
        "error_bound": ((of, "rank"), found.bounds, {"units": CURVATURE}),
        "converged": ((of, "rank"), found.converged),
    }


_KINDS: Mapping[type, Form] = {
    HessianReport: _spectrum,
    Density: _density,
    Surface: _surface,
    LayerEigenvalues: _layers,
    ClientEigenvalues: _clients,
    ClientCurves: _rounds,
    ClientAccuracies: lambda found: _client_accuracy(vars(found)),
    Robustness: _corruptions,
    Alignment: alignment,
    RunAlignment: run_alignment,
    RoundAlignment: round_alignment,
}


def kept(kind: str, result: Any) -> DataTree:
    """What a store reads of a measurement of a kind (:data:`figures.graph.kinds.KINDS`), as labelled arrays.

    Raises:
        FedscapeError: xarray is not installed.
    """
    return _READ[kind](result) if kind in _READ else labelled(result)


def _evaluation(found: Mapping[str, Any]) -> DataTree:
    units = {"loss": "nat", "loss_stderr": "nat"}
    return tree({name: ((), v, {"units": units.get(name, "1")}) for name, v in found.items() if v is not None}, {}, {})


def _client_accuracy(found: Mapping[str, Any]) -> DataTree:
    variables: Variables = {
        "accuracy": (("round", "client"), np.array(found["accuracy"]), {"long_name": "on a client's training data"}),
        "test_accuracy": ("round", np.array(found["test_accuracy"]), {"long_name": "on all test data"}),
    }
    return tree(variables, {"round": found["rounds"], "client": found["clients"]}, {})


def _client_eigenvalues(found: Mapping[str, Any]) -> DataTree:
    """The clients of two rounds may be different ones: not-a-number where one was not measured."""
    measured = found["measured"]
    clients = sorted({client for each in measured for client in each["clients"]})
    most = max((len(values) for each in measured for values in each["values"]), default=0)
    arrays = {name: np.full((len(measured), len(clients), most), np.nan) for name in ("value", "error_bound")}
    for i, each in enumerate(measured):
        for name, rows in (("value", each["values"]), ("error_bound", each.get("bounds", []))):
            for client, values in zip(each["clients"], rows, strict=False):  # a file may have no bounds
                arrays[name][i, clients.index(client), : len(values)] = values
    of = ("round", "client", "rank")
    variables: Variables = {name: (of, values, {"units": CURVATURE}) for name, values in arrays.items()}
    rounds = [each["round"] for each in measured]
    return tree(variables, {"round": rounds, "client": clients, "rank": np.arange(1, most + 1)}, {})


def _kept_corruptions(found: Mapping[str, Any]) -> DataTree:
    of, units = ("model", "corruption", "severity"), {"accuracy": "1", "loss": "nat"}
    variables: Variables = {n: (of, np.array(found[n]), {"units": u}) for n, u in units.items() if n in found}
    variables |= {
        f"clean_{n}": ("model", np.array(found[f"clean_{n}"]), {"units": u})
        for n, u in units.items()
        if f"clean_{n}" in found
    }
    labels = found.get("labels") or [str(i) for i in range(len(found["accuracy"]))]
    coordinates = {"model": labels, "corruption": list(found["corruptions"]), "severity": list(found["severities"])}
    attributes = {n: found.get(n) for n in ("data", "images", "generated", "samples", "seed", "dtype")}
    return tree(variables, coordinates, attributes)


_READ: Mapping[str, Form] = {
    "client-eigenvalues": _client_eigenvalues,
    "client-accuracy": _client_accuracy,
    "corruptions": _kept_corruptions,
    "evaluation": _evaluation,
}
NAMES: Mapping[str, str] = {
    "hessian": "spectra",
    "surface": "surfaces",
    "evaluation": "evaluations",
    "corruptions": "corruptions",
    "client-eigenvalues": "client-eigenvalues",
    "client-accuracy": "client-accuracies",
    "clients": "clients",
    "layers": "layers",
}
"""What the measurements of each kind are called together, in :attr:`figures.runs.OpenedRun.results`."""
