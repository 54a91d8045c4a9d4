"""The options of ``python -m analysis.hessian`` and which of them contradict one another."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from analysis.hessian.options import Effort, Spectrum, Supplements, Trust
from analysis.hessian.options import Output as Written
from analysis.source import HessianSource
from landscape import FedscapeError
from landscape.checkpoints.foreign import file_and_client
from landscape.compute.devices import memory_size
from landscape.profiling import profile_outputs
from landscape.storage.outputs import Output, check_outputs, pictures
from landscape.storage.style import PictureStyle

PROGRAM = "python -m analysis.hessian"
_NUMBERS = ("eigenvalues", "residuals", "error_bounds")
"""Keys of what is written of each checkpoint."""


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
    """checkpoint files, run directories for their ckpt.pt, or state dicts from elsewhere (with --model and --data);
    FILE@ID is client ID's local model (trained with --save-clients), on the data of all clients unless --clients says
    whose"""
    rounds: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """measure every rounds/NNNNN.pt of the run each CKPT lies in (or is), and draw the curves, those of clients too"""
    replot: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """measure nothing: each CKPT is a file that --json or --out wrote, to tabulate and (with --out) draw again"""
    spectrum: Spectrum = field(default_factory=Spectrum)
    extras: Supplements = field(default_factory=Supplements)
    source: HessianSource = field(default_factory=HessianSource)
    effort: Effort = field(default_factory=Effort)
    trust: Trust = field(default_factory=Trust)
    output: Written = field(default_factory=Written)
    style: PictureStyle = field(default_factory=PictureStyle)

    def check(self) -> None:
        """Refuse options that contradict one another.

        Raises:
            FedscapeError: they do.
        """
        spectrum, output = self.spectrum, self.output
        if not self.checkpoints:
            raise FedscapeError(f"give at least one checkpoint file (see {PROGRAM} --help)")
        if self.output.profile is not None and (self.replot or self.trust.backend == "pyhessian"):
            raise FedscapeError("--profile looks at our products: leave out --replot and --backend pyhessian")
        if self.replot:
            if not spectrum.default or self.extras != Supplements() or self.trust != Trust():
                raise FedscapeError(
                    "--replot measures nothing: of the options that say what is measured give --ratio only"
                )
            return
        spectrum.check()
        self._check_clients()
        if self.effort.graph_memory is not None:
            memory_size(self.effort.graph_memory)
        if (output.eigenvalue_axis, output.density_axis) != ("auto", "log") and not spectrum.density:
            raise FedscapeError("--eigenvalue-axis and --density-axis are of the density's picture: give --density too")
        if spectrum.man and spectrum.kind != "hessian":
            raise FedscapeError(
                "--man adds a loss of the activations, and the Gauss-Newton and Fisher matrices are of a loss of the "
                "outputs: take the Hessian, or leave out --man"
            )
        if (spectrum.block or spectrum.weight_decay) and self.extras != Supplements():
            raise FedscapeError(
                "--block and --weight-decay say of which matrix the spectrum is, and --layers, --sharpness and "
                "--per-client measure the loss in all parameters: ask for them in two commands"
            )
        if spectrum.product == "fd" and self.extras != Supplements():
            raise FedscapeError(
                "--layers, --sharpness and --per-client multiply by autograd: ask for them without --product fd"
            )
        if self.effort.state is not None and (len(self.checkpoints) > 1 or self.rounds):
            raise FedscapeError("--state keeps one checkpoint's iteration: give one checkpoint, and no --rounds")
        if self.source.samples == "auto" and self.trust.backend == "pyhessian":
            raise FedscapeError("PyHessian has no error of a subset: give --samples N, not auto")
        if not spectrum.plain and (self.trust.compare_pyhessian or self.trust.backend == "pyhessian"):
            raise FedscapeError(
                "PyHessian measures the largest eigenvalues of the loss's Hessian only: "
                "leave out --which, --matrix, --ggn, --product, --weight-decay, --man and --block"
            )

    def outputs(self) -> list[Output]:
        """All files that the command writes."""
        written, folder = self.output, self.output.out
        found = []
        if written.json is not None:
            found.append(Output("--json", written.json, "json", _NUMBERS))
        if written.csv is not None:
            found.append(Output("--csv", written.csv, "csv", ("model", "data", "loss", "accuracy")))
        if self.effort.state is not None:
            found.append(Output("--state", Path(self.effort.state), "state", ("question",), continued=True))
        found += profile_outputs(written.profile)
        if folder is None:
            return found
        paper = self.style.paper
        found += pictures("--out", folder / "hessian.png", paper=paper)
        if self.replot:
            return found
        found.append(Output("--out", folder / "hessian.json", "json", _NUMBERS))
        found.append(Output("--out", folder / "hessian.npz", "npz", ("0_eigenvalues", "0_residuals")))
        asked = {"layers": self.extras.layers, "clients": self.extras.per_client}
        for name in (name for name, wanted in asked.items() if wanted):
            found += pictures("--out", folder / f"{name}.png", paper=paper)
        return found

    def check_outputs(self) -> None:
        """Refuse, before anything is measured, what must not be written.

        Raises:
            FedscapeError: an output is an input, no regular file, not ours, or cannot be written.
        """
        named = [file_and_client(path)[0] for path in self.checkpoints]
        read = [file / "ckpt.pt" if file.is_dir() else file for file in named]  # what is there is seen later
        check_outputs(self.outputs(), read, force=self.output.force)

    def _check_clients(self) -> None:
        """Refuse what clients' local models make no sense with.

        Raises:
            FedscapeError: there is something.
        """
        named = next((f"{path}" for path in self.checkpoints if file_and_client(path)[1] is not None), None)
        if self.extras.local and not self.extras.per_client:
            raise FedscapeError("--local says where clients are measured: give --per-client too")
        if named and self.extras.local:
            raise FedscapeError(
                f"{named} is one client's local model, and --local takes each client's: give one of them"
            )
        if named and self.rounds:
            raise FedscapeError(
                f"{named} is a local model of one round: leave out --rounds, or give the run and "
                "--rounds --per-client --local --clients ID"
            )
