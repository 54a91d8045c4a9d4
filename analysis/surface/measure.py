"""Measuring a surface: the plane, the points that are needed, the file that keeps them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from analysis.surface.adaptive import fill
from analysis.surface.directions import FILTER
from analysis.surface.marked_points import Mark
from analysis.surface.models import Model, rounds_of
from analysis.surface.plane_choice import PlaneKind, plane_of
from analysis.surface.planes import MARGIN, Lines, Plane
from analysis.surface.points import BatchNorm, Points
from analysis.surface.rounding import rounding
from analysis.surface.store import MAX_POINTS, Provenance, SurfaceStore, client_ranges
from analysis.surface.values import Surface
from analysis.surface.workers import Workers, workers_for
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.activations import MAN
from landscape.compute.devices import cpu_threads
from landscape.compute.distributed import apart, rank_and_world, sum_over_ranks
from landscape.evaluation import check_bf16
from landscape.storage.digests import tensor_digest
from landscape.storage.lock import sole_writer
from landscape.terminal.progress import Progress


def measure_surface(
    subject: Landscape | Checkpoint | str | Path,
    points: int | Sequence[int] = 51,
    span: float | None = None,
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
    batch_size: int | Literal["auto"] | None = None,
    stream: bool | None = None,
    plane: PlaneKind | Plane = "random",
    others: Sequence[Checkpoint | str | Path] = (),
    normalisation: str = FILTER,
    biases: bool = False,
    orthogonal: bool = True,
    directions: str | Path | None = None,
    seeds: int = 1,
    test: bool = False,
    weight_decay: float = 0.0,
    penalty: MAN | None = None,
    batchnorm: BatchNorm | None = None,
    lambda_max: bool = False,
    bf16: bool = False,
    tolerance: float = 0.005,
    exact: bool = False,
    workers: int | None = None,
    resume: bool = True,
    progress: bool = False,
) -> Surface:
    """Measure loss and accuracy on a grid in a plane, or along lines, in parameter space.

        L(w + x·d₁ + y·d₂)   for x and y on a uniform grid.

    Points are measured where they are needed to know the loss of all to ``tolerance``; the others are interpolated
    (:mod:`analysis.surface.adaptive`), and ``computed``, ``error`` and ``promised_error`` of the result say which and
    how well.

    Args:
        subject: a checkpoint's file (or ``FILE@ID``: client ID's local model), a checkpoint, or any ``Landscape`` (then
            the data, the device, the type and the penalty are the landscape's own, ``split`` is only what it is
            called, and the arguments from ``samples`` to ``stream`` stay out, as do ``others`` and ``test``).
        points: along each axis, or along x and along y; an odd number has the checkpoint itself in the centre.
        span: around one model the farthest step, 1 unless given, in units of the directions (at 1 a filter has moved
            by its own length; eigenvectors have length 1); around several how far the grid reaches beyond them, as a
            share of their extent, 0.2 unless given.
        seed: of what is random in the directions.
        store: an HDF5 file to keep the values in; one of the same surface is continued, a finished one
            read.  A measurement that was killed goes on with the micro-batch size it had, and ends with the values of
            one that never was, bit for bit on one machine with as many threads.
        split, samples, clients, device, dtype, data_dir, model, data, batch_size, stream: as in
            :meth:`landscape.Landscape.from_checkpoint`; but the micro-batch size follows from the samples' shape unless
            given (:meth:`landscape.evaluation.Evaluator.fit`), and with ``auto`` it is the fastest found: then two
            measurements of one surface differ by rounding, 1e-7 of a loss in float32.  ``notes`` says which it was.
        plane: ``random`` directions; ``hessian``, its leading eigenvectors; ``three``, through the subject and two
            others; ``pca``, the principal components of the subject's run (``rounds/*.pt``) or of the subject and the
            others in order; ``line``, from the subject to another model, or where there is none along random
            directions; or a plane of your own.
        others: the models beside the subject.
        normalisation, biases, orthogonal: of random directions (:func:`analysis.surface.directions.random_directions`).
        directions: a file of directions for a plane around one model, or for lines through it: used where it is there,
            made where it is not.  Those of the Hessian are kept beside the store (``.directions.pt``) unless given.
        seeds: how many random directions a line without other models has, each a row.
        test: measure the test data too, in the same pass.
        weight_decay: c; (c/2)‖w‖² is added to the loss.
        penalty: MAN's regulariser, added to the loss.
        batchnorm: the running statistics at a point (:class:`analysis.surface.points.Points`); ``interpolated`` between
            the models of a line or of three unless given, ``frozen`` elsewhere.
        lambda_max: measure the Hessian's largest eigenvalue at the points too.
        bf16: products and convolutions in bfloat16: faster where the processor has them, with a relative error of the
            loss of about 3e-3; some points are measured in float32 too, and ``facts`` tells the largest deviation, as
            with the dtype ``tf32``.
        tolerance: largest relative error of the loss at interpolated points.
        exact: measure every point, as is always done on lines.
        workers: processes that measure, each with one thread; as many as PyTorch has threads unless given, one on a
            GPU, and on Windows and macOS, where they are spawned and have copies of the data.  Under ``torchrun`` the
            ranks take turns at the points.  Values do not depend on their number, but for the rounding of a single
            process with several threads.
        resume: ``False`` measures anew and replaces the store.
        progress: show progress on stderr.

    Raises:
        FedscapeError: a checkpoint or data that cannot be loaded, a grid that is none, models that span no such plane,
            a store that is damaged, holds another surface, is written by another process or cannot be written.

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
    grid = _grid(points)
    if span is not None and not 0 < span < float("inf"):
        raise FedscapeError(f"the span is {span}: give a number above 0, such as 1.0")
    if not 0 < tolerance < float("inf"):
        raise FedscapeError(
            f"the tolerance is {tolerance}: give a number above 0, such as 0.005, or ask for exact values"
        )
    if isinstance(batch_size, str) and batch_size != "auto":
        raise FedscapeError(f"the micro-batch size is '{batch_size}': give a number, or auto for the fastest found")
    if split not in ("train", "test"):
        raise FedscapeError(f"unknown split '{split}': give train or test")
    if test and split == "test":
        raise FedscapeError("the test data are measured already: leave out test, or take split 'train'")
    models: list[Model] = []
    landscapes: dict[str, Landscape] = {}
    if isinstance(subject, Landscape):
        if device != "auto" or any(
            o is not None for o in (samples, clients, dtype, data_dir, model, data, batch_size, stream, penalty)
        ):
            raise FedscapeError("a Landscape brings its data, device and dtype along: leave those arguments out")
        if test or others:
            raise FedscapeError("a Landscape is of one model and one split: give checkpoints for others and test")
        landscapes[split], names = subject, _names_of_landscape(subject)
    else:
        models = [Model.open(one, model, data, data_dir) for one in (subject, *others)]
        options: dict[str, Any] = {
            "device": device, "dtype": dtype, "data_dir": data_dir, "model": model, "data": data,
            "batch_size": None if batch_size == "auto" else batch_size, "penalty": penalty, "stream": stream,
        }  # fmt: skip
        first = models[0].checkpoint
        landscapes[split] = Landscape.from_checkpoint(first, split, clients, samples, **options)
        if test:
            landscapes["test"] = Landscape.from_checkpoint(first, "test", None, samples, **options)
        if models[0].client is not None:
            landscapes[split].weights = models[0].weights(landscapes[split])
        names = _names_of_checkpoint(models[0])
    landscape = landscapes[split]
    processes = workers_for(landscape.device, workers, gradients=lambda_max)
    if bf16:
        check_bf16(landscape.precision)  # before the plane, which may take long
    through = rounds_of(models[0]) if plane == "pca" and len(models) == 1 else models
    if isinstance(plane, Plane):
        where = plane
        if others or directions is not None:
            raise FedscapeError("a plane of your own has its models and directions: leave out others and directions")
    else:
        how = {"normalisation": normalisation, "biases": biases}
        where = plane_of(plane, landscape, through, seed, seeds, orthogonal, how, directions, store, progress)
    spanned = where.kind in ("three", "line") and len(models) == len(where.marks)
    measured = Points(
        landscapes,
        where,
        batchnorm=batchnorm or ("interpolated" if spanned else "frozen"),
        weight_decay=weight_decay,
        statistics=[m.statistics(model) for m in models] if spanned else None,
        lambda_max=lambda_max,
        bf16=bf16,
    )
    x, y = where.grid(grid, span)
    added = [str(landscape.penalty)] if landscape.penalty is not None else []
    added += [f"{weight_decay:g} ‖w‖²/2"] if weight_decay else []
    provenance = Provenance(
        **names,
        plane=where.digest(),
        normalisation=where.normalisation,
        seed=seed,
        span=float(span if span is not None else 1.0 if where.kind in ("random", "hessian", "profile") else MARGIN),
        points=grid[0],
        split=split,
        samples=len(landscape.data),
        clients=client_ranges(clients),
        samples_digest=landscape.data.digest(),
        loss=_name(getattr(landscape.loss, "__name__", type(landscape.loss).__name__)),
        dtype="bf16" if bf16 else landscape.precision,
        kind=where.kind,
        others=" ".join(m.digest() for m in through if m is not models[0]),
        regulariser=" + ".join(added),
        batchnorm=measured.batchnorm,
        test=test,
        lambda_max=lambda_max,
    )
    notes = {
        "device": str(landscape.device),
        "workers": processes * rank_and_world()[1],
        "batch_size": measured.batch_sizes,
        "batch_size_chosen": "given",
        "BatchNorm layers folded": measured.folded,
        "cosine": where.cosine,
        "plane": _described(where),
        "directions": tensor_digest(where.directions),
        **({"test samples": len(landscapes["test"].data)} if test else {}),
    }
    path = None if store is None else Path(store)
    values = SurfaceStore(x, y, provenance, measured.names, path=path, notes=notes)
    wanted = 0.0 if exact or isinstance(where, Lines) else tolerance
    if resume:
        values.resume()
        if values.fulfils(wanted) and ("rounding" in values.notes or not measured.rounded):
            return Surface.of(values)
    leads = rank_and_world()[0] == 0
    with sole_writer(path) if path is not None and leads else nullcontext():
        if resume:
            values.resume()  # another process may have gone on until now
        else:
            values.replace()
        sum_over_ranks(torch.zeros(1, device=landscape.device))  # all have read before one writes
        if not leads:
            values.path = None
        if values.done.any():
            measured.batch_sizes = values.notes["batch_size"]  # so that the values are those of one session
        elif not isinstance(batch_size, int) and isinstance(subject, (Checkpoint, str, Path)):
            with cpu_threads(1 if processes > 1 else None), apart():
                measured.choose_batch_sizes(timed=batch_size == "auto")
            values.notes["batch_size"] = measured.batch_sizes
            values.notes["batch_size_chosen"] = "by time" if batch_size == "auto" else "by shape"
        values.reopen()
        _measure(measured, values, wanted, where.marks, processes, progress)
    return Surface.of(values)


def _measure(
    points: Points, store: SurfaceStore, tolerance: float, marks: Sequence[Mark], processes: int, progress: bool
) -> None:
    """Measure what is needed and not done: all points for a tolerance of 0, row by row, else the models' own first."""
    store.save()  # a place that cannot be written is told before the work, not after
    with apart():
        points.keep()
    done = int(store.done.sum())
    losses = [name for name in points.names if name.endswith("_loss")]
    before, start = store.seconds, time.perf_counter()
    with (
        points.session(),
        Workers(points, processes).started() as crew,
        Progress("surface", store.done.size, done=done, unit="points", enabled=progress) as bar,
    ):

        def measure(wanted: list[tuple[int, int]], error: float | None) -> None:
            nonlocal done
            left = [point for point in wanted if not store.done[point]]
            total = done + len(left)
            for k, found in crew.measure([(float(store.x[i]), float(store.y[j])) for j, i in left]):
                store.seconds = before + time.perf_counter() - start
                store.put(*left[k], found)
                done += 1
                bar.update(done, of=total, loss=found[losses[0]], error=error)

        try:
            if tolerance == 0:
                measure([(int(j), int(i)) for j, i in np.argwhere(~store.done)], None)
                store.finish({}, store.error, 0.0)
            else:
                for mark in marks:
                    own = np.argwhere((store.y[:, None] == mark.y) & (store.x == mark.x))
                    measure([(int(j), int(i)) for j, i in own], None)
                filled = fill(store.values, measure, losses, tolerance)
                store.finish(filled.values, filled.error, tolerance)
                store.notes["spread"] = filled.spread
        finally:
            store.save()
    if points.rounded:
        with apart():
            store.notes["rounding"] = rounding(points.full(), store, marks)
        store.save()


def _described(plane: Plane) -> dict[str, Any]:
    """What pictures need to know of a plane, as JSON keeps it."""
    return {
        "labels": list(plane.labels),
        "marks": [[_name(mark.label), mark.x, mark.y] for mark in plane.marks],
        "trajectory": None if plane.trajectory is None else plane.trajectory.tolist(),
        "explained": plane.explained,
        "eigenvalues": plane.values,
    }


def _grid(points: int | Sequence[int]) -> tuple[int, int]:
    numbers = [points] if isinstance(points, int) else list(points)
    if len(numbers) == 1:
        numbers *= 2
    if len(numbers) != 2:
        raise FedscapeError(f"{len(numbers)} numbers of points: give one, or one for each of the two axes")
    for number in numbers:
        if not 2 <= number <= MAX_POINTS:
            raise FedscapeError(f"{number} points along an axis: give 2 to {MAX_POINTS}")
    return numbers[0], numbers[1]


def _names_of_checkpoint(model: Model) -> dict[str, Any]:
    checkpoint = model.checkpoint
    algorithm = "a model" if checkpoint.foreign else _name(checkpoint.algorithm.get("name"))
    return {
        "model": _name(checkpoint.model.get("name")),
        "data": _name(checkpoint.data.get("name")),
        "algorithm": algorithm if model.client is None else f"{algorithm}, client {model.client}",
        "round": None if checkpoint.foreign else checkpoint.round,
        "checkpoint": model.digest(),
    }


def _names_of_landscape(landscape: Landscape) -> dict[str, Any]:
    sha = hashlib.sha256(repr(landscape.space.entries).encode())
    sha.update(tensor_digest(landscape.weights).encode())
    model = f"{landscape.dimension:,} parameters"
    return {"model": model, "data": "own data", "algorithm": "a model", "round": None, "checkpoint": sha.hexdigest()}


def _name(value: object) -> str:
    """A name out of a file, made fit to print and to store."""
    return "".join(c for c in str(value) if c.isprintable())[:200]
