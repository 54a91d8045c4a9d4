"""The curvature of the loss: spectra of the Hessian and its kin, by layer and by client, and sharpness.

``python -m analysis.hessian CKPT`` is the command, :func:`measure_hessian` the same in one call.
"""

from analysis.hessian.measure import measure_hessian
from analysis.hessian.options import Effort, Spectrum
from analysis.hessian.report import HessianReport

__all__ = ["Effort", "HessianReport", "Spectrum", "measure_hessian"]
