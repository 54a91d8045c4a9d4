"""What the report page is of: models, measured alike, in groups of runs that differ in their seed alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis import HessianReport, Surface
from analysis.hessian.client_results import ClientEigenvalues
from analysis.hessian.layers import LayerEigenvalues
from figures.report.alignments import Aligned
from landscape import Checkpoint, Evaluation
from trainers.runs.records import SAME_RESULT, RecordedRun


@dataclass(frozen=True)
class Origin:
    """Where a model comes from.

    Attributes:
        file: the checkpoint, with ``@ID`` for a client's local model.
        checkpoint: what is in it.
        recorded: the run it is of; ``None`` where the file lies in no run directory.
        algorithm, settings: as recorded; what nobody knows is missing.
    """

    file: str | Path
    checkpoint: Checkpoint
    recorded: RecordedRun | None
    algorithm: dict[str, Any]
    settings: dict[str, Any]

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The records of its run up to its round; none without a run."""
        records = [] if self.recorded is None else self.recorded.metrics
        return [record for record in records if record["round"] <= self.checkpoint.round]

    @property
    def folder(self) -> str:
        """The name of the folder of its run, or of its file."""
        path = self.checkpoint.path
        return "" if path is None else (path.parent if self.recorded is None else self.recorded.path).resolve().name


@dataclass(frozen=True)
class Subject:
    """One model, with all that was measured of it.

    Attributes:
        label: what it is called, unlike all others.
        group: what the group of runs is called that differ from its run in their seed alone.
        origin: where it comes from.
        test: loss and accuracy on the whole test set.
        report: the Hessian's spectrum.
        surface: the loss around it; ``None`` where none was asked for.
        curvature_map: λ_max at the points of a coarser grid in the same plane; ``None`` where none was asked for.
        clients: λ_max, loss and accuracy on each client's own training data; ``None`` without, as ``missing`` says.
        layers: λ_max of each layer's block of the Hessian; ``None`` where none was asked for.
        alignment: local against global, as it was given; ``None`` where nothing was given of this model.
        missing: why something that was asked for is not there, by the names above.
    """

    label: str
    group: str
    origin: Origin
    test: Evaluation
    report: HessianReport
    surface: Surface | None
    curvature_map: Surface | None = None
    clients: ClientEigenvalues | None = None
    layers: LayerEigenvalues | None = None
    alignment: Aligned | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """Of its run."""
        return self.origin.checkpoint.seed


def grouped(models: Sequence[Origin]) -> list[str]:
    """The name of each one's group: the algorithm, with what tells groups of one algorithm apart.

    Runs are of one group where their configuration is the same but for the seed, and the models are of one round; a
    model without a run is a group of its own.
    """
    keys = [_key(model) for model in models]
    first = {key: models[keys.index(key)] for key in dict.fromkeys(keys)}
    names = {key: _algorithm(model) for key, model in first.items()}
    for told in (_parameters, _round, _folder):
        again = [key for key in names if list(names.values()).count(names[key]) > 1]
        alike = {key: [first[other] for other in again if names[other] == names[key]] for key in again}
        more = {key: told(first[key], others) for key, others in alike.items()}
        names |= {key: f"{names[key]}, {text}" for key, text in more.items() if text}
    taken: dict[str, int] = {}
    for key, name in names.items():
        taken[name] = taken.get(name, 0) + 1
        names[key] = name if taken[name] == 1 else f"{name} ({taken[name]})"
    return [names[key] for key in keys]


def named(models: Sequence[Origin], groups: Sequence[str]) -> list[str]:
    """A name for each model: its group's, with the seed where the group has several, and the folder where that is not
    enough."""
    labels = [
        group if groups.count(group) == 1 else f"{group}, seed {model.checkpoint.seed}"
        for model, group in zip(models, groups, strict=True)
    ]
    return [
        label if labels.count(label) == 1 else f"{label} ({model.folder})"
        for model, label in zip(models, labels, strict=True)
    ]


def _key(model: Origin) -> str:
    if model.recorded is None:
        return str(model.file)
    return f"{model.recorded.configuration} {model.checkpoint.round} {model.checkpoint.client}"


def _algorithm(model: Origin) -> str:
    """The algorithm, or what its file is called, and whose local model it is."""
    if model.recorded is None:
        return model.checkpoint.label
    client = model.checkpoint.client
    return model.recorded.algorithm if client is None else f"{model.recorded.algorithm}, client {client}"


def _parameters(model: Origin, others: Sequence[Origin]) -> str:
    """The hyper-parameters and settings in which groups of one algorithm differ."""

    def known(one: Origin) -> dict[str, Any]:
        return {**{k: v for k, v in one.settings.items() if k not in SAME_RESULT}, **one.algorithm}

    own, every = known(model), [known(other) for other in others]
    differing = [name for name in own if len({str(one.get(name)) for one in every}) > 1 and name != "name"]
    return ", ".join(f"{name.replace('_', ' ')} {own[name]}" for name in differing[:3])


def _round(model: Origin, others: Sequence[Origin]) -> str:
    return f"round {model.checkpoint.round}"


def _folder(model: Origin, others: Sequence[Origin]) -> str:
    return model.folder
