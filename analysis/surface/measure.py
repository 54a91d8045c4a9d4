"""Measure a surface in one call: choose the plane, measure the points that are needed, keep them in a file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analysis.arguments import grouped
from analysis.source import SurfaceSource
from analysis.surface.adaptive import CHECKS, fill
from analysis.surface.marked_points import Mark
from analysis.surface.models import Model, Subject
from analysis.surface.options import Effort, Grid, Quantities, Request
from analysis.surface.plane_choice import plane_of
from analysis.surface.planes import MARGIN, Lines, Plane
from analysis.surface.points import Points
from analysis.surface.provenance import Provenance, client_ranges
from analysis.surface.rounding import rounding
from analysis.surface.store import SurfaceStore
from analysis.surface.values import Surface
from analysis.surface.workers import Workers, workers_for
from landscape import Checkpoint, Landscape
from landscape.compute.devices import cpu_threads
from landscape.compute.distributed import apart, rank_and_world, sum_over_ranks
from landscape.evaluation import check_bf16
from landscape.several import several
from landscape.storage.digests import tensor_digest
from landscape.storage.lock import sole_writer
from landscape.storage.schema import printable
from landscape.terminal.progress import Progress

_POSITIONAL = ("split", "samples", "clients", "device", "dtype")
"""The options that may be given without their names, after the store."""


def measure_surface(
    subject: Landscape | Checkpoint | str | Path,
    points: int | Sequence[int] | None = None,
    span: float | None = None,
    seed: int | None = None,
    store: str | Path | None = None,
    *split_to_dtype: Any,
    others: Sequence[Checkpoint | str | Path] | Checkpoint | str | Path = (),
    source: SurfaceSource | None = None,
    grid: Grid | None = None,
    quantities: Quantities | None = None,
    effort: Effort | None = None,
    resume: bool = True,
    progress: bool = False,
    **options: Any,
) -> Surface:
    """Measure loss and accuracy on a grid in a plane, or along lines, in parameter space.

        L(w + x·d₁ + y·d₂)   for x and y on a uniform grid.

    Points are measured where they are needed to know the loss of all to ``tolerance``; the others are interpolated and
    checked at random (:mod:`analysis.surface.adaptive`), and ``computed``, ``error`` and ``estimated_error`` of the
    result say which and how well: by estimate, as nobody knows the loss where it was not measured.

    Args:
        subject: a checkpoint's file (or ``FILE@ID``: client ID's local model), a checkpoint, or any ``Landscape`` (then
            the data, the device, the type and the penalty are the landscape's own, ``split`` is only what it is
            called, and all other options of ``source`` stay out, as do ``others`` and ``test``).
        points: along each axis, or along x and along y, 51 unless given; an odd number has the checkpoint itself in the
            centre.
        span: around one model the farthest step, 1 unless given, in units of the directions (at 1 a filter has moved
            by its own length; eigenvectors have length 1); around several how far the grid reaches beyond them, as a
            share of their extent, 0.2 unless given.
        seed: of what is random in the directions, 0 unless given.
        store: an HDF5 file to keep the values in; one of the same surface is continued, a finished one
            read.  A measurement that was killed goes on with the micro-batch size it had, and ends with the values of
            one that never was, bit for bit on one machine with as many threads.
        split_to_dtype: ``split``, ``samples``, ``clients``, ``device`` and ``dtype``, in this order, where they are not
            given by name.
        others: the models beside the subject, one or several.
        source: the options ``split``, ``samples``, ``clients``, ``device``, ``dtype``, ``data_dir``, ``model``,
            ``data``, ``batch_size`` and ``stream`` in one value.
        grid: those from ``plane`` to ``directions``, and ``points``, ``span`` and ``seed``.
        quantities: those from ``test`` to ``lambda_max``.
        effort: those from ``bf16`` to ``workers``.
        resume: ``False`` measures anew and replaces the store.
        progress: show progress on stderr.
        options: any option of the four groups by its name, which goes before the group's:

            * ``split``, ``samples``, ``clients``, ``device``, ``dtype``, ``data_dir``, ``model``, ``data``,
              ``batch_size``, ``stream``: as in :meth:`landscape.Landscape.from_checkpoint`; but the micro-batch size
              follows from the samples' shape unless given (:meth:`landscape.evaluation.Evaluator.fit`), and with
              ``auto`` it is the fastest found: then two measurements of one surface differ by rounding, 1e-7 of a loss
              in float32.  ``notes`` says which it was.
            * ``plane``: ``random`` directions; ``hessian``, its leading eigenvectors; ``three``, through the subject
              and two others; ``pca``, the principal components of the subject's run (``rounds/*.pt``) or of the subject
              and the others in order; ``line``, from the subject to another model, or where there is none along random
              directions; or a plane of your own.
            * ``normalisation``, ``biases``, ``orthogonal`` (``True`` unless given; ``as_drawn`` is its opposite): of
              random directions (:func:`analysis.surface.directions.random_directions`).
            * ``directions``: a file of directions for a plane around one model, or for lines through it: used where it
              is there, made where it is not.  Those of the Hessian are kept beside the store (``.directions.pt``)
              unless given.
            * ``seeds``: how many random directions a line without other models has, each a row.
            * ``test``: measure the test data too, in the same pass.
            * ``weight_decay``: c; (c/2)‖w‖² is added to the loss.
            * ``penalty``: MAN's regulariser, added to the loss; or ``man``, its ζ.
            * ``batchnorm``: the running statistics at a point (:class:`analysis.surface.points.Points`);
              ``interpolated`` between the models of a line or of three unless given, ``frozen`` elsewhere.
            * ``lambda_max``: measure the Hessian's largest eigenvalue at the points too.
            * ``bf16``: products and convolutions in bfloat16: faster where the processor has them, with a relative
              error of the loss of about 3e-3; some points are measured in float32 too, and ``facts`` tells the largest
              deviation, as with the dtype ``tf32``.
            * ``tolerance``: largest relative error of the loss at interpolated points, by estimate.
            * ``checks``: how many points, drawn at random, the interpolated losses are compared with
              (:data:`analysis.surface.adaptive.CHECKS` unless given); with more of them than a finished store has had,
              its measurement goes on.
            * ``exact``: measure every point, as is always done on lines.
            * ``workers``: processes that measure, each with one thread; as many as PyTorch has threads unless given,
              one on a GPU, and on Windows and macOS, where they are spawned and have copies of the data.  Under
              ``torchrun`` the ranks take turns at the points.  Values do not depend on their number, but for the
              rounding of a single process with several threads.

    Raises:
        FedscapeError: a checkpoint or data that cannot be loaded, a grid that is none, models that span no such plane,
            a store that is damaged, holds another surface, is written by another process or cannot be written.
        TypeError: an option that there is not.

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
    given = {"points": points, "span": span, "seed": seed}
    named = _by_name(split_to_dtype, options) | {name: value for name, value in given.items() if value is not None}
    groups = source or SurfaceSource(), grid or Grid(), quantities or Quantities(), effort or Effort()
    asked = Request(*grouped("measure_surface", named, groups))
    asked.check()
    path = None if store is None else Path(store)
    what = Subject.open(subject, several(others), asked.source, asked.quantities)
    processes = workers_for(what.landscape.device, asked.effort.workers, gradients=asked.quantities.lambda_max)
    if asked.effort.bf16:
        check_bf16(what.landscape.precision)  # before the plane, which may take long
    through = what.models_of(asked.grid.plane)
    plane = plane_of(asked.grid, what.landscape, through, path, progress=progress)
    measured = _points(what, plane, asked)
    values = SurfaceStore(
        *plane.grid(asked.grid.size, asked.grid.span),
        _provenance(what, through, plane, measured, asked),
        measured.names,
        path=path,
        notes=_notes(what, plane, measured, processes),
    )
    tolerance = 0.0 if asked.effort.exact or isinstance(plane, Lines) else asked.effort.tolerance
    if resume:
        values.resume()
        if values.fulfils(tolerance, asked.effort.checks) and ("rounding" in values.notes or not measured.rounded):
            return Surface.of(values)
    with _writing(values, what.landscape.device, resume):
        _choose_batch_sizes(measured, values, what, asked, processes)
        values.reopen()
        _measure(measured, values, tolerance, asked.effort.checks or CHECKS, plane.marks, processes, progress)
    return Surface.of(values)


def _by_name(positional: Sequence[Any], options: dict[str, Any]) -> dict[str, Any]:
    """All options under the names that the groups have for them.

    Raises:
        TypeError: more values than there are options to give by position, or one given twice.
    """
    if len(positional) > len(_POSITIONAL):
        raise TypeError(f"measure_surface() takes at most {5 + len(_POSITIONAL)} arguments without their names")
    named = dict(zip(_POSITIONAL, positional, strict=False))
    if twice := sorted(named.keys() & options.keys()):
        raise TypeError(f"measure_surface() got several values for '{twice[0]}'")
    named |= options
    if "orthogonal" in named:
        named["as_drawn"] = not named.pop("orthogonal")
    if (penalty := named.pop("penalty", None)) is not None:
        named["man"] = penalty
    return named


def _points(what: Subject, plane: Plane, asked: Request) -> Points:
    """The quantities asked for, at the points of the plane."""
    wanted = asked.quantities
    spanned = plane.kind in ("three", "line") and len(what.models) == len(plane.marks)
    return Points(
        what.landscapes,
        plane,
        batchnorm=wanted.batchnorm or ("interpolated" if spanned else "frozen"),
        weight_decay=wanted.weight_decay,
        statistics=[model.statistics(asked.source.model) for model in what.models] if spanned else None,
        lambda_max=wanted.lambda_max,
        bf16=asked.effort.bf16,
    )


def _provenance(what: Subject, through: list[Model], plane: Plane, points: Points, asked: Request) -> Provenance:
    """The fields by which the surface's file is recognised."""
    landscape, grid, wanted = what.landscape, asked.grid, asked.quantities
    around_one = plane.kind in ("random", "hessian", "profile")
    added = [str(landscape.penalty)] if landscape.penalty is not None else []
    added += [f"{wanted.weight_decay:g} ‖w‖²/2"] if wanted.weight_decay else []
    return Provenance(
        **what.names,
        plane=plane.digest(),
        normalisation=plane.normalisation,
        seed=grid.seed,
        span=float(grid.span if grid.span is not None else 1.0 if around_one else MARGIN),
        points=grid.size[0],
        split=asked.source.split,
        samples=landscape.samples,
        clients=client_ranges(asked.source.clients),
        samples_digest=landscape.micro_batches.data.digest(),
        loss=printable(getattr(landscape.loss, "__name__", type(landscape.loss).__name__)),
        dtype="bf16" if asked.effort.bf16 else landscape.precision,
        kind=plane.kind,
        others=" ".join(model.digest() for model in through if model is not what.models[0]),
        regulariser=" + ".join(added),
        batchnorm=points.batchnorm,
        test=wanted.test,
        lambda_max=wanted.lambda_max,
    )


def _notes(what: Subject, plane: Plane, points: Points, processes: int) -> dict[str, Any]:
    """Further facts for the file: the machine, the micro-batches, and the plane as pictures need it."""
    tested = {"test samples": len(what.landscapes["test"].data)} if len(what.landscapes) > 1 else {}
    return {
        "device": str(what.landscape.device),
        "workers": processes * rank_and_world()[1],
        "batch_size": points.batch_sizes,
        "batch_size_chosen": "given",
        "BatchNorm layers folded": points.folded,
        "cosine": plane.cosine,
        "plane": {
            "labels": list(plane.labels),
            "marks": [[printable(mark.label), mark.x, mark.y] for mark in plane.marks],
            "trajectory": None if plane.trajectory is None else plane.trajectory.tolist(),
            "explained": plane.explained,
            "eigenvalues": plane.values,
        },
        "directions": tensor_digest(plane.directions),
        **tested,
    }


@contextmanager
def _writing(values: SurfaceStore, device: torch.device, resume: bool) -> Iterator[None]:
    """Inside, ``values`` has what the file had, and only this process writes the file; of several ranks, the first.

    Raises:
        FedscapeError: another process is writing the file, or it cannot be resumed or replaced.
    """
    leads = rank_and_world()[0] == 0
    with sole_writer(values.path) if values.path is not None and leads else nullcontext():
        if resume:
            values.resume()  # another process may have gone on until now
        else:
            values.replace()
        sum_over_ranks(torch.zeros(1, device=device))  # all have read before one writes
        if not leads:
            values.path = None
        yield


def _choose_batch_sizes(points: Points, store: SurfaceStore, what: Subject, asked: Request, processes: int) -> None:
    """Take the sizes of an earlier session; else those given, those by the samples' shape, or the fastest found."""
    wanted = asked.source.batch_size
    if store.done.any():
        points.batch_sizes = store.notes["batch_size"]  # so that the values are those of one session
    elif what.models and not isinstance(wanted, int):
        with cpu_threads(1 if processes > 1 else None), apart():
            points.choose_batch_sizes(timed=wanted == "auto")
        store.notes["batch_size"] = points.batch_sizes
        store.notes["batch_size_chosen"] = "by time" if wanted == "auto" else "by shape"


def _measure(
    points: Points,
    store: SurfaceStore,
    tolerance: float,
    checks: int,
    marks: Sequence[Mark],
    processes: int,
    progress: bool,
) -> None:
    """Measure the missing points: for a tolerance of 0 all, row by row; else the models, then what is needed."""
    store.save()  # fails now, not after the work, where the file cannot be written
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
                filled = fill(store.values, measure, losses, tolerance, checks, store.done)
                store.finish(filled.values, filled.error, tolerance)
                store.notes["spread"] = filled.spread
                if filled.checked is not None:
                    store.notes["checks"] = asdict(filled.checked)
        finally:
            store.save()
    if points.rounded:
        with apart():
            store.notes["rounding"] = rounding(points.full(), store, marks)
        store.save()
