"""The picture of a density alone; :mod:`analysis.hessian.plots` draws it beside the eigenvalues, and several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from analysis.style import COLOURS
from landscape.storage.canvas import new_figure, pt

if TYPE_CHECKING:
    from analysis.hessian.density.estimate import Density

_DECADES_DOWN = 6
"""How far the axis reaches below the highest point, where the dimension does not say how high one eigenvalue is."""


def plot_density(density: Density) -> Figure:
    """The curve with its 95 % band; the axis ends below the peak of the kernel of a single eigenvalue."""
    figure = new_figure((6.4, 4.0), layout="constrained")
    ax = figure.subplots()
    low, high = density.values - density.band, density.values + density.band
    top = float(high.max())
    one = 10.0**-_DECADES_DOWN * top
    if density.dimension is not None:
        one = 0.1 / (density.dimension * density.width * np.sqrt(2 * np.pi))
    ax.plot(density.grid, np.maximum(density.values, 1e-300), color=COLOURS[0], linewidth=1.4)
    ax.fill_between(density.grid, np.maximum(low, 1e-300), high, color=COLOURS[0], alpha=0.2, lw=0)
    ax.set(xlabel="eigenvalue", ylabel="density (per unit of eigenvalue)", title="Spectral density", yscale="log")
    ax.set_ylim(one, 3 * top)
    ax.grid(alpha=0.3)
    caption = f"Gaussian kernel, σ {density.width:.2g}; band: 95 %, over the probes and the quadrature"
    figure.supxlabel(caption, fontsize=pt(8), color="0.3")
    return figure
