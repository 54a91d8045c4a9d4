"""The loss in a plane or along a line in parameter space: ``python -m analysis.surface CKPT [CKPT ...]``."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from analysis.source import SurfaceSource, option
from analysis.surface.directions import Normalisation
from analysis.surface.measure import PlaneKind, measure_surface
from analysis.surface.points import BatchNorm
from analysis.surface.values import Surface
from landscape import FedscapeError
from landscape.activations import MAN
from landscape.compute.distributed import joined, rank_and_world
from landscape.storage.files import make_directory, write_json
from landscape.terminal.command import parse, run

PROGRAM = "python -m analysis.surface"

_AROUND_ONE = ("random", "hessian")


@dataclass(frozen=True)
class Command:
    """Measure the loss and the accuracy on a grid in a plane, or along lines, in parameter space, and draw them.

    The plane is around one checkpoint (random, filter-normalised directions as of Li et al., NeurIPS 2018, or the
    Hessian's eigenvectors; several checkpoints are measured one after the other), or goes through several.

    Killed or interrupted, the same command continues where it was.
    """

    checkpoints: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="CKPT [CKPT ...]", help_behavior_hint="")
    ]
    """checkpoint files, such as a run's ckpt.pt; FILE@ID is client ID's local model in it"""
    plane: PlaneKind = "random"
    """random or hessian (around each checkpoint), three (through three), pca (of a run's rounds/*.pt, or of several),
    line (between two, or through one along random directions)"""
    points: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N [N]")] = (51,)
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
    test: bool = False
    """measure the test data too, in the same pass, and draw them beside the training data"""
    weight_decay: Annotated[float, option("C", "0")] = 0.0
    """add a regulariser (C/2)‖w‖² to the loss"""
    man: Annotated[float, option("ZETA", "0")] = 0.0
    """add MAN's regulariser ZETA Σ_l mean(a_l²) of the activations to the loss"""
    batchnorm: Annotated[
        BatchNorm | None, option("{frozen,recalculated,interpolated}", "interpolated between models, else frozen")
    ] = None
    """running statistics of BatchNorm: the checkpoint's, computed anew at each point, or between the models'"""
    lambda_max: bool = False
    """measure the Hessian's largest eigenvalue at each point too (ten to fifty times slower)"""
    bf16: bool = False
    """products in bfloat16: faster where the processor has them, off by about 0.3 %; some points are checked in
    float32, and the deviation is told"""
    tolerance: float = 0.005
    """relative error allowed in the loss where it is interpolated, by checks"""
    exact: bool = False
    """measure every point, as is always done on lines"""
    workers: Annotated[int | None, option("N", "as many as PyTorch has threads; 1 on a GPU, Windows and macOS")] = None
    """processes that measure, each with one thread"""
    out: Annotated[Path | None, option("FILE", "surface.h5 beside the checkpoint")] = None
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
    scale: Literal["auto", "linear", "log"] = "auto"
    """of the loss in pictures"""
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
    fresh: bool = False
    """measure anew and replace the surface in --out, whatever it is of"""
    quiet: bool = False
    """no progress bar"""
    source: SurfaceSource = field(default_factory=SurfaceSource)

    @property
    def runs(self) -> list[tuple[str, ...]]:
        """The checkpoints of each plane."""
        return [(c,) for c in self.checkpoints] if self.plane in _AROUND_ONE else [self.checkpoints]

    @property
    def stores(self) -> list[Path]:
        """The file of each plane."""
        return self._numbered(self.out or Path(self.checkpoints[0].partition("@")[0]).parent / "surface.h5")

    @property
    def vtks(self) -> list[Path]:
        """ParaView's file of each plane, where one is wanted."""
        return [] if self.vtk is None else self._numbered(self.vtk)

    @property
    def vtk_models(self) -> list[Path]:
        """Beside each, that of the models in the plane."""
        return [file.with_name(f"{file.stem}-models.vtk") for file in self.vtks]

    def _numbered(self, file: Path) -> list[Path]:
        count = len(self.runs)
        return [file] if count == 1 else [file.with_name(f"{file.stem}-{k + 1}{file.suffix}") for k in range(count)]

    def check(self) -> None:
        """Refuse before the work what cannot be written after it.

        Raises:
            FedscapeError: no checkpoint, a picture that these planes cannot have, not as many labels as planes, a file
                that is a folder, is named twice or is of no kind that can be written.
        """
        if not self.checkpoints:
            raise FedscapeError(f"no checkpoint is given: give one or more files (see {PROGRAM} --help)")
        count = len(self.runs)
        if self.labels is not None and len(self.labels) != count:
            each = "one, as the plane is one surface" if count == 1 else f"{count}, one for each surface"
            raise FedscapeError(f"--labels gives {len(self.labels)} names: give {each}")
        if self.plot is not None:
            from analysis.surface.plots.figures import check_figure
            from landscape.storage.pictures import check_picture

            check_picture(self.plot)
            check_figure(self.figure, count, line=self.plane == "line")
            if self.quantity == "lambda_max" and not self.lambda_max:
                raise FedscapeError("--quantity lambda_max draws what --lambda-max measures: give both")
        if self.html is not None:
            from analysis.surface.plots.page import check_page

            check_page(self.html)
        if self.vtk is not None:
            from analysis.surface.plots.vtk import check_vtk

            check_vtk(self.vtk)
        files = [
            *self.stores,
            *self.vtks,
            *self.vtk_models,
            *(file for file in (self.plot, self.html, self.json, self.directions) if file),
        ]
        read = {os.path.realpath(checkpoint) for checkpoint in self.checkpoints}
        written = {os.path.realpath(file) for file in files}
        if len(written) < len(files) or read & written:
            raise FedscapeError("CKPT, --out, --plot, --html, --vtk, --json and --directions must be different files")
        for file in files:
            if os.path.isdir(file):
                raise FedscapeError(f"{file} is a directory: give the name of a file")
            make_directory(file.parent)

    def measure(self, checkpoints: tuple[str, ...], store: Path) -> Surface:
        """One plane."""
        return measure_surface(
            checkpoints[0],
            self.points,
            self.span,
            self.seed,
            store,
            **vars(self.source),
            plane=self.plane,
            others=checkpoints[1:],
            normalisation=self.normalisation,
            biases=self.biases,
            orthogonal=not self.as_drawn,
            directions=self.directions,
            seeds=self.seeds,
            test=self.test,
            weight_decay=self.weight_decay,
            penalty=MAN(self.man) if self.man else None,
            batchnorm=self.batchnorm,
            lambda_max=self.lambda_max,
            bf16=self.bf16,
            tolerance=self.tolerance,
            exact=self.exact,
            workers=self.workers,
            resume=not self.fresh,
            progress=not self.quiet,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure, draw, say what came out."""
    shape = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    command = parse(lambda: tyro.cli(Command, prog=PROGRAM, args=arguments, config=shape), PROGRAM)
    command.check()
    with joined(command.source.device) as device:
        here = replace(command, source=replace(command.source, device=str(device)))
        if rank_and_world()[0] == 0:
            return _carry_out(here)
        # The other ranks measure their share; the first one speaks, writes and draws.
        with contextlib.redirect_stdout(io.StringIO()):
            return _carry_out(replace(here, plot=None, html=None, vtk=None, json=None, quiet=True))


def _carry_out(command: Command) -> int:
    surfaces = []
    for checkpoints, store in zip(command.runs, command.stores, strict=True):
        try:
            surface = command.measure(checkpoints, store)
        except KeyboardInterrupt:
            print(f"the points measured so far are in {store}: the same command continues", file=sys.stderr)
            raise
        surfaces.append(surface)
        for name, fact in surface.facts().items():
            print(f"{name}: {fact}")
        print(f"values: {store}")
    if command.json is not None:
        values = [surface.to_dict() for surface in surfaces]
        write_json(command.json, values[0] if len(values) == 1 else values)
        print(f"json: {command.json}")
    if command.html is not None:
        from analysis.surface.plots.page import save_page

        save_page(surfaces, command.html, command.labels, command.scale)
        print(f"page: {command.html}")
    if command.vtk is not None:
        from analysis.surface.plots.vtk import save_vtk, save_vtk_models

        for surface, file, models in zip(surfaces, command.vtks, command.vtk_models, strict=True):
            save_vtk(surface, file)
            save_vtk_models(surface, models)
            print(f"VTK: {file}, the models: {models}")
    if command.plot is not None:
        from analysis.surface.plots.figures import draw
        from landscape.storage.pictures import save_figure

        save_figure(draw(surfaces, command.labels, command.figure, command.scale, command.quantity), command.plot)
        print(f"picture: {command.plot}")
    else:
        print(f"to draw them: the same command with --plot {command.stores[0].with_suffix('.png')}")
    return 0


def command_line() -> int:
    """The console script."""
    return run(main)


if __name__ == "__main__":
    sys.exit(command_line())
