"""The loss in a plane or along a line in parameter space: ``python -m analysis.surface CKPT [CKPT ...]``."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from analysis.source import SurfaceSource
from analysis.surface.measure import measure_surface
from analysis.surface.options import Effort, Grid, Quantities
from analysis.surface.options import Output as Written
from analysis.surface.values import Surface
from landscape import FedscapeError
from landscape.checkpoints.foreign import checkpoint_file
from landscape.compute.distributed import joined, rank_and_world
from landscape.profiling import profile_outputs, told
from landscape.storage.files import write_json
from landscape.storage.outputs import Output, check_outputs, pictures
from landscape.storage.style import PictureStyle
from landscape.terminal.command import read, run
from landscape.terminal.stopping import continuing

PROGRAM = "python -m analysis.surface"
CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)

_AROUND_ONE = ("random", "hessian")
_WITHOUT_HEADING = tyro.conf.arg(name="")


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
    """checkpoint files, or run directories for their ckpt.pt; FILE@ID is client ID's local model in it"""
    grid: Annotated[Grid, _WITHOUT_HEADING] = field(default_factory=Grid)
    quantities: Annotated[Quantities, _WITHOUT_HEADING] = field(default_factory=Quantities)
    effort: Annotated[Effort, _WITHOUT_HEADING] = field(default_factory=Effort)
    output: Annotated[Written, _WITHOUT_HEADING] = field(default_factory=Written)
    style: Annotated[PictureStyle, _WITHOUT_HEADING] = field(default_factory=PictureStyle)
    source: SurfaceSource = field(default_factory=SurfaceSource)

    @property
    def runs(self) -> list[tuple[str, ...]]:
        """The checkpoints of each plane."""
        return [(c,) for c in self.checkpoints] if self.grid.plane in _AROUND_ONE else [self.checkpoints]

    @property
    def stores(self) -> list[Path]:
        """The HDF5 file of each plane."""
        return self._numbered(self.output.store)

    @property
    def vtks(self) -> list[Path]:
        """The ParaView file of each plane, where it is asked for."""
        return [] if self.output.vtk is None else self._numbered(self.output.vtk)

    @property
    def vtk_models(self) -> list[Path]:
        """Beside each of them, the file of the models in the plane."""
        return [file.with_name(f"{file.stem}-models.vtk") for file in self.vtks]

    def _numbered(self, file: Path) -> list[Path]:
        count = len(self.runs)
        return [file] if count == 1 else [file.with_name(f"{file.stem}-{k + 1}{file.suffix}") for k in range(count)]

    def check(self) -> None:
        """Refuse, before anything is measured, what could not be written afterwards.

        Raises:
            FedscapeError: no checkpoint, a picture that these planes cannot have, not as many labels as planes, a file
                that is a folder, is named twice or is of no kind that can be written.
        """
        if not self.checkpoints:
            raise FedscapeError(f"no checkpoint is given: give one or more files (see {PROGRAM} --help)")
        if self.output.profile is not None and self.effort.workers != 1:
            raise FedscapeError("--profile looks into one process: give --workers 1, too")
        line, output = self.grid.plane == "line", self.output
        output.check(len(self.runs), line=line, lambda_max=self.quantities.lambda_max)
        read = [checkpoint_file(name) for name in self.checkpoints]
        check_outputs(self.outputs(), read, force=output.force)

    def outputs(self) -> list[Output]:
        """All files that the command writes; directions only where there are none yet."""
        output = self.output
        found = [Output("--out", file, "surface", continued=True) for file in self.stores]
        found += profile_outputs(output.profile)
        found += [Output("--vtk", file, "vtk") for file in [*self.vtks, *self.vtk_models]]
        if output.plot is not None:
            found += pictures("--plot", output.plot, paper=self.style.paper)
        if output.html is not None:
            found.append(Output("--html", output.html, "page"))
        if output.json is not None:
            found.append(Output("--json", output.json, "json", ("loss", "plane")))
        if self.grid.directions is not None:
            signs = ("fedscape-directions/",)
            found.append(Output("--directions", self.grid.directions, "directions", signs, continued=True))
        return found

    def measure(self, checkpoints: tuple[str, ...], store: Path) -> Surface:
        """Measure one plane."""
        return measure_surface(
            checkpoints[0],
            store=store,
            others=checkpoints[1:],
            source=self.source,
            grid=self.grid,
            quantities=self.quantities,
            effort=self.effort,
            resume=not self.output.fresh,
            progress=not self.output.quiet,
        )


def kinds() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """What the options are made of, by program, with tyro's configuration."""
    return {PROGRAM: (Command, CONFIG)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure, print, write and draw."""
    given = sys.argv[1:] if arguments is None else arguments
    command = read(Command, PROGRAM, given, CONFIG)
    command.check()
    with joined(command.source.device) as device:
        here = replace(command, source=replace(command.source, device=str(device)))
        if rank_and_world()[0] == 0:
            with told("point", command.output.profile):
                surfaces = _measure(here)
            _write(here, surfaces)
            return 0
        # The other ranks measure their share; the first one speaks, writes and draws.
        with contextlib.redirect_stdout(io.StringIO()):
            _measure(replace(here, output=replace(here.output, quiet=True)))
    return 0


def _measure(command: Command) -> list[Surface]:
    """Measure the planes one after the other, and print what is known of each."""
    surfaces = []
    for checkpoints, store in zip(command.runs, command.stores, strict=True):
        with continuing(f"the points measured so far are in {store}: the same command continues"):
            surface = command.measure(checkpoints, store)
        surfaces.append(surface)
        for name, fact in surface.facts().items():
            print(f"{name}: {fact}")
        print(f"values: {store}")
    return surfaces


def _write(command: Command, surfaces: list[Surface]) -> None:
    """Write and draw what is asked for, and print where it is."""
    output = command.output
    if output.json is not None:
        values = [surface.to_dict() for surface in surfaces]
        write_json(output.json, values[0] if len(values) == 1 else values)
        print(f"json: {output.json}")
    if output.html is not None:
        from analysis.surface.plots.page import save_page

        save_page(surfaces, output.html, output.labels, output.scale)
        print(f"page: {output.html}")
    if output.vtk is not None:
        from analysis.surface.plots.vtk import save_vtk, save_vtk_models

        for surface, file, models in zip(surfaces, command.vtks, command.vtk_models, strict=True):
            save_vtk(surface, file)
            save_vtk_models(surface, models)
            print(f"VTK: {file}, the models: {models}")
    if output.plot is not None:
        from analysis.surface.plots.figures import draw
        from landscape.storage.pictures import draw_picture

        draw_picture(
            lambda: draw(surfaces, output.labels, output.figure, output.scale, output.quantity),
            output.plot,
            command.style,
        )
        print(f"picture: {output.plot}")
    else:
        print(f"to draw them: the same command with --plot {command.output.store.with_suffix('.png')}")


def command_line(arguments: Sequence[str] | None = None) -> int:
    """The console script."""
    return run(lambda: main(arguments))


if __name__ == "__main__":
    sys.exit(command_line())
