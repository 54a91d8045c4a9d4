"""The options of measuring a surface, in groups that the function and the command share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from analysis.source import SurfaceSource, option
from analysis.surface.adaptive import CHECKS
from analysis.surface.directions import Normalisation
from analysis.surface.planes import Plane
from analysis.surface.points import BatchNorm
from analysis.surface.store import MAX_POINTS
from landscape import FedscapeError
from landscape.activations import MAN
from landscape.storage.outputs import ForceFlag

PlaneKind = Literal["random", "hessian", "three", "pca", "line"]

# The function takes more types than the command line can express: ``constructor`` is the type that the latter reads.
_PLANE = tyro.conf.arg(help_behavior_hint="(default: random)", constructor=PlaneKind)  # type: ignore[call-overload]
_POINTS = tyro.conf.arg(metavar="N [N]", help_behavior_hint="(default: 51)", constructor=tuple[int, ...])
_MAN = tyro.conf.arg(metavar="ZETA", help_behavior_hint="(default: 0)", constructor=float)


@dataclass(frozen=True)
class Grid:
    """Which points: a uniform grid in which plane, or along which lines."""

    plane: Annotated[PlaneKind | Plane, _PLANE] = "random"
    """random or hessian (around each checkpoint), three (through three), pca (of a run's rounds/*.pt, or of several),
    line (between two, or through one along random directions)"""
    points: Annotated[int | Sequence[int], _POINTS] = (51,)
    """points along each axis, or along x and along y; an odd number has the checkpoint in the centre"""
    span: Annotated[float | None, option("S", "1 around one checkpoint, 0.2 around several")] = None
    """farthest step along a direction (at 1 each filter has moved by its own length); around several checkpoints, how
    far the grid reaches beyond them as a share of their extent"""
    seed: int = 0
    """of the directions"""
    seeds: int = 1
    """of a line through one checkpoint: how many random directions, drawn as a band"""
    normalisation: Normalisation = "filter"
    """what of a random direction is as long as in the checkpoint: each filter, each layer's tensor, the whole model, or
    none"""
    biases: bool = False
    """random directions move biases and the parameters of normalisation layers too"""
    as_drawn: bool = False
    """do not orthogonalise random directions"""
    directions: Annotated[Path | None, option("FILE", "none")] = None
    """directions to share: used if the file is there, else written to it; a line along the eigenvectors of a plane:
    --plane line --directions surface.directions.pt"""

    @property
    def size(self) -> tuple[int, int]:
        """How many points along x and along y.

        Raises:
            FedscapeError: another number of axes than two, too few points or too many.
        """
        numbers = [self.points] if isinstance(self.points, int) else list(self.points)
        if len(numbers) == 1:
            numbers *= 2
        if len(numbers) != 2:
            raise FedscapeError(f"{len(numbers)} numbers of points: give one, or one for each of the two axes")
        for number in numbers:
            if not 2 <= number <= MAX_POINTS:
                raise FedscapeError(f"{number} points along an axis: give 2 to {MAX_POINTS}")
        return numbers[0], numbers[1]


@dataclass(frozen=True)
class Quantities:
    """What is added to the loss, and what is measured at each point beside the loss and the accuracy."""

    test: bool = False
    """measure the test data too, in the same pass, and draw them beside the training data"""
    weight_decay: Annotated[float, option("C", "0")] = 0.0
    """add a regulariser (C/2)‖w‖² to the loss"""
    man: Annotated[float | MAN, _MAN] = 0.0
    """add MAN's regulariser ZETA Σ_l mean(a_l²) of the activations to the loss"""
    batchnorm: Annotated[
        BatchNorm | None, option("{frozen,recalculated,interpolated}", "interpolated between models, else frozen")
    ] = None
    """running statistics of BatchNorm: the checkpoint's, computed anew at each point, or between the models'"""
    lambda_max: bool = False
    """measure the Hessian's largest eigenvalue at each point too (ten to fifty times slower)"""

    @property
    def penalty(self) -> MAN | None:
        """MAN's regulariser, where one is asked for.

        Raises:
            FedscapeError: ζ is negative or not finite.
        """
        if isinstance(self.man, MAN):
            return self.man
        return MAN(self.man) if self.man else None


@dataclass(frozen=True)
class Effort:
    """How precisely, with how many processes."""

    bf16: bool = False
    """products in bfloat16: faster where the processor has them, off by about 0.3 %; some points are checked in
    float32, and the deviation is told"""
    tolerance: float = 0.005
    """relative error of the loss allowed where it is interpolated: estimated, not a bound"""
    checks: Annotated[int | None, option("N", str(CHECKS))] = None
    """interpolated values are checked at N points drawn at random, which had no part in choosing or interpolating; if
    they are off by too much, more points or all are measured"""
    exact: bool = False
    """measure every point, as is always done on lines"""
    workers: Annotated[int | None, option("N", "as many as PyTorch has threads; 1 on a GPU, Windows and macOS")] = None
    """processes that measure, each with one thread"""


@dataclass(frozen=True)
class Output:
    """What the command writes and draws."""

    out: Annotated[
        Path | None, option("FILE", "beside --plot, --html, --json or --vtk, called like it; else surface.h5 here")
    ] = None
    """HDF5 file of the values; of several planes FILE-1, FILE-2, ..."""
    plot: Annotated[Path | None, option("FILE", "none")] = None
    """picture to draw: .png, .pdf, .svg"""
    figure: Literal["auto", "contours", "heatmap", "relief", "superimposed", "line"] = "auto"
    """of what kind; superimposed: the first checkpoint's surface as a grid over the others'"""
    quantity: Annotated[
        Literal["loss", "accuracy", "error", "lambda_max"] | None,
        option("{loss,accuracy,error,lambda_max}", "what fits the figure"),
    ] = None
    """draw this alone"""
    scale: Literal["auto", "linear", "log", "rise"] = "auto"
    """of the loss in pictures; rise: colours go with the logarithm of the height above the smallest value; auto: log
    where it spans more than a decade, else rise where a fifth of it lies in the lowest fifteenth of its range"""
    labels: Annotated[tuple[str, ...] | None, option("NAME [NAME ...]", "what tells them apart")] = None
    """of the surfaces in pictures, one for each (a plane through several checkpoints, or a line with its seeds, is
    one)"""
    html: Annotated[Path | None, option("FILE", "none")] = None
    """interactive page to write"""
    vtk: Annotated[Path | None, option("FILE", "none")] = None
    """surface for ParaView; of several planes FILE-1, FILE-2, ...; the models in it and the trajectory lie beside, in
    FILE-models.vtk"""
    json: Annotated[Path | None, option("FILE", "none")] = None
    """the values once more, as JSON (of several planes a list)"""
    profile: Annotated[Path | None, option("DIR", "none")] = None
    """look where the time of three points after the first goes, in one process (--workers 1): tables on the screen,
    profile.json and trace.json.gz there"""
    force: ForceFlag = False
    fresh: bool = False
    """measure anew and replace the surface in --out, whatever it is of"""
    quiet: bool = False
    """no progress bar"""

    @property
    def store(self) -> Path:
        """The HDF5 file: as asked for, or beside the first other file that is; never in the run that is measured.

        Example:
            >>> from pathlib import Path
            >>> from analysis.surface.options import Output
            >>> Output(plot=Path("a/line.png")).store.as_posix(), Output().store.as_posix()
            ('a/line.h5', 'surface.h5')
        """
        beside = [file for file in (self.plot, self.html, self.json, self.vtk) if file is not None]
        return self.out or (beside[0].with_suffix(".h5") if beside else Path("surface.h5"))

    def check(self, count: int, *, line: bool, lambda_max: bool) -> None:
        """Refuse pictures, pages and labels that ``count`` surfaces cannot have.

        Args:
            count: how many surfaces.
            line: whether they are lines.
            lambda_max: whether λ_max is measured.

        Raises:
            FedscapeError: not as many labels as surfaces, a figure they cannot have, a file of no kind that can be
                written.
        """
        if self.labels is not None and len(self.labels) != count:
            each = "one, as the plane is one surface" if count == 1 else f"{count}, one for each surface"
            raise FedscapeError(f"--labels gives {len(self.labels)} names: give {each}")
        if self.plot is not None:
            from analysis.surface.plots.figures import check_figure
            from landscape.storage.pictures import check_picture

            check_picture(self.plot)
            check_figure(self.figure, count, line=line)
            if self.quantity == "lambda_max" and not lambda_max:
                raise FedscapeError("--quantity lambda_max draws what --lambda-max measures: give both")
        if self.html is not None:
            from analysis.surface.plots.page import check_page

            check_page(self.html)
        if self.vtk is not None:
            from analysis.surface.plots.vtk import check_vtk

            check_vtk(self.vtk)


@dataclass(frozen=True)
class Request:
    """All options of one measurement: which data, which points, which quantities, how precisely."""

    source: SurfaceSource
    grid: Grid
    quantities: Quantities
    effort: Effort

    def check(self) -> None:
        """Refuse, before anything is loaded, what cannot be measured.

        Raises:
            FedscapeError: an impossible ζ, number of points, span, tolerance, number of checks, micro-batch size or
                split.
        """
        _ = self.quantities.penalty, self.grid.size
        span, tolerance, size = self.grid.span, self.effort.tolerance, self.source.batch_size
        if span is not None and not 0 < span < float("inf"):
            raise FedscapeError(f"the span is {span}: give a number above 0, such as 1.0")
        if not 0 < tolerance < float("inf"):
            raise FedscapeError(
                f"the tolerance is {tolerance}: give a number above 0, such as 0.005, or ask for exact values"
            )
        if self.effort.checks is not None and self.effort.checks < 1:
            raise FedscapeError(f"the number of checks is {self.effort.checks}: give 1 or more, such as {CHECKS}")
        if isinstance(size, str) and size != "auto":
            raise FedscapeError(f"the micro-batch size is '{size}': give a number, or auto for the fastest found")
        if self.source.split not in ("train", "test"):
            raise FedscapeError(f"unknown split '{self.source.split}': give train or test")
        if self.quantities.test and self.source.split == "test":
            raise FedscapeError("the test data are measured already: leave out test, or take split 'train'")
