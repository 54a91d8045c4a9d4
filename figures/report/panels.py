"""The numbers of the panels of clients, layers, λ_max in the plane, and local against global, as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis import Surface
from figures.report.alignments import ASKED, Aligned, title_of
from figures.report.subjects import Subject


def panels(one: Subject) -> dict[str, Any]:
    """What the panels show of one model; ``None`` where it was not measured."""
    return {
        "clients": None if one.clients is None else _clients(one),
        "layers": None if one.layers is None else _layers(one),
        "curvature_map": None if one.curvature_map is None else _curvature_map(one.curvature_map),
        "alignment": None if one.alignment is None else _alignment(one.alignment),
        "missing": dict(one.missing),
    }


def _clients(one: Subject) -> dict[str, Any]:
    found = one.clients
    assert found is not None
    return {
        "partition": one.origin.checkpoint.data["partition"].get("digest"),
        "ids": found.clients.tolist(),
        "lambda_max": found.largest.tolist(),
        "bounds": found.bounds[:, 0].tolist(),
        "converged": found.converged[:, 0].tolist(),
        "loss": found.losses.tolist(),
        "accuracy": None if found.accuracies is None else found.accuracies.tolist(),
        "samples": found.samples.tolist(),
        "label_counts": None if found.label_counts is None else found.label_counts.tolist(),
        "effective_labels": None if found.label_counts is None else effective_labels(found.label_counts).tolist(),
        "mean": found.mean,
        "deviation": found.deviation,
        "products": found.hvps,
        "model": found.model,
    }


def effective_labels(counts: np.ndarray) -> np.ndarray:
    """exp(−Σ q_c ln q_c) of shares q_c of the classes: as many labels as there are alike, 1 for a client of one class.

    Args:
        counts: samples by class, [n, classes].

    Returns:
        Of each client, [n].

    Example:
        >>> import numpy as np
        >>> from figures.report.panels import effective_labels
        >>> effective_labels(np.array([[5, 5, 0], [7, 0, 0]])).round(6).tolist()
        [2.0, 1.0]
    """
    shares = counts / counts.sum(axis=1, keepdims=True)
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return np.exp(-(shares * logs).sum(axis=1))


def _layers(one: Subject) -> dict[str, Any]:
    found = one.layers
    assert found is not None
    values = found.values[:, 0]
    return {
        "names": list(found.layers),
        "parameters": found.parameters.tolist(),
        "lambda_max": values.tolist(),
        "bounds": found.bounds[:, 0].tolist(),
        "converged": found.converged[:, 0].tolist(),
        "products": found.hvps,
    }


def _curvature_map(found: Surface) -> dict[str, Any]:
    assert found.lambda_max is not None
    return {
        "x": found.x.tolist(),
        "y": found.y.tolist(),
        "lambda_max": found.lambda_max.tolist(),
        "relative_error_bound": found.to_dict()["lambda_max_relative_error_bound"],
        "samples": found.provenance.samples,
        "split": found.provenance.split,
        "seed": found.provenance.seed,
    }


def _alignment(found: Aligned) -> dict[str, Any]:
    last = found.last
    return {
        "label": found.label,
        "asked": {name: found.asked[name] for name in ASKED},
        "round": last["round"],
        "clients": len(last["clients"]),
        "clients_with_data": last["clients_with_data"],
        "ordered": last["ordered"],
        "titles": {name: title_of(name) for name in last["means"]},
        "rounds": [{"round": one["round"], "means": one["means"]} for one in found.rounds],
        "maps": found.maps(),
        "notes": list(last.get("notes", ())),
    }
