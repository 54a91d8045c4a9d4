"""The eigenvalue spectral density, and what follows from it: shares of eigenvalues, moments, the effective rank."""

from analysis.hessian.density.estimate import Density, estimate_density

__all__ = ["Density", "estimate_density"]
