"""Loss and accuracy on corrupted test images.

``python -m analysis.corruptions CKPT --out DIR`` is the command, :func:`measure_corruptions` the same in one call.
"""

from typing import TYPE_CHECKING

from landscape.lazy import lazily

if TYPE_CHECKING:
    from analysis.corruptions.measure import measure_corruptions
    from analysis.corruptions.robustness import Robustness
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Robustness": "analysis.corruptions.robustness",
            "measure_corruptions": "analysis.corruptions.measure",
        },
    )

__all__ = ["Robustness", "measure_corruptions"]
