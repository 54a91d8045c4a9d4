"""The loss on a plane through a checkpoint: ``python -m analysis.surface CKPT``."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
import tyro

from analysis.directions import FILTER
from analysis.marks import Mark
from analysis.planes import Plane, random_plane, uniform
from analysis.source import Source, option
from analysis.store import MAX_POINTS, Provenance, SurfaceStore, client_ranges
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.command import parse, run
from landscape.digests import tensor_digest
from landscape.files import make_directory, write_json
from landscape.foreign import open_checkpoint
from landscape.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROGRAM = "python -m analysis.surface"


@dataclass(frozen=True, eq=False)
class Surface:
    """The loss on a grid in a plane: ``loss[j, i]`` is the loss at the point (``x[i]``, ``y[j]``).

    Attributes:
        x, y: steps along the first and the second direction, [nx] and [ny].
        loss: mean loss, [ny, nx]; infinite or not-a-number where it is so.
        accuracy: fraction of correct predictions, [ny, nx]; ``None`` where the targets are no classes.
        measured: which points are measured, [ny, nx]; all of them unless the surface is a file of a
            measurement that was stopped.
        provenance: of what: checkpoint, plane, data, dtype.
        notes: device, micro-batch size, cosine between the directions.
        seconds: time spent measuring.
        kind: of the plane: ``random``, ``hessian``, ``three``, ``pca`` or ``line`` (one row, y = 0).
        axis_labels: of x and y; ``None``: steps along the directions.
        marks: the models that lie in the plane; empty: the checkpoint at (0, 0).
        trajectory: models on the way of a run, projected, [t, 2].
        computed: which values are measured and not interpolated, [ny, nx]; ``None``: as ``measured`` says.
        promised_error: of the interpolated values, relative; ``None`` where nothing is interpolated.
        loss_stderr, accuracy_stderr: standard errors over samples, [ny, nx].
    """

    x: np.ndarray
    y: np.ndarray
    loss: np.ndarray
    accuracy: np.ndarray | None
    measured: np.ndarray
    provenance: Provenance
    notes: dict[str, Any]
    seconds: float
    kind: str = "random"
    axis_labels: tuple[str, str] | None = None
    marks: tuple[Mark, ...] = ()
    trajectory: np.ndarray | None = None
    computed: np.ndarray | None = None
    promised_error: float | None = None
    loss_stderr: np.ndarray | None = None
    accuracy_stderr: np.ndarray | None = None

    @classmethod
    def load(cls, path: str | Path) -> Surface:
        """Read a store, finished or not.

        Raises:
            FedscapeError: no such file, not a surface, or damaged.
        """
        return cls._of(SurfaceStore.read(path))

    @classmethod
    def _of(cls, store: SurfaceStore) -> Surface:
        accuracy = None if store.accuracy is None else store.accuracy / 100
        return cls(
            x=store.x,
            y=store.y,
            loss=store.loss,
            accuracy=accuracy,
            measured=store.done,
            provenance=store.provenance,
            notes=store.notes,
            seconds=store.seconds,
        )

    def __repr__(self) -> str:
        p = self.provenance
        return f"Surface({len(self.x)} × {len(self.y)} points ±{p.span:g} around {p.algorithm}, {p.model} on {p.data})"

    @property
    def centre(self) -> tuple[int, int] | None:
        """(row, column) of the checkpoint's own point; ``None`` where the grid has an even number of points."""
        return (len(self.y) // 2, len(self.x) // 2) if len(self.x) % 2 and len(self.y) % 2 else None

    @property
    def not_finite(self) -> int:
        """How many measured losses are infinite or not-a-number."""
        return int((self.measured & ~np.isfinite(self.loss)).sum())

    def facts(self) -> dict[str, str]:
        """The numbers worth reading, as text by name."""
        facts = {}
        if self.centre is not None:
            facts["loss at the centre"] = f"{self.loss[self.centre]:.4g}"
            if self.accuracy is not None:
                facts["accuracy at the centre"] = f"{self.accuracy[self.centre]:.2%}"
        finite = np.where(np.isfinite(self.loss), self.loss, np.nan)
        if not np.isnan(finite).all():
            for name, flat in (("lowest", np.nanargmin(finite)), ("highest", np.nanargmax(finite))):
                j, i = np.unravel_index(flat, finite.shape)
                facts[f"{name} loss"] = f"{finite[j, i]:.4g} at ({self.x[i]:.3g}, {self.y[j]:.3g})"
        if self.not_finite:
            facts["not finite"] = f"{self.not_finite} points"
        count = int(self.measured.sum())
        rate = f" ({count / self.seconds:,.1f} points/s)" if self.seconds > 0 else ""
        facts["measured"] = f"{count:,} of {self.measured.size:,} points in {self.seconds:.1f} s{rate}"
        return facts

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists, numbers and text (:func:`landscape.files.write_json` writes it)."""
        return {
            **asdict(self.provenance),
            "notes": self.notes,
            "seconds": self.seconds,
            "x": self.x.tolist(),
            "y": self.y.tolist(),
            "loss": self.loss.tolist(),
            "accuracy": None if self.accuracy is None else self.accuracy.tolist(),
            "measured": self.measured.tolist(),
        }

    @property
    def split_word(self) -> str:
        """``training`` or ``test``."""
        return {"train": "training"}.get(self.provenance.split, self.provenance.split)

    @property
    def loss_label(self) -> str:
        """What the loss is, with its unit."""
        loss = self.provenance.loss
        return f"mean {self.split_word} loss ({'cross-entropy, nats' if loss == 'cross_entropy' else loss})"

    @property
    def recipe(self) -> str:
        """How the directions were made."""
        name = self.provenance.normalisation
        return {FILTER: "random directions, filter-normalised (Li et al. 2018)"}.get(name, name)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Filled contours of loss and accuracy; written to ``path`` (.png, .pdf, .svg ...) where one is given.

        Raises:
            FedscapeError: the file cannot be written, or is of no kind Matplotlib writes.
        """
        from analysis.pictures import check_picture, save_figure
        from analysis.surface_plots import plot_surface

        if path is not None:
            check_picture(path)
        figure = plot_surface(self)
        if path is not None:
            save_figure(figure, path)
        return figure

    def _repr_html_(self) -> str:
        picture = io.BytesIO()
        self.plot().savefig(picture, format="png", dpi=100)
        rows = {**{name: str(value) for name, value in asdict(self.provenance).items()}, **self.facts()}
        table = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows.items())
        image = base64.b64encode(picture.getvalue()).decode()
        return f'<img alt="loss surface" src="data:image/png;base64,{image}"><table>{table}</table>'


def measure_surface(
    subject: Landscape | Checkpoint | str | Path,
    points: int = 25,
    span: float = 1.0,
    seed: int = 0,
    store: str | Path | None = None,
    split: Literal["train", "test"] = "train",
    samples: int | None = None,
    clients: Sequence[int] | None = None,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype | None = None,
    *,
    data_dir: str | Path | None = None,
    model: str | None = None,
    data: str | None = None,
    batch_size: int | None = None,
    stream: bool | None = None,
    resume: bool = True,
    progress: bool = False,
) -> Surface:
    """Measure loss and accuracy on a grid in a random, filter-normalised plane (Li et al., NeurIPS 2018).

        L(w + x·d₁ + y·d₂)   for x and y uniform in [−span, span].

    Args:
        subject: a checkpoint's file, a checkpoint, or any ``Landscape`` (then the data, the device and the
            type are the landscape's own, ``split`` is only what it is called, and the arguments from
            ``samples`` to ``stream`` stay out).
        points: along each axis; an odd number has the checkpoint itself in the centre.
        span: the farthest step, in units of the directions: at 1 a filter has moved by its own length.
        seed: of the two directions.
        store: an HDF5 file to keep the values in; one of the same surface is continued, a finished one
            read.  A measurement that was killed ends with the values of one that never was, bit for bit
            on one CPU.
        split, samples, clients, device, dtype, data_dir, model, data, batch_size, stream: as in
            :meth:`landscape.Landscape.from_checkpoint`.
        resume: ``False`` measures anew and replaces the store.
        progress: show progress on stderr.

    Raises:
        FedscapeError: a checkpoint or data that cannot be loaded, a grid that is none, a store that is
            damaged, holds another surface or cannot be written.

    Example:
        >>> import torch
        >>> from landscape import Landscape
        >>> from analysis.surface import measure_surface
        >>> data = torch.eye(2), torch.zeros(2, 1)
        >>> bowl = Landscape(torch.nn.Linear(2, 1, bias=False), data, torch.nn.functional.mse_loss, device="cpu")
        >>> surface = measure_surface(bowl, points=5)
        >>> surface.loss.shape, bool(surface.loss[surface.centre] == bowl.value())
        ((5, 5), True)
    """
    if not 2 <= points <= MAX_POINTS:
        raise FedscapeError(f"{points} points along an axis: give 2 to {MAX_POINTS}")
    if not 0 < span < float("inf"):
        raise FedscapeError(f"the span is {span}: give a number above 0, such as 1.0")
    if split not in ("train", "test"):
        raise FedscapeError(f"unknown split '{split}': give train or test")
    if isinstance(subject, Landscape):
        if device != "auto" or any(
            o is not None for o in (samples, clients, dtype, data_dir, model, data, batch_size, stream)
        ):
            raise FedscapeError("a Landscape brings its data, device and dtype along: leave those arguments out")
        landscape, names = subject, _names_of_landscape(subject)
    else:
        checkpoint = open_checkpoint(subject, model, data, data_dir)
        landscape = Landscape.from_checkpoint(
            checkpoint, split, clients, samples, device, dtype,
            data_dir=data_dir, model=model, data=data, batch_size=batch_size, stream=stream,
        )  # fmt: skip
        names = _names_of_checkpoint(checkpoint)
    plane = random_plane(landscape, seed)
    provenance = Provenance(
        **names,
        plane=plane.digest(),
        normalisation=plane.normalisation,
        seed=seed,
        span=float(span),
        points=points,
        split=split,
        samples=len(landscape.data),
        clients=client_ranges(clients),
        samples_digest=landscape.data.digest(),
        loss=_name(getattr(landscape.loss, "__name__", type(landscape.loss).__name__)),
        dtype=landscape.precision,
    )
    values = SurfaceStore(
        uniform(points, span),
        uniform(points, span),
        provenance,
        path=None if store is None else Path(store),
        accuracy=not landscape.data.targets.is_floating_point(),
        notes={"device": str(landscape.device), "batch_size": landscape.batch_size, "cosine": plane.cosine},
    )
    if resume:
        values.resume()
    else:
        values.replace()
    if not values.finished:
        _measure(landscape, plane, values, progress)
    return Surface._of(values)


def _measure(landscape: Landscape, plane: Plane, store: SurfaceStore, progress: bool) -> None:
    """Measure the points that are not done, row by row."""
    store.save()  # a place that cannot be written is told before the work, not after
    done = int(store.done.sum())
    w = torch.empty_like(plane.origin)
    before, start = store.seconds, time.perf_counter()
    with Progress("surface", store.done.size, done=done, unit="points", enabled=progress) as bar:
        try:
            for j, i in np.argwhere(~store.done):
                result = landscape.evaluate(plane.point(store.x[i], store.y[j], out=w))
                store.seconds = before + time.perf_counter() - start
                store.put(j, i, result.loss, result.accuracy)
                done += 1
                bar.update(done, loss=result.loss)
        finally:
            store.save()


def _names_of_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "model": _name(checkpoint.model.get("name")),
        "data": _name(checkpoint.data.get("name")),
        "algorithm": "a model" if checkpoint.foreign else _name(checkpoint.algorithm.get("name")),
        "round": None if checkpoint.foreign else checkpoint.round,
        "checkpoint": checkpoint.digest(),
    }


def _names_of_landscape(landscape: Landscape) -> dict[str, Any]:
    sha = hashlib.sha256(repr(landscape.space.entries).encode())
    sha.update(tensor_digest(landscape.weights).encode())
    model = f"{landscape.dimension:,} parameters"
    return {"model": model, "data": "own data", "algorithm": "a model", "round": None, "checkpoint": sha.hexdigest()}


def _name(value: object) -> str:
    """A name out of a file, made fit to print and to store."""
    return "".join(c for c in str(value) if c.isprintable())[:200]


# The command


@dataclass(frozen=True)
class Command:
    """Measure the loss and the accuracy around a checkpoint, on a grid in a plane along two random,
    filter-normalised directions (Li et al., NeurIPS 2018), and draw them.

    Killed or interrupted, the same command continues where it was.
    """

    checkpoint: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="CKPT")]
    """checkpoint file, such as a run's ckpt.pt"""
    points: int = 25
    """points along each axis; an odd number has the checkpoint in the centre"""
    span: float = 1.0
    """farthest step along a direction; at 1 each filter has moved by its own length"""
    seed: int = 0
    """of the two directions"""
    out: Annotated[Path | None, option("FILE", "surface.h5 beside the checkpoint")] = None
    """HDF5 file of the values"""
    plot: Annotated[Path | None, option("FILE", "none")] = None
    """picture to draw: .png, .pdf, .svg"""
    json: Annotated[Path | None, option("FILE", "none")] = None
    """the values once more, as JSON"""
    fresh: bool = False
    """measure anew and replace the surface in --out, whatever it is of"""
    quiet: bool = False
    """no progress bar"""
    source: Source = field(default_factory=Source)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure, draw, say what came out."""
    shape = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    command = parse(lambda: tyro.cli(Command, prog=PROGRAM, args=arguments, config=shape), PROGRAM)
    out = command.out or command.checkpoint.parent / "surface.h5"
    if command.plot is not None:
        from analysis.pictures import check_picture

        check_picture(command.plot)
    _check_places([file for file in (out, command.plot, command.json) if file is not None], command.checkpoint)
    try:
        surface = measure_surface(
            command.checkpoint,
            command.points,
            command.span,
            command.seed,
            out,
            **vars(command.source),
            resume=not command.fresh,
            progress=not command.quiet,
        )
    except KeyboardInterrupt:
        print(f"the points measured so far are in {out}: the same command continues", file=sys.stderr)
        raise
    for name, fact in surface.facts().items():
        print(f"{name}: {fact}")
    print(f"values: {out}")
    if command.json is not None:
        write_json(command.json, surface.to_dict())
        print(f"json: {command.json}")
    if command.plot is not None:
        surface.plot(command.plot)
        print(f"picture: {command.plot}")
    else:
        print(f"to draw them: the same command with --plot {out.with_suffix('.png')}")
    return 0


def _check_places(files: Sequence[Path], checkpoint: Path) -> None:
    """Refuse files that cannot be written before the work is done, not after."""
    if len({os.path.realpath(file) for file in (checkpoint, *files)}) <= len(files):
        raise FedscapeError("CKPT, --out, --plot and --json must be different files")
    for file in files:
        if os.path.isdir(file):
            raise FedscapeError(f"{file} is a directory: give the name of a file")
        make_directory(file.parent)


def command_line() -> int:
    """The console script."""
    return run(main)


if __name__ == "__main__":
    sys.exit(command_line())
