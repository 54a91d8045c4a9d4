"""What the Hessian command can be asked, in the groups its ``--help`` shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from analysis.hessian.report import DensityAxis, EigenvalueAxis, Matrix, read_ratio
from analysis.hessian.spectrum.wanted import Which
from analysis.source import option


@dataclass(frozen=True)
class Spectrum:
    """What is measured, of which matrix."""

    top: int = 5
    """how many eigenvalues"""
    which: Which = "largest"
    """of which end of the spectrum: largest, smallest, magnitude (largest |λ|) or both"""
    ratio: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, option("I/J", "none")] = ()
    """one more ratio λI/λJ of the largest eigenvalues to show beside λ1/λ5, such as 1/10; may be given several times"""
    trace: bool = True
    """estimate the trace"""
    density: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """estimate the spectral density"""
    matrix: Matrix = "hessian"
    """hessian, ggn (generalised Gauss-Newton), fisher (empirical) or mc-fisher (labels drawn from the model)"""
    ggn: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """short for --matrix ggn"""
    weight_decay: Annotated[float, option("C", "0")] = 0.0
    """add a regulariser (C/2)‖w‖² to the loss: its Hessian is C I"""
    man: Annotated[float, option("ZETA", "0")] = 0.0
    """add MAN's regulariser ZETA Σ_l mean(a_l²) of the activations to the loss (its published code halves ZETA)"""
    block: Annotated[tuple[str, ...], option("PATTERN [PATTERN ...]", "all parameters")] = ()
    """only the block of these parameters: layers or modules by name, globs over all names (layer1 '*.weight')"""

    @property
    def ratios(self) -> list[tuple[int, int]]:
        """The ratios asked for, as (i, j).

        Raises:
            FedscapeError: one of another form than I/J.
        """
        return [read_ratio(text) for text in self.ratio]

    @property
    def kind(self) -> Matrix:
        """Which matrix."""
        return "ggn" if self.ggn else self.matrix

    @property
    def plain(self) -> bool:
        """Whether it is the largest eigenvalues of the whole Hessian of the loss alone."""
        return self == Spectrum(top=self.top, ratio=self.ratio, trace=self.trace, density=self.density)

    @property
    def default(self) -> bool:
        """Whether nothing is asked for but ratios."""
        return self == Spectrum(ratio=self.ratio)


@dataclass(frozen=True)
class Effort:
    """How exactly, with how much memory."""

    tolerance: float = 1e-3
    """relative error wanted of each eigenvalue"""
    trace_tolerance: float = 0.02
    """standard error wanted of the trace, as a share of it"""
    probes: int = 8
    """random probes of the density: more narrow its error"""
    steps: int = 40
    """Lanczos steps of each probe of the density"""
    seed: int = 0
    """of all random vectors"""
    max_basis: Annotated[int | None, option("N", "what fits in 256 MB, at least top + 24")] = None
    """at most so many Lanczos vectors in memory; fewer mean more products"""
    graph_memory: Annotated[str | None, option("SIZE", "a quarter of the free memory")] = None
    """of gradients' graphs kept between products (500MB, ...); 0: one micro-batch's at a time, for large models"""
    state: Annotated[Path | None, option("FILE", "none")] = None
    """keep the eigenvalue iteration there: after a kill the same command continues (one checkpoint at a time)"""
    threads: Annotated[int | None, option("N", "OMP_NUM_THREADS, or PyTorch's choice")] = None
    """CPU threads"""


@dataclass(frozen=True)
class Trust:
    """Whether to believe it."""

    verify: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """check the products first (symmetry, linearity, float64 finite difference); go no further if they are wrong"""
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
    eigenvalue_axis: EigenvalueAxis = "linear"
    """of the density's picture; symlog: logarithmic on both sides of 0, linear where the quadrature tells none apart"""
    density_axis: DensityAxis = "log"
    """of the density's picture: log or linear"""
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """no progress bar"""
