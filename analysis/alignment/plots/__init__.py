"""Pictures of clients' losses beside the federation's; nothing is measured here."""

from analysis.alignment.plots.matrices import plot_matrices
from analysis.alignment.plots.means import panels_of, plot_alignment

__all__ = ["panels_of", "plot_alignment", "plot_matrices"]
