"""The numbers of the report page, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis import Surface
from figures.report.findings import notes, verdict
from figures.report.panels import panels
from figures.report.subjects import Origin, Subject
from landscape.storage.files import json_ready
from landscape.storage.looks import COLOURS
from landscape.version import versions

_CURVES = ("train_loss", "test_loss", "test_accuracy")


def contents(subjects: Sequence[Subject], command: str, remarks: Sequence[str] = ()) -> dict[str, Any]:
    """Everything that the page shows, and what its download holds; numbers that are not finite are ``null``.

    Args:
        subjects: in the order of the page.
        command: the command line that makes the page again.
        remarks: what else is to be minded, in sentences.
    """
    groups = list(dict.fromkeys(one.group for one in subjects))
    found = {
        "generator": "Fedscape",
        "command": command,
        "versions": versions(),
        "verdict": verdict(subjects),
        "notes": [vars(note) for note in notes(subjects, remarks)],
        "groups": [{"label": name, "colour": COLOURS[i % len(COLOURS)]} for i, name in enumerate(groups)],
        "subjects": [_subject(one, groups.index(one.group)) for one in subjects],
    }
    return dict(json_ready(found))


def _subject(one: Subject, group: int) -> dict[str, Any]:
    checkpoint = one.origin.checkpoint
    return {
        "label": one.label,
        "group": group,
        "seed": one.seed,
        "round": checkpoint.round,
        "file": _file(one.origin),
        "digest": checkpoint.digest(),
        "model": str(checkpoint.model.get("name")),
        "data": str(checkpoint.data.get("name")),
        "algorithm": one.origin.algorithm,
        "settings": one.origin.settings,
        "versions": checkpoint.versions,
        "scores": _scores(one),
        "curves": {
            "round": [record["round"] for record in one.origin.metrics],
            **{name: [record.get(name) for record in one.origin.metrics] for name in _CURVES},
        },
        "spectrum": _spectrum(one),
        "density": _density(one),
        "surface": None if one.surface is None else _surface(one.surface),
        **panels(one),
        "remarks": one.report.remarks(),
    }


def _file(origin: Origin) -> str:
    """The file's name, of a run's within the run's folder: who reads the page needs no path of this machine."""
    path, recorded = origin.checkpoint.path, origin.recorded
    if path is None or recorded is None:
        return Path(origin.file).name
    return f"{origin.folder}/{path.resolve().relative_to(recorded.path.resolve()).as_posix()}"


def _scores(one: Subject) -> dict[str, Any]:
    report, trace = one.report, one.report.trace
    return {
        "test_accuracy": one.test.accuracy,
        "test_loss": one.test.loss,
        "train_accuracy": report.accuracy,
        "train_loss": report.loss,
        "lambda_1": float(report.eigen.values[0]),
        "lambda_1_error": float(report.eigen.bounds[0]),
        "ratio": report.ratio(1, 5),
        "ratio_error": report.ratio_error(1, 5),
        "trace": None if trace is None else trace.value,
        "trace_error": None if trace is None else trace.stderr,
    }


def _spectrum(one: Subject) -> dict[str, Any]:
    report = one.report
    intervals = {} if report.sampling is None else {"low": report.sampling.low, "high": report.sampling.high}
    return _lists(
        {
            "names": report.labels(),
            "values": report.eigen.values,
            "bounds": report.eigen.bounds,
            "converged": report.eigen.converged,
            **intervals,
            "data": report.data,
            "parameters": report.parameters,
            "products": report.hvps,
            "seconds": report.seconds,
            "dtype": report.dtype,
            "device": report.device,
        }
    )


def _density(one: Subject) -> dict[str, Any] | None:
    density = one.report.density
    if density is None:
        return None
    kept = density.weights > 1e-12
    return _lists(
        {
            "nodes": density.nodes[kept],
            "weights": density.weights[kept] / len(density.nodes),
            "atoms": density.atoms,
            "share": 0.0 if density.dimension is None else 1 / density.dimension,
            "width": density.width,
        }
    )


def _surface(surface: Surface) -> dict[str, Any]:
    return _lists(
        {
            "x": surface.x,
            "y": surface.y,
            "loss": surface.loss,
            "accuracy": surface.accuracy,
            "axes": surface.axis_labels,
            "seed": surface.provenance.seed,
            "samples": surface.provenance.samples,
            "split": surface.provenance.split,
            "normalisation": surface.provenance.normalisation,
        }
    )


def _lists(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
