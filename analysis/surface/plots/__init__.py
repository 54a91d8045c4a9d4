"""Pictures of surfaces, interactive pages and files for ParaView; nothing is measured here."""

from analysis.surface.plots.figures import draw
from analysis.surface.plots.lines import plot_lines
from analysis.surface.plots.page import save_page
from analysis.surface.plots.panels import plot_surface, plot_surfaces, plot_three
from analysis.surface.plots.reliefs import plot_reliefs, plot_superimposed
from analysis.surface.plots.vtk import save_vtk, save_vtk_models

__all__ = [
    "draw",
    "plot_lines",
    "plot_reliefs",
    "plot_superimposed",
    "plot_surface",
    "plot_surfaces",
    "plot_three",
    "save_page",
    "save_vtk",
    "save_vtk_models",
]
