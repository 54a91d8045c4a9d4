"""The options of ``python -m analysis.hessian`` and which of them contradict one another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from analysis.hessian.measure import measure_hessian, penalty_of
from analysis.hessian.options import Effort, Output, Spectrum, Trust
from analysis.hessian.report import HessianReport, check_ratios
from analysis.hessian.supplements import Extras, Measured
from analysis.source import Source
from landscape import FedscapeError, Landscape
from landscape.compute.devices import memory_size

PROGRAM = "python -m analysis.hessian"


@dataclass(frozen=True)
class Command:
    """Extreme eigenvalues, λ1/λ5, trace and spectral density of the loss's Hessian at one checkpoint or several.

    The Hessian is that of the mean loss over all samples of the split, exactly; the eigenvalues come with
    residuals and error bounds, the trace with its standard error.
    """

    checkpoints: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(metavar="CKPT [CKPT ...]", help_behavior_hint=""),
    ]
    """checkpoint files, such as a run's ckpt.pt, or state dicts from elsewhere (with --model and --data)"""
    rounds: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """measure every rounds/NNNNN.pt of the run each CKPT lies in (or is), and draw the curves"""
    replot: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """measure nothing: each CKPT is a file that --json or --out wrote, to tabulate and (with --out) draw again"""
    spectrum: Spectrum = field(default_factory=Spectrum)
    extras: Extras = field(default_factory=Extras)
    source: Source = field(default_factory=Source)
    effort: Effort = field(default_factory=Effort)
    trust: Trust = field(default_factory=Trust)
    output: Output = field(default_factory=Output)

    def check(self) -> None:
        """Refuse options that contradict one another.

        Raises:
            FedscapeError: they do.
        """
        spectrum, output = self.spectrum, self.output
        if not self.checkpoints:
            raise FedscapeError(f"give at least one checkpoint file (see {PROGRAM} --help)")
        ratios = spectrum.ratios
        if self.replot:
            if not spectrum.default or self.extras != Extras() or self.trust != Trust():
                raise FedscapeError(
                    "--replot measures nothing: of the options that say what is measured give --ratio only"
                )
            return
        check_ratios(ratios, spectrum.which, spectrum.top)
        if self.effort.graph_memory is not None:
            memory_size(self.effort.graph_memory)
        if (output.eigenvalue_axis, output.density_axis) != ("linear", "log") and not spectrum.density:
            raise FedscapeError("--eigenvalue-axis and --density-axis are of the density's picture: give --density too")
        if spectrum.ggn and spectrum.matrix not in ("hessian", "ggn"):
            raise FedscapeError(f"--ggn and --matrix {spectrum.matrix} ask for two matrices: give one of them")
        if spectrum.man and spectrum.kind != "hessian":
            raise FedscapeError(
                "--man adds a loss of the activations, and the Gauss-Newton and Fisher matrices are of a loss of the "
                "outputs: take the Hessian, or leave out --man"
            )
        if (spectrum.block or spectrum.weight_decay) and self.extras != Extras():
            raise FedscapeError(
                "--block and --weight-decay say of which matrix the spectrum is, and --layers, --sharpness and "
                "--per-client measure the loss in all parameters: ask for them in two commands"
            )
        if self.effort.state is not None and (len(self.checkpoints) > 1 or self.rounds):
            raise FedscapeError("--state keeps one checkpoint's iteration: give one checkpoint, and no --rounds")
        if not spectrum.plain and (self.trust.compare_pyhessian or self.trust.backend == "pyhessian"):
            raise FedscapeError(
                "PyHessian measures the largest eigenvalues of the loss's Hessian only: "
                "leave out --which, --matrix, --ggn, --weight-decay, --man and --block"
            )

    def pyhessian_options(self) -> dict[str, Any]:
        """What this command asks of PyHessian."""
        return {
            "trace": self.spectrum.trace,
            "density": self.spectrum.density,
            "tolerance": self.effort.tolerance,
            "density_probes": self.effort.probes,
            "density_steps": self.effort.steps,
            "split": self.source.split,
            "seed": self.effort.seed,
            "progress": not self.output.quiet,
        }

    def landscape(self, path: Path) -> tuple[Landscape, str]:
        """The landscape around one checkpoint, and what it is called."""
        landscape = Landscape.from_checkpoint(path, **vars(self.source))
        return landscape, landscape.title

    def measure(self, path: Path) -> HessianReport:
        """The report of one checkpoint."""
        spectrum, effort = self.spectrum, self.effort
        if self.trust.backend == "pyhessian":
            from analysis.hessian.pyhessian import pyhessian_report

            landscape, title = self.landscape(path)
            report = pyhessian_report(landscape, spectrum.top, title=title, **self.pyhessian_options())
            return report.with_ratios(spectrum.ratios)
        return measure_hessian(
            path,
            spectrum.top,
            **vars(self.source),
            which=spectrum.which,
            matrix=spectrum.kind,
            weight_decay=spectrum.weight_decay,
            man=spectrum.man,
            block=spectrum.block,
            trace=spectrum.trace,
            density=spectrum.density,
            ratios=spectrum.ratios,
            verify=self.trust.verify,
            tolerance=effort.tolerance,
            trace_tolerance=effort.trace_tolerance,
            density_probes=effort.probes,
            density_steps=effort.steps,
            seed=effort.seed,
            max_basis=effort.max_basis,
            graph_memory=effort.graph_memory,
            state=effort.state,
            progress=not self.output.quiet,
        )

    def more(self, path: Path) -> Iterator[Measured]:
        """The other tables asked for, of one checkpoint."""
        penalty = penalty_of(self.spectrum.man)
        return self.extras.measure(path, self.source, self.effort.seed, not self.output.quiet, penalty)
