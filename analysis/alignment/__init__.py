"""Local against global: how the losses of a federation's clients lie to one another and to their mean.

``python -m analysis.alignment RUN [RUN ...] --out DIR`` is the command, :func:`measure_alignment` the same in one
call.  With f_i the loss on client i's data and p_i its weight in the objective, f = Σ p_i f_i over all clients.
"""

from typing import TYPE_CHECKING

from landscape.lazy import lazily

if TYPE_CHECKING:
    from analysis.alignment.federation import Federation
    from analysis.alignment.measure import measure_alignment
    from analysis.alignment.options import Asked
    from analysis.alignment.results import Alignment
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Alignment": "analysis.alignment.results",
            "Asked": "analysis.alignment.options",
            "Federation": "analysis.alignment.federation",
            "measure_alignment": "analysis.alignment.measure",
        },
    )

__all__ = ["Alignment", "Asked", "Federation", "measure_alignment"]
