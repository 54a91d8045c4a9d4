"""How long a measurement of the Hessian will take, in a line before it starts."""

from __future__ import annotations

import sys

import torch

from analysis.hessian.options import Effort, Spectrum
from analysis.hessian.sampling import MatrixOf
from analysis.hessian.spectrum.wanted import Wanted
from analysis.timing import duration, seconds_of
from landscape import Landscape
from landscape.compute.distributed import rank_and_world

_LONG = 10.0
"""Seconds from which on the line is printed."""
_LARGE = 4
"""Micro-batches from which on one of them is timed: before, it would be a large part of the work itself."""


def announce(
    landscape: Landscape, matrix: MatrixOf, spectrum: Spectrum, effort: Effort, *, subset: bool = False
) -> None:
    """Say on stderr about how long the measurement will take, where that is 10 s or more.

    The time is that of two products over one micro-batch, of which the second counts; nothing is decided by it.
    Samples of four micro-batches and fewer are not timed, nor work shared by several processes.

    Args:
        landscape: over all samples that will be measured.
        matrix: the matrix that is measured.
        spectrum, effort: what is asked for.
        subset: whether fewer samples than all were asked for already.
    """
    if landscape.samples <= _LARGE * landscape.batch_size or rank_and_world()[1] > 1:
        return
    operator = matrix(landscape.subset(torch.arange(landscape.batch_size)))
    vector = torch.ones(operator.shape[0], 1, device=operator.device, dtype=operator.dtype)
    each = seconds_of(lambda: operator.matmat(vector)) * landscape.samples / landscape.batch_size
    count = expected_products(spectrum, effort, operator.shape[0])
    if each * count >= _LONG:
        remedy = "" if subset else "; --samples auto or --samples N would be faster"
        print(
            f"about {duration(each * count)}: some {count:,} products at {each:.2g} s "
            f"({operator.shape[0]:,} parameters, {landscape.samples:,} samples){remedy}",
            file=sys.stderr,
        )


def expected_products(spectrum: Spectrum, effort: Effort, dimension: int) -> int:
    """About how many products will be spent, as typical nets take them."""
    eigen = 8 + 3 * Wanted(spectrum.which, spectrum.top).count
    trace = min(20, effort.trace_probes) if spectrum.trace else 0
    density = min(effort.density_probes, 4) * min(effort.density_steps, 16, dimension) if spectrum.density else 0
    return min(eigen, dimension) + trace + density
