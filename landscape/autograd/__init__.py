"""Derivatives of the loss: flat parameters, Hessian-vector products, layers with a cheap double backward."""

from landscape.autograd.double_backward import use_fast_double_backward
from landscape.autograd.flat import FlatModule
from landscape.autograd.folding import fold_batchnorm
from landscape.autograd.preconditions import require_function, require_mean
from landscape.autograd.products import GaussNewtonProducts, HessianProducts, OutputCurvature

__all__ = [
    "FlatModule",
    "GaussNewtonProducts",
    "HessianProducts",
    "OutputCurvature",
    "fold_batchnorm",
    "require_function",
    "require_mean",
    "use_fast_double_backward",
]
