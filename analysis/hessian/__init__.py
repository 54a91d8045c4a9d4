"""The curvature of the loss: spectra of the Hessian and its kin, by layer and by client, and sharpness.

``python -m analysis.hessian CKPT`` is the command, :func:`measure_hessian` the same in one call.
"""

from typing import TYPE_CHECKING

from landscape.lazy import lazily

if TYPE_CHECKING:
    from analysis.hessian.measure import measure_hessian
    from analysis.hessian.options import Effort, Spectrum
    from analysis.hessian.report import HessianReport
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Effort": "analysis.hessian.options",
            "HessianReport": "analysis.hessian.report",
            "Spectrum": "analysis.hessian.options",
            "measure_hessian": "analysis.hessian.measure",
        },
    )

__all__ = ["Effort", "HessianReport", "Spectrum", "measure_hessian"]
