"""The kinds of measurements: how each is made of checkpoint files, and read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from analysis import HessianReport, Surface, measure_corruptions, measure_hessian, measure_surface
from analysis.accuracy import client_accuracies
from analysis.hessian.client_results import ClientEigenvalues, clients_rule
from analysis.hessian.clients import client_curves, client_eigenvalues, rounds_of
from analysis.hessian.layers import LAYERS_RULE, LayerEigenvalues, layer_eigenvalues
from analysis.hessian.writing import read_numbers
from landscape import FedscapeError, Landscape
from landscape.storage.files import write_json
from landscape.storage.reading import read_json
from landscape.storage.schema import Agree, Items, Maybe, Number, Record, Rule, Table, Text, Truth
from landscape.terminal.progress import Progress

Options = dict[str, Any]
"""What decides a result, together with where it is computed: keyword arguments of the measuring function."""


@dataclass(frozen=True)
class Kind:
    """A kind of measurement.

    Attributes:
        schema: of its result; raised where the same options come to mean another computation.
        suffix: of its file.
        make: measures checkpoints and writes the file, which an interrupted measurement continues.
        read: the result, from the file.
    """

    schema: int
    suffix: str
    make: Callable[[Sequence[Path], Options, Path, bool], None]
    read: Callable[[Path], Any]


def _hessian(models: Sequence[Path], options: Options, file: Path, progress: bool) -> None:
    write_json(file, measure_hessian(models[0], **options, progress=progress).to_dict())


def _surface(models: Sequence[Path], options: Options, file: Path, progress: bool) -> None:
    measure_surface(models[0], **options, others=models[1:], store=file, progress=progress)


def _clients(models: Sequence[Path], options: Options, file: Path, progress: bool) -> None:
    with Progress("clients", unit="clients", enabled=progress) as bar:
        found = client_eigenvalues(models[0], **options, told=lambda done, _: bar.update(done))
    write_json(file, found.to_dict())


def _layers(models: Sequence[Path], options: Options, file: Path, progress: bool) -> None:
    own = {name: options.pop(name) for name in ("top", "tolerance", "seed") if name in options}
    with Progress("layers", enabled=progress):
        write_json(file, layer_eigenvalues(Landscape.from_checkpoint(models[0], **options), **own).to_dict())


def _client_eigenvalues(models: Sequence[Path], options: Options, file: Path, progress: bool) -> None:
    every = options.pop("every", 1)
    write_json(file, client_curves(_kept(models[0], every), **options).to_dict())


def _client_accuracy(models: Sequence[Path], options: Options, file: Path, progress: bool) -> None:
    every = options.pop("every", 1)
    write_json(file, client_accuracies(_kept(models[0], every), **options).to_dict())


def _corruptions(models: Sequence[Path], options: Options, file: Path, progress: bool) -> None:
    write_json(file, measure_corruptions(models, **options, state=f"{file}.state", progress=progress).to_dict())


def _evaluation(models: Sequence[Path], options: Options, file: Path, progress: bool) -> None:
    measured = Landscape.from_checkpoint(models[0], **options).evaluate()
    write_json(file, {field.name: getattr(measured, field.name) for field in fields(measured)})


def _kept(run: Path, every: int) -> list[Path]:
    """The kept checkpoints of a run whose rounds are multiples of ``every``.

    Raises:
        FedscapeError: there is none.
    """
    files = [file for file in rounds_of(run) if int(file.stem) % every == 0]
    if not files:
        raise FedscapeError(f"{run} keeps no model after a multiple of {every} rounds")
    return files


_SHARE = Number(0, 1)
_IDS = Items(Number(0, whole=True))
_CLIENTS = Record({"round": Number(0, whole=True), "clients": _IDS, "values": Table(Number())})
_CLIENT_EIGENVALUES = Record({"measured": Items(Agree(_CLIENTS, ("clients", "values")))})
_CLIENT_ACCURACY = Agree(
    Record({"rounds": _IDS, "clients": _IDS, "accuracy": Table(_SHARE), "test_accuracy": Items(_SHARE)}),
    ("rounds", "accuracy", "test_accuracy"),
)
_CORRUPTIONS = Record(
    {
        "corruptions": Items(Text(1000), least=1),
        "severities": Items(Number(1, 5, whole=True), least=1),
        "accuracy": Items(Table(_SHARE), least=1),
        "clean_accuracy": Items(_SHARE, least=1),
        "generated": Truth(),
        "samples": Number(1, whole=True),
    }
)
_EVALUATION = Record(
    {"loss": Maybe(Number()), "accuracy": Maybe(_SHARE)},
    {"loss_stderr": Maybe(Number(0)), "accuracy_stderr": Maybe(Number(0)), "mean_iou": Maybe(_SHARE)},
    extra=False,
)


def _json(rule: Rule) -> Callable[[Path], Any]:
    return lambda file: read_json(file, rule)


KINDS: Mapping[str, Kind] = {
    "hessian": Kind(1, "json", _hessian, lambda file: HessianReport.from_dict(read_numbers(file)[0])),
    "surface": Kind(1, "h5", _surface, Surface.load),
    "clients": Kind(1, "json", _clients, lambda file: ClientEigenvalues.from_dict(read_json(file, clients_rule))),
    "layers": Kind(1, "json", _layers, lambda file: LayerEigenvalues.from_dict(read_json(file, LAYERS_RULE))),
    "client-eigenvalues": Kind(1, "json", _client_eigenvalues, _json(_CLIENT_EIGENVALUES)),
    "client-accuracy": Kind(1, "json", _client_accuracy, _json(_CLIENT_ACCURACY)),
    "corruptions": Kind(1, "json", _corruptions, _json(_CORRUPTIONS)),
    "evaluation": Kind(1, "json", _evaluation, _json(_EVALUATION)),
}
"""Spectra, surfaces, λ_max of one model on each client's data, and of its layers; λ_max of each client at its own model
over the kept rounds, the global model's accuracy on each client's data over them, accuracy on corrupted images, loss
and accuracy."""
