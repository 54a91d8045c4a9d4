"""The result of measuring a surface: its values, their errors and their provenance."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.surface.adaptive import SPREAD
from analysis.surface.barrier import Barrier, barrier
from analysis.surface.directions import FILTER
from analysis.surface.marked_points import Mark
from analysis.surface.points import LAMBDA_TOLERANCE
from analysis.surface.provenance import Provenance
from analysis.surface.store import SurfaceStore
from landscape.storage.display import Shown, facts_table, short_line, told
from landscape.storage.schema import printable
from landscape.storage.style import PictureStyle, StyleName

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_RECIPES = {
    FILTER: "random directions, filter-normalised (Li et al. 2018)",
    "none": "random Gaussian directions",
    "none, biases too": "random Gaussian directions of all parameters (Qu et al. 2022)",
    "eigenvectors": "the Hessian's two leading eigenvectors",
    "Gram–Schmidt": "the plane through three models (Garipov et al. 2018)",
    "principal components": "the principal components of a run's models (Li et al. 2018)",
    "difference": "the straight line between two models",
}
"""What the values of ``Provenance.normalisation`` mean."""


@dataclass(frozen=True, eq=False, repr=False)
class Surface(Shown):
    """The loss on a grid in a plane: ``loss[j, i]`` is the loss at the point (``x[i]``, ``y[j]``).

    Attributes:
        x, y: steps along the first and the second direction, [nx] and [ny].
        loss: mean loss, [ny, nx]; may be infinite or not-a-number.
        accuracy: fraction of correct predictions, [ny, nx]; ``None`` where the targets are no classes.
        measured: which points have a value, [ny, nx]; all of them unless the surface is a file of a measurement that
            was stopped.
        provenance: checkpoint, plane, data, dtype.
        notes: device, micro-batch size, cosine between the directions.
        seconds: time spent measuring.
        kind: of the plane: ``random``, ``hessian``, ``three``, ``pca``, ``line`` (one row, y = 0) or ``profile`` (a
            row for each direction that the seed draws).
        axis_labels: of x and y; ``None``: steps along the directions.
        marks: the models in the plane; empty: the checkpoint at (0, 0).
        trajectory: coordinates of the models along a run, projected on the plane, [t, 2].
        computed: which values are measured and not interpolated, [ny, nx]; ``None``: as ``measured`` says.
        estimated_error: of interpolated losses, relative; no bound; ``None`` where nothing is interpolated.
        loss_stderr, accuracy_stderr: standard errors over samples, [ny, nx].
        error: estimates of the loss's relative error, [ny, nx]; 0 where it is measured.
        lambda_max: the Hessian's largest eigenvalue, [ny, nx]; ``None`` where it was not measured.
        test: the surface of the test data; ``None`` where they were not measured.
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
    estimated_error: float | None = None
    loss_stderr: np.ndarray | None = None
    accuracy_stderr: np.ndarray | None = None
    error: np.ndarray | None = None
    lambda_max: np.ndarray | None = None
    test: Surface | None = None

    @classmethod
    def load(cls, path: str | Path) -> Surface:
        """Read a surface's file, of a finished measurement or not.

        Raises:
            FedscapeError: there is no such file, it is no surface, or it is damaged.
        """
        return cls.of(SurfaceStore.read(path))

    @classmethod
    def of(cls, store: SurfaceStore, test: bool = False) -> Surface:
        """The surface in a store; with ``test`` that of the test data, which it holds beside the training data."""
        p = store.provenance
        if test:
            p = replace(p, split="test", clients="all", samples=int(store.notes["test samples"]), test=False)
        accuracy, accuracy_stderr = (
            array / 100 if (array := store.values.get(f"{p.split}_acc{kind}")) is not None else None
            for kind in ("", "_stderr")
        )
        finished, plane = store.tolerance is not None, store.notes.get("plane", {})
        return cls(
            x=store.x,
            y=store.y,
            loss=store.values[f"{p.split}_loss"],
            accuracy=accuracy,
            measured=np.ones_like(store.done) if finished else store.done,
            provenance=p,
            notes=store.notes,
            seconds=store.seconds,
            kind=p.kind,
            axis_labels=(printable(plane["labels"][0]), printable(plane["labels"][1])) if "labels" in plane else None,
            marks=tuple(Mark(printable(label), x, y) for label, x, y in plane.get("marks", ())),
            trajectory=np.array(plane["trajectory"]) if plane.get("trajectory") else None,
            computed=store.done,
            estimated_error=None if store.done.all() or not finished else store.estimated,
            loss_stderr=store.values.get(f"{p.split}_loss_stderr"),
            accuracy_stderr=accuracy_stderr,
            error=store.error,
            lambda_max=store.values.get(f"{p.split}_lambda_max"),
            test=cls.of(store, test=True) if p.test else None,
        )

    def row(self, k: int) -> Surface:
        """Line ``k`` of a profile, as a surface of one row."""

        def cut(array: np.ndarray | None) -> np.ndarray | None:
            return None if array is None else array[k : k + 1]

        return replace(
            self,
            y=self.y[k : k + 1],
            loss=self.loss[k : k + 1],
            accuracy=cut(self.accuracy),
            measured=self.measured[k : k + 1],
            computed=cut(self.computed),
            loss_stderr=cut(self.loss_stderr),
            accuracy_stderr=cut(self.accuracy_stderr),
            error=cut(self.error),
            lambda_max=cut(self.lambda_max),
            test=None if self.test is None else self.test.row(k),
        )

    def _heading(self) -> str:
        p, of = self.provenance, f"{self.provenance.algorithm}, {self.provenance.model} on {self.provenance.data}"
        if self.is_line:
            return f"{len(self.x)} points along {'a line' if len(self.y) == 1 else f'{len(self.y)} lines'} through {of}"
        where = f"±{p.span:g} around" if self.kind in ("random", "hessian") else f"{self.kind} plane of"
        return f"{len(self.x)} × {len(self.y)} points {where} {of}"

    def __repr__(self) -> str:
        return short_line(type(self).__name__, self._heading(), {})

    def _facts(self) -> dict[str, str]:
        return self.facts()

    def _picture(self) -> Figure:
        return self.plot()

    def _table(self) -> str:
        origin = {name.replace("_", " "): value for name, value in asdict(self.provenance).items()}
        known = {name: told(value) for name, value in origin.items() if value not in (None, "")}
        return f"{super()._table()}\n<details><summary>what was measured</summary>\n{facts_table(known)}\n</details>"

    @property
    def centre(self) -> tuple[int, int] | None:
        """(row, column) of the first model; ``None`` where it is no point of the grid."""
        rows, columns = np.flatnonzero(self.y == 0), np.flatnonzero(self.x == 0)
        return (int(rows[0]), int(columns[0])) if len(rows) and len(columns) else None

    @property
    def is_line(self) -> bool:
        """Whether the rows are separate lines (such as the seeds of a profile), so that there is no second axis."""
        return self.kind in ("line", "profile") or len(self.y) == 1

    @property
    def barrier(self) -> Barrier | None:
        """The loss barrier between the first and the last model of a line; ``None`` where there are not two."""
        if not self.is_line or len(self.y) > 1 or len(self.marks) < 2:
            return None
        ends = sorted(mark.x for mark in self.marks)
        return barrier(self.x, self.loss[0], ends[0], ends[-1])

    @property
    def not_finite(self) -> int:
        """The number of losses that are infinite or not-a-number."""
        return int((self.measured & ~np.isfinite(self.loss)).sum())

    def facts(self) -> dict[str, str]:
        """The main numbers as text, by name; of the test data too, where they were measured."""
        facts = self._values()
        if self.test is not None:
            facts |= {f"test {name}": fact for name, fact in self.test._values().items()}
        count = int((self.measured if self.computed is None else self.computed).sum())
        rate = f" ({count / self.seconds:,.1f} points/s)" if self.seconds > 0 else ""
        if (checked := self.notes.get("rounding")) is not None:
            facts["rounding"] = self._rounding_fact(checked)
        facts["measured"] = f"{count:,} of {self.measured.size:,} points in {self.seconds:.1f} s{rate}"
        if self.estimated_error is not None:
            facts["interpolated"] = f"{self.measured.size - count:,} points, estimated errors: {self.estimates()}"
            if (check := self.check()) is not None:
                facts["interpolation"] = check
        return facts

    def estimates(self, accuracy: bool = True) -> str:
        """How far interpolated values are estimated to be off, as text; ``accuracy``: of the accuracy too."""
        words = [] if self.estimated_error is None else [f"loss {100 * self.estimated_error:.3g} %"]
        if accuracy and (spread := self.accuracy_spread) is not None:
            words.append(f"accuracy {spread:.2g} points")
        if (spread := self.lambda_max_spread) is not None:
            words.append(f"λ_max {spread:.2g}")
        return ", ".join(words)

    def check(self) -> str | None:
        """What the check of the interpolated losses at random points found, as text; ``None``: there was none."""
        if self.estimated_error is None or (found := self.notes.get("checks")) is None:
            return None  # nothing is interpolated, or the file is older
        return (
            f"checked at {found['points']} random points: largest error of the loss {100 * found['largest']:.2g} %, "
            f"95 % of them within {100 * found['within']:.2g} %"
        )

    def _values(self) -> dict[str, str]:
        """The facts of one split: the centre, the extremes, the barrier, the number of values that are not finite."""
        facts = {}
        if self.centre is not None:
            facts["loss at the centre"] = f"{self.loss[self.centre]:.4g}"
            if self.accuracy is not None:
                facts["accuracy at the centre"] = f"{self.accuracy[self.centre]:.2%}"
            if self.lambda_max is not None:
                facts["λ_max at the centre"] = f"{self.lambda_max[self.centre]:.4g} (± {LAMBDA_TOLERANCE:.0%} at most)"
        finite = np.where(np.isfinite(self.loss), self.loss, np.nan)
        if not np.isnan(finite).all():
            for name, flat in (("lowest", np.nanargmin(finite)), ("highest", np.nanargmax(finite))):
                j, i = np.unravel_index(flat, finite.shape)
                facts[f"{name} loss"] = f"{finite[j, i]:.4g} at ({self.x[i]:.3g}, {self.y[j]:.3g})"
        if self.kind == "line" and (rise := self.barrier) is not None:
            facts["barrier"] = f"{rise.height:.4g} at {rise.x:.3g} of the way"
        if self.not_finite:
            facts["not finite"] = f"{self.not_finite} points"
        return facts

    def _rounding_fact(self, checked: dict[str, Any]) -> str:
        p = self.provenance
        words = f"{p.dtype}: the loss is off by up to {checked[f'{p.split}_loss']:.2%}"
        if (accuracy := checked.get(f"{p.split}_acc")) is not None:
            words += f", the accuracy by up to {accuracy:.2g} points,"
        return words + f" at {checked['points']} points that were measured in float32 too"

    def to_dict(self) -> dict[str, Any]:
        """All values as lists, numbers and text, which :func:`landscape.storage.files.write_json` can write."""
        return {
            **asdict(self.provenance),
            "notes": self.notes,
            "seconds": self.seconds,
            "x": self.x.tolist(),
            "y": self.y.tolist(),
            "loss": self.loss.tolist(),
            "accuracy": None if self.accuracy is None else self.accuracy.tolist(),
            "measured": self.measured.tolist(),
            "computed": None if self.computed is None else self.computed.tolist(),
            "error": None if self.error is None else self.error.tolist(),
            "estimated_error": self.estimated_error,
            "promised_error": self.promised_error,
            "loss_stderr": None if self.loss_stderr is None else self.loss_stderr.tolist(),
            "accuracy_stderr": None if self.accuracy_stderr is None else self.accuracy_stderr.tolist(),
            "lambda_max": None if self.lambda_max is None else self.lambda_max.tolist(),
            "lambda_max_relative_error_bound": None if self.lambda_max is None else LAMBDA_TOLERANCE,
            "test": None if self.test is None else self.test.to_dict(),
        }

    @property
    def split_word(self) -> str:
        """``training`` or ``test``."""
        return {"train": "training"}.get(self.provenance.split, self.provenance.split)

    @property
    def promised_error(self) -> float | None:
        """The older name of ``estimated_error``, which promises nothing."""
        return self.estimated_error

    @property
    def accuracy_spread(self) -> float | None:
        """The estimated error of interpolated accuracies, of all splits, in percentage points."""
        splits = [self, self.test] if self.test is not None else [self]
        found = [self._spread(f"{s.provenance.split}_acc") for s in splits]
        return max((spread for spread in found if spread is not None), default=None)

    @property
    def lambda_max_spread(self) -> float | None:
        """The estimated error of interpolated λ_max."""
        return self._spread(f"{self.provenance.split}_lambda_max")

    def _spread(self, name: str) -> float | None:
        """The estimated error of an interpolated quantity; older files have what their checks saw, and no checks."""
        seen = self.notes.get("spread", {}).get(name)
        return seen if seen is None or "checks" in self.notes else SPREAD * seen

    @property
    def loss_label(self) -> str:
        """The loss with its split, its regulariser and its unit."""
        return f"mean {self.split_word} {self.loss_name}"

    @property
    def loss_name(self) -> str:
        """The loss with its regulariser and its unit."""
        p = self.provenance
        added = f" + {p.regulariser}" if p.regulariser else ""
        return f"loss{added} ({'cross-entropy, nats' if p.loss == 'cross_entropy' else p.loss})"

    @property
    def recipe(self) -> str:
        """How the directions were made, and which BatchNorm statistics were used, if there are any."""
        name, statistics = self.provenance.normalisation, self.provenance.batchnorm
        drawn = f"random directions, {name.replace(',', '-normalised,', 1) if ',' in name else name + '-normalised'}"
        return _RECIPES.get(name, drawn) + ("" if statistics == "none" else f"; BatchNorm statistics {statistics}")

    def plot(self, path: str | Path | None = None, style: PictureStyle | StyleName = "screen") -> Figure:
        """Draw contours of loss and accuracy, or curves of lines, for the screen or a paper; written to ``path`` (.png,
        .pdf, ...) where given.

        Raises:
            FedscapeError: the file cannot be written, or Matplotlib writes no such files.
        """
        from analysis.surface.plots.figures import draw
        from landscape.storage.pictures import draw_picture

        return draw_picture(lambda: draw([self]), path, style)
