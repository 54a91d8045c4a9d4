"""What a measurement of the Hessian can be asked: the groups of options that its function and its command share.

The last three, :class:`Supplements`, :class:`Trust` and :class:`Output`, are the command's alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import tyro

from analysis.hessian.report import DensityAxis, EigenvalueAxis, Matrix
from analysis.hessian.spectrum.operators import Product
from analysis.hessian.spectrum.wanted import Which, check_ratios, read_ratio
from analysis.source import option
from landscape import FedscapeError
from landscape.activations import MAN
from landscape.several import several
from landscape.storage.outputs import ForceFlag

GraphMemory = int | str | None


def _read_as(type_: Any, metavar: str, default: str, name: str | None = None) -> Any:
    """An option of which the function takes more types than the command line can express: the latter reads this one."""
    return tyro.conf.arg(name=name, metavar=metavar, help_behavior_hint=f"(default: {default})", constructor=type_)


@dataclass(frozen=True)
class Spectrum:
    """What is measured, of which matrix."""

    top: int = 5
    """how many eigenvalues"""
    which: Which = "largest"
    """of which end of the spectrum: largest, smallest, magnitude (largest |λ|) or both"""
    ratios: Annotated[
        Sequence[tuple[int, int] | str],
        tyro.conf.UseAppendAction,
        _read_as(tuple[str, ...], "I/J", "none", name="ratio"),
    ] = ()
    """one more ratio λI/λJ of the largest eigenvalues to show beside λ1/λ5, such as 1/10; may be given several times"""
    trace: bool = True
    """estimate the trace"""
    density: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """estimate the spectral density"""
    matrix: Matrix = "hessian"
    """hessian, ggn (generalised Gauss-Newton), fisher (empirical) or mc-fisher (labels drawn from the model)"""
    ggn: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """short for --matrix ggn"""
    product: Product = "autograd"
    """autograd (double backward), or fd: float64 differences of gradients, for a layer whose double backward is wrong
    (a warning says so); right to about 1e-8 where the loss is smooth, and the table says how far a shorter step moves
    the eigenvalues (ReLU, max-pooling)"""
    weight_decay: Annotated[float, option("C", "0")] = 0.0
    """add a regulariser (C/2)‖w‖² to the loss: its Hessian is C I"""
    man: Annotated[float | MAN, _read_as(float, "ZETA", "0")] = 0.0
    """add MAN's regulariser ZETA Σ_l mean(a_l²) of the activations to the loss (its published code halves ZETA)"""
    block: Annotated[Sequence[str], _read_as(tuple[str, ...], "PATTERN [PATTERN ...]", "all parameters")] = ()
    """only the block of these parameters: layers or modules by name, globs over all names (layer1 '*.weight')"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "block", tuple(several(self.block)))  # one may be given alone

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The ratios asked for, as (i, j).

        Raises:
            FedscapeError: a text of another form than I/J.
        """
        return [read_ratio(ratio) if isinstance(ratio, str) else ratio for ratio in self.ratios]

    @property
    def kind(self) -> Matrix:
        """Which matrix, with ``ggn`` as its short form."""
        return "ggn" if self.ggn else self.matrix

    @property
    def penalty(self) -> MAN | None:
        """MAN's regulariser, where it is asked for."""
        if isinstance(self.man, MAN):
            return self.man
        return MAN(self.man) if self.man else None

    @property
    def plain(self) -> bool:
        """Whether it is the largest eigenvalues of the whole Hessian of the loss alone."""
        return self == Spectrum(top=self.top, ratios=self.ratios, trace=self.trace, density=self.density)

    @property
    def default(self) -> bool:
        """Whether nothing is asked for but ratios."""
        return self == Spectrum(ratios=self.ratios)

    def check(self) -> None:
        """Refuse what makes no sense, before any work.

        Raises:
            FedscapeError: two matrices, differences of another one than the Hessian, ratios of more eigenvalues than
                are measured or of another end, a weight decay below 0.
        """
        check_ratios(self.pairs, self.which, self.top)
        if not 0 <= self.weight_decay < np.inf:
            raise FedscapeError(f"the weight decay is {self.weight_decay}: it must be 0 or more")
        if self.ggn and self.matrix not in ("hessian", "ggn"):
            raise FedscapeError(f"--ggn and --matrix {self.matrix} ask for two matrices: give one of them")
        if self.product not in get_args(Product):
            raise FedscapeError(f"unknown product '{self.product}': give {' or '.join(get_args(Product))}")
        if self.product == "fd" and self.kind != "hessian":
            raise FedscapeError(
                "differences of gradients multiply with the Hessian: leave out --product fd, or take --matrix hessian"
            )


@dataclass(frozen=True)
class Effort:
    """How exactly, with how much memory."""

    tolerance: float = 1e-3
    """relative error wanted of each eigenvalue"""
    trace_tolerance: float = 0.02
    """standard error wanted of the trace, as a share of it"""
    trace_probes: int = 100
    """at most so many random probes of the trace; where they do not reach the tolerance, the table says so"""
    density_tolerance: float = 0.02
    """area wanted between the density's curve and an end of its 95 % band, as a share of the area under the curve"""
    density_probes: Annotated[int, tyro.conf.arg(name="probes")] = 16
    """at most so many random probes of the density: more narrow its error"""
    density_steps: Annotated[int, tyro.conf.arg(name="steps")] = 100
    """at most so many Lanczos steps of each probe of the density: more resolve finer parts of it"""
    sampling_tolerance: float = 0.1
    """of --samples auto: half-width wanted of each 95 % interval of what all samples would give, as a share of the
    value (of the eigenvalues and the trace); narrower needs more samples, four times as many for half"""
    seed: int = 0
    """of all random vectors"""
    max_basis: Annotated[int | None, option("N", "what fits in 256 MB, at least top + 24")] = None
    """at most so many Lanczos vectors in memory; fewer mean more products"""
    refine: bool = True
    """end float32 eigenvalues with one float64 product each: true residuals, and bounds that hold"""
    graph_memory: Annotated[GraphMemory, _read_as(str | None, "SIZE", "a quarter of the free memory")] = None
    """of gradients' graphs kept between products (500MB, ...); 0: one micro-batch's at a time, for large models"""
    state: Annotated[str | Path | None, _read_as(Path | None, "FILE", "none")] = None
    """keep the eigenvalue iteration there: after a kill the same command continues (one checkpoint at a time)"""
    threads: Annotated[int | None, option("N", "OMP_NUM_THREADS; else 1 for small work, or PyTorch's")] = None
    """CPU threads"""


@dataclass(frozen=True)
class Supplements:
    """More to measure, each on its own."""

    layers: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """λ_max of each layer's Hessian block, weight and activation norms, FedSAM's norm product (Theorem 3.5)"""
    sharpness: Annotated[float | None, option("RHO", "none")] = None
    """SAM, adaptive, m- and average-direction sharpness at radius RHO, gradient norm and noise"""
    per_client: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """λ_max, loss and accuracy on each client's own data (of --clients, or of all); with --rounds as curves"""
    local: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """with --per-client: at each client's local model (trained with --save-clients), not at the global one; with
    --rounds those of the clients that were sampled in the round"""


@dataclass(frozen=True)
class Trust:
    """Whether to believe it."""

    verify: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """check the products first (symmetry, linearity, float64 finite difference) and on the way (symmetry, two steps of
    --product fd); go no further if they are wrong"""
    backend: Literal["fedscape", "pyhessian"] = "fedscape"
    """pyhessian: let PyHessian's own code answer, as the papers did (eigenvalues, trace, density)"""
    compare_pyhessian: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """let PyHessian answer too, and print both side by side with the differences explained"""


@dataclass(frozen=True)
class Output:
    """What is written and drawn beside the table on the screen."""

    json: Annotated[Path | None, option("FILE", "none")] = None
    """write all numbers there"""
    csv: Annotated[Path | None, option("FILE", "none")] = None
    """write the comparison table there, a row a checkpoint"""
    out: Annotated[Path | None, option("DIR", "none")] = None
    """write hessian.png, hessian.json and hessian.npz there, layers.png of --layers and clients.png of --per-client"""
    profile: Annotated[Path | None, option("DIR", "none")] = None
    """look where the time of three products after the first goes: tables on the screen, profile.json and trace.json.gz
    there"""
    force: ForceFlag = False
    eigenvalue_axis: EigenvalueAxis = "auto"
    """of the density's picture; symlog: logarithmic on both sides of 0, linear where the quadrature tells none apart;
    auto: linear, and symlog for several spectra whose ranges differ tenfold"""
    density_axis: DensityAxis = "log"
    """of the density's picture: log or linear"""
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """no progress bar"""
