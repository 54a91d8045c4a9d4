"""One door to a run or a checkpoint: what was trained, and what can be measured and drawn of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import HessianReport, Surface
from analysis.arguments import grouped
from analysis.hessian import Effort, Spectrum
from analysis.hessian.client_results import ClientEigenvalues
from analysis.hessian.density import Density
from analysis.hessian.layers import LayerEigenvalues
from analysis.source import Source
from analysis.surface import options as surface_options
from figures.alike import Recipe
from figures.comparison import Comparison, compare_measured
from figures.graph import Store
from figures.measurements import Measurements
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.checkpoints.checkpoint import run_files
from landscape.checkpoints.foreign import file_and_client, open_checkpoint
from landscape.storage.display import Shown
from landscape.storage.files import json_ready
from landscape.storage.style import PictureStyle, StyleName
from trainers.runs import RecordedRun, read_runs
from trainers.runs.showing import plot_training

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataTree

_USUAL = Recipe()
"""What is measured unless something else is asked for: what :func:`figures.compare` measures."""
_MARKED = ("model", "data", "partition", "clients", "per_round", "local_epochs", "lr")
"""Settings that are shown."""


def open_run(
    path: str | Path,
    *,
    model: str | None = None,
    data: str | None = None,
    data_dir: str | Path | None = None,
    normalise: str | None = None,
    key: str | None = None,
    loader: str | None = None,
    device: str = "auto",
    store: str | Path | None = None,
) -> OpenedRun:
    """Open a run, or one model of it, or a model from elsewhere, to look at it, to measure it and to compare it.

    Args:
        path: a run directory (its last model is taken), or a checkpoint: ``RUN/ckpt.pt``, ``RUN/rounds/00006.pt`` or
            any other file; with ``@3`` behind it client 3's local model (of a run trained with ``save_clients``).
        model, data, data_dir, normalise, key, loader: what a file from elsewhere does not say, as in
            :meth:`landscape.Landscape.from_checkpoint`.
        device: where to measure: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        store: the folder in which measurements are kept, in ``measurements/``; unless given the run directory,
            or without a run the folder of the file.

    Raises:
        FedscapeError: there is no such run or file, it cannot be loaded, or a file from elsewhere does not say what it
            is of.

    Example:
        >>> import tempfile
        >>> from figures import open_run
        >>> from trainers import FedAvg, Settings, train
        >>> settings = Settings(rounds=2, clients=4, per_round=2, local_steps=1, device="cpu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = train(FedAvg(), settings, out=folder)
        ...     run = open_run(folder)
        ...     report = run.spectrum(top=1, density=False, samples=50)
        >>> run.algorithm["name"], len(run.metrics), len(report.eigen.values)
        ('fedavg', 2, 1)
    """
    file = _checkpoint_file(path)
    folder = None if data_dir is None else Path(data_dir)
    source = Source(model=model, data=data, data_dir=folder, normalise=normalise, key=key, loader=loader, device=device)
    return OpenedRun(file, open_checkpoint(file, **source.naming), source, None if store is None else Path(store))


@dataclass(frozen=True)
class _Eigenvalues:
    """What is asked of a layer's largest eigenvalues."""

    top: int = 1
    tolerance: float = 1e-3
    seed: int = 0


@dataclass(frozen=True)
class _OfClients(_Eigenvalues):
    """What is asked of the clients' largest eigenvalues."""

    local: bool = False


@dataclass(frozen=True, repr=False, eq=False)
class OpenedRun(Shown):
    """A run, or one model of it; made by :func:`open_run`.

    What is measured is kept in :attr:`folder`, by the model's content and the options: the same call again, and
    :meth:`compare`, read it.

    Attributes:
        file: the checkpoint, with ``@ID`` for a client's local model.
        checkpoint: what is in it.
        source: what was said when it was opened: data, device, and what a file from elsewhere leaves unsaid.
        store: where measurements are kept, if that was said.
    """

    file: str | Path
    checkpoint: Checkpoint
    source: Source
    store: Path | None = None

    @cached_property
    def run(self) -> RecordedRun | None:
        """The run it is of; ``None`` where the file lies in no run directory.

        Raises:
            FedscapeError: a file of the run is damaged.
        """
        found = [] if self.checkpoint.foreign else run_files(self.checkpoint.path, "config.json")
        return read_runs([found[0].parent])[0] if found else None

    @property
    def algorithm(self) -> dict[str, Any]:
        """The algorithm's ``name`` and hyper-parameters, as recorded."""
        recorded = self.checkpoint.algorithm if self.run is None else self.run.config["algorithm"]
        return {name: value for name, value in recorded.items() if name not in ("parts", "training")}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the training, as recorded; empty where nobody knows them."""
        return dict(self.checkpoint.algorithm.get("training", {}) if self.run is None else self.run.config["settings"])

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The run's records, one a round, as in ``metrics.jsonl``; ``pandas.DataFrame(run.metrics)`` is their table.

        They are those of the whole run, also where the model is that of an earlier round; none without a run.
        """
        return [] if self.run is None else self.run.metrics

    @property
    def folder(self) -> Path:
        """Where measurements are kept."""
        path = self.checkpoint.path
        assert path is not None
        return (self.store or (path.parent if self.run is None else self.run.path)) / "measurements"

    def landscape(self, **options: Any) -> Landscape:
        """The loss around the model; ``options`` are those of :meth:`landscape.Landscape.from_checkpoint`, such as
        ``split="test"`` or ``clients=[3]``."""
        return Landscape.from_checkpoint(self.checkpoint, **{**self._given(), **options})

    def curves(self, path: str | Path | None = None, style: PictureStyle | StyleName = "screen") -> Figure:
        """Loss and accuracy over the rounds of the run, with a line at the round of the model where it is an earlier
        one; for the screen or a paper, written to ``path`` where one is given.

        Raises:
            FedscapeError: there is no run, or it has recorded no round; the file cannot be written.
        """
        if self.run is None:
            raise FedscapeError(f"{self.file} lies in no run directory, so nobody knows its training curves")
        earlier = self.checkpoint.round < self.run.rounds
        return plot_training(self.metrics, self.run.title, path, style, self.checkpoint.round if earlier else None)

    def spectrum(self, *, progress: bool = False, **options: Any) -> HessianReport:
        """The spectrum of the Hessian: ten eigenvalues, trace and density, as in :func:`figures.compare`.

        Args:
            progress: show progress on stderr.
            options: those of :func:`analysis.measure_hessian`, which go before these.

        Raises:
            FedscapeError: as :func:`analysis.measure_hessian`; an option that is no number, text or list of them.
            TypeError: an option that there is not.
        """
        source, _, effort = grouped("spectrum", options, (self.source, Spectrum(), Effort()))
        recipe = _recipe(options, _USUAL.spectrum)
        return self._measurements(source, effort.seed, progress).hessian(self.file, self.checkpoint, **recipe)

    def density(self, *, progress: bool = False, **options: Any) -> Density:
        """The spectral density of :meth:`spectrum`."""
        found = self.spectrum(progress=progress, **{**options, "density": True}).density
        assert found is not None
        return found

    def surface(self, *, progress: bool = False, **options: Any) -> Surface:
        """The loss around the model: 21 × 21 points up to 1 away in two random directions, as in
        :func:`figures.compare`.

        Args:
            progress: show progress on stderr.
            options: those of :func:`analysis.measure_surface`, which go before these; with a ``tolerance`` points are
                interpolated, and with another ``plane`` than ``random`` the span is the plane's own.

        Raises:
            FedscapeError: as :func:`analysis.measure_surface`; an option that is no number, text or list of them.
            TypeError: an option that there is not.
        """
        groups = self.source, surface_options.Grid(), surface_options.Quantities(), surface_options.Effort()
        source, grid, _, _ = grouped("surface", options, groups)
        usual = _USUAL.surface
        if "tolerance" in options or "checks" in options:
            del usual["exact"]
        if grid.plane != "random":
            del usual["span"]
        measure = self._measurements(source, grid.seed, progress)
        return measure.surface(self.file, self.checkpoint, **_recipe(options, usual))

    def layers(self, *, progress: bool = False, **options: Any) -> LayerEigenvalues:
        """λ_max of each layer's block of the Hessian.

        Args:
            progress: show progress on stderr.
            options: data and device, and ``top``, ``tolerance`` and ``seed`` of
                :func:`analysis.hessian.layers.layer_eigenvalues`.

        Raises:
            FedscapeError: as :func:`analysis.hessian.layers.layer_eigenvalues`.
            TypeError: an option that there is not.
        """
        layers: LayerEigenvalues = self._eigenvalues("layers", _Eigenvalues(), options, progress)
        return layers

    def clients(self, *, progress: bool = False, **options: Any) -> ClientEigenvalues:
        """λ_max, loss and accuracy on each client's own data.

        Args:
            progress: show progress on stderr.
            options: data and device, and ``top``, ``local``, ``tolerance`` and ``seed`` of
                :func:`analysis.hessian.clients.client_eigenvalues`; with ``local=True`` each client's local model.

        Raises:
            FedscapeError: as :func:`analysis.hessian.clients.client_eigenvalues`.
            TypeError: an option that there is not.
        """
        clients: ClientEigenvalues = self._eigenvalues("clients", _OfClients(), options, progress)
        return clients

    @property
    def results(self) -> DataTree:
        """All that is kept of this model as labelled arrays (:func:`figures.labelled`), an ``xarray.DataTree``.

        ``curves`` are the run's metrics by round; ``spectra``, ``surfaces``, ``layers``, ``clients``, ``evaluations``,
        ``corruptions``, ``client-eigenvalues`` and ``client-accuracies`` hold the measurements that are kept in
        :attr:`folder`, or of a run in the store of a paper's figures there, by what decides them, as in
        ``spectra/8723624fa3c4565c``.  The root says where the model is from; each measurement has the model's digest,
        its options, and of those that a method here makes the ``call`` that gives it again.

        Raises:
            FedscapeError: xarray is not installed; a file is damaged.
        """
        from figures.labels import arrays, results

        found = {"curves": results.curves(self.metrics, self.checkpoint.title)} if self.metrics else {}
        digest = self.checkpoint.digest()
        for kind, name in results.NAMES.items():
            for store in self._stores():
                for key, options, result in store.kept(kind, self._contents(digest)):
                    tree = results.kept(kind, result)
                    said: dict[str, Any] = {"checkpoint": digest, "options": json.dumps(options, sort_keys=True)}
                    said |= {"seed": options.get("seed"), "call": self._call(kind, options)}
                    tree.attrs |= arrays.plain(said)
                    found[f"{name}/{key}"] = tree
        run = {} if self.run is None else {"algorithm": self.run.config["algorithm"], "settings": self.settings}
        told = {"title": self.checkpoint.title, "file": str(self.file), "checkpoint": digest}
        return arrays.grown(found, told | {name: json.dumps(value, sort_keys=True) for name, value in run.items()})

    def _stores(self) -> list[Store]:
        """Where measurements of this model may be kept: its folder, and the store of figures that its run lies in."""
        stores = [Store(self.folder.parent)]
        if self.run is not None and self.run.path.parent.name == "runs" and self.store is None:
            stores.append(Store(self.run.path.parent.parent))
        return stores

    def _contents(self, digest: str) -> list[list[Any]]:
        """What means this model in a measurement: its digest, or the run with its name in a store of figures."""
        meant: list[list[Any]] = [["file", digest]]
        if self.run is not None:
            file, client = file_and_client(self.file)
            key, last = self.run.path.name.rpartition("-")[2], {"ckpt.pt": "last", "swa.pt": "swa"}
            meant.append([key, last.get(file.name, self.checkpoint.round), client])
            meant += [[key, "rounds", None]] if client is None else []
        return meant

    def _call(self, kind: str, options: Mapping[str, Any]) -> str | None:
        """The call that gives a measurement again; ``None`` of a kind that no method makes."""
        method = {"hessian": "spectrum", "surface": "surface", "layers": "layers", "clients": "clients"}.get(kind)
        opened = {**self.source.naming, "store": None if self.store is None else str(self.store)}
        given = [f"{name}={str(value)!r}" for name, value in opened.items() if value is not None]
        words = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return None if method is None else f"open_run({', '.join([repr(str(self.file)), *given])}).{method}({words})"

    def compare(self, *others: OpenedRun | str | Path, progress: bool = False, **options: Any) -> Comparison:
        """Measure this model and others in the same way; the result shows the sheet, and writes no file.

        Args:
            others: opened runs, or what :func:`open_run` takes, opened as this one was.
            progress: show progress on stderr.
            options: those of :func:`figures.compare` (``top``, ``points``, ``span``, ``seed``, ...), and of the data
                (``samples``, ``split``, ``dtype``, ...).

        Raises:
            FedscapeError: no other model or more than six; models of different data; one that cannot be loaded.
            TypeError: an option that there is not.
        """
        asked = {name: value for name, value in options.items() if name in _names_of(Source)}
        recipe = Recipe(**{name: value for name, value in options.items() if name not in asked})
        runs = [self, *(each if isinstance(each, OpenedRun) else self._alike(each) for each in others)]
        models = []
        for each in runs:
            (source,) = grouped("compare", asked, (each.source,))
            models.append((each.file, each.checkpoint, each._measurements(source, recipe.seed, progress)))
        return compare_measured(models, recipe)

    def _eigenvalues(self, kind: str, usual: _Eigenvalues, options: Mapping[str, Any], progress: bool) -> Any:
        source, effort = grouped(kind, options, (self.source, usual))
        measure = self._measurements(source, effort.seed, progress)
        return measure.made(kind, self.file, self.checkpoint, _recipe(options, {}))

    def _alike(self, path: str | Path) -> OpenedRun:
        """Another model, opened as this one was."""
        return open_run(path, **self.source.naming, device=self.source.device, store=self.store)

    def _given(self) -> dict[str, Any]:
        """What was said of the data and the device."""
        return {name: value for name, value in vars(self.source).items() if value is not None}

    def _measurements(self, source: Source, seed: int, progress: bool) -> Measurements:
        return Measurements(Store(self.folder.parent), source, seed, progress)

    def _heading(self) -> str:
        return self.checkpoint.title

    def _facts(self) -> dict[str, str]:
        facts = {} if self.run is None else {"run": self.run.status_text}
        facts |= self.checkpoint.scores()
        facts |= {name.replace("_", " "): str(value) for name, value in self.algorithm.items() if name != "name"}
        facts |= {name.replace("_", " "): str(self.settings[name]) for name in _MARKED if name in self.settings}
        return {**facts, "file": str(self.file), "measurements are kept in": str(self.folder)}

    def _picture(self) -> Figure | None:
        return self.curves() if self.metrics else None


def _checkpoint_file(path: str | Path) -> str | Path:
    """The checkpoint that is meant: of a run directory its ``ckpt.pt``; ``@ID`` stays.

    Raises:
        FedscapeError: nothing is there, or a directory without a checkpoint.
    """
    file, client = file_and_client(path)
    if file.is_dir():
        if not (file / "ckpt.pt").is_file():
            raise FedscapeError(f"{file} holds no ckpt.pt: give a run directory, as train writes it, or a checkpoint")
        file = file / "ckpt.pt"
    if not file.exists():
        raise FedscapeError(f"there is no run and no checkpoint {file}")
    return file if client is None else f"{file}@{client}"


def _names_of(group: type[Source]) -> set[str]:
    return {field.name for field in fields(group)}


def _recipe(options: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a measurement beside data and seed: what was asked for, and else what is usual.

    Raises:
        FedscapeError: something that cannot be told in a file.
    """
    asked = {name: value for name, value in options.items() if name not in (*_names_of(Source), "seed")}
    for name, value in asked.items():
        try:
            json.dumps(json_ready(value))
        except TypeError:
            raise FedscapeError(
                f"{name} is a {type(value).__name__}, by which no measurement can be kept: give a number, a text or a "
                "list of them, or measure run.landscape() with the functions of analysis"
            ) from None
    return {**usual, **asked}
