"""Loss and accuracy on corrupted test images.

``python -m analysis.corruptions CKPT --out DIR`` is the command, :func:`measure_corruptions` the same in one call.
"""

from analysis.corruptions.measure import measure_corruptions
from analysis.corruptions.robustness import Robustness

__all__ = ["Robustness", "measure_corruptions"]
