"""What a report still has to measure, and about how long it takes, in a line before it starts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from analysis.hessian.spectrum.operators import Hessian
from analysis.source import Source
from analysis.timing import duration, seconds_of
from figures.graph.cost import lanczos_products
from figures.measurements import Measurements
from figures.report import Origin
from landscape import Landscape
from landscape.data.loaders import data_named

Tasks = Mapping[str, tuple[str, Mapping[str, Any]]]
"""By what is made of it: the kind of a measurement, and its options."""

_NAMES = {
    "report": "spectra",
    "surface": "surfaces (--without surfaces)",
    "clients": "clients (--without clients)",
    "layers": "layers (--without layers)",
    "curvature_map": "λ_max on the surfaces (--curvature-map)",
}

_LARGEST, _STOPS = 15, 6
"""Products that one largest eigenvalue takes, how much sooner than asked the density stops: about, on the digits."""


def expected(measure: Measurements, models: Sequence[tuple[Origin, Tasks]]) -> str:
    """Which measurements are not kept yet, with their products and about how long they take; empty where all are.

    The time is by one product and one evaluation of the first model that is not measured; nothing is decided by it.

    Args:
        measure: where they are kept, and on what they are made.
        models: each with its measurements.
    """
    left = [
        (origin, name, kind, options)
        for origin, tasks in models
        for name, (kind, options) in tasks.items()
        if not measure.kept(kind, origin.file, origin.checkpoint, options)
    ]
    if not left:
        return ""
    given = {name: value for name, value in vars(measure.source).items() if value is not None}
    there = Landscape.from_checkpoint(left[0][0].file, **given)
    operator, vector = Hessian(there), torch.ones_like(there.weights)[:, None]
    product, evaluation = seconds_of(lambda: operator.matmat(vector)), seconds_of(there.value)
    layers = len(there.space.layers())
    everybody = next((_everybody(one, measure.source, there) for one, _, kind, _ in left if kind == "clients"), 0.0)
    count: defaultdict[str, int] = defaultdict(int)
    seconds: defaultdict[str, float] = defaultdict(float)
    for _, name, kind, options in left:
        products, values = _work(kind, options, layers, everybody)
        count[name] += 1
        seconds[name] += products * product + values * evaluation
    told = "; ".join(f"{number} × {_NAMES[name]} some {_told(seconds[name])}" for name, number in count.items())
    return f"report: to be measured: {told}"


def _everybody(origin: Origin, source: Source, there: Landscape) -> float:
    """The training samples that the clients' panel is over, as a multiple of those that a product is over."""
    if source.split == "train" and source.samples is None:
        return 1.0
    checkpoint, name = origin.checkpoint, data_named(source.data, source.loader)
    dataset = checkpoint.load_dataset(data_dir=source.data_dir, name=name, normalise=source.normalise)
    sizes = checkpoint.partition(dataset).sizes
    own = sizes if source.clients is None else sizes[list(source.clients)]
    return float(np.minimum(own, source.samples or np.inf).sum()) / there.samples


def _work(kind: str, options: Mapping[str, Any], layers: int, everybody: float) -> tuple[float, float]:
    """Hessian-vector products and evaluations, each over all samples."""
    if kind == "hessian":
        probes = options["trace_probes"] / 2 + options["density_probes"] * options["density_steps"] / _STOPS
        return lanczos_products(options["top"]) + probes, 1.0
    if kind == "clients":
        return everybody * _LARGEST, everybody
    if kind == "layers":
        return layers * _LARGEST, 0.0
    points = options["points"] ** 2
    return (points * _LARGEST if options.get("lambda_max") else 0.0), float(points)


def _told(seconds: float) -> str:
    return f"{max(1, math.ceil(seconds))} s" if seconds < 100 else duration(seconds)
