"""The kinds of pictures that the papers have, as functions of plain values: nothing is measured or read here.

Each takes panels with their titles, and a title and a caption of the whole figure; the caption ends with what the signs
in the picture mean.  Sizes of fonts are Matplotlib's settings, so that a style can set them.
"""

from figures.plots.bars import BarPanel, Bars, plot_bars
from figures.plots.clients import ClientPanel, ClientValues, ScatterPanel, plot_client_lines, plot_client_values
from figures.plots.curves import Curve, CurvePanel, plot_curves
from figures.plots.densities import DensityPanel, plot_densities
from figures.plots.heatmaps import CountPanel, HistogramPanel, plot_class_histograms, plot_heat_maps
from figures.plots.layout import Level
from figures.plots.spectra import SpectraPanel, Spectrum, plot_eigenvalues
from figures.plots.surfaces import PlanePanel, SurfacePanel, capped_log, plot_loss_surfaces, plot_over, plot_planes
from figures.plots.sweeps import Sweep, SweepPanel, plot_sweeps

__all__ = [
    "BarPanel",
    "Bars",
    "ClientPanel",
    "ClientValues",
    "CountPanel",
    "Curve",
    "CurvePanel",
    "DensityPanel",
    "HistogramPanel",
    "Level",
    "PlanePanel",
    "ScatterPanel",
    "SpectraPanel",
    "Spectrum",
    "SurfacePanel",
    "Sweep",
    "SweepPanel",
    "capped_log",
    "plot_bars",
    "plot_class_histograms",
    "plot_client_lines",
    "plot_client_values",
    "plot_curves",
    "plot_densities",
    "plot_eigenvalues",
    "plot_heat_maps",
    "plot_loss_surfaces",
    "plot_over",
    "plot_planes",
    "plot_sweeps",
]
