"""Pictures and tables from measured results: a run opened and shown, checkpoints compared, images of data, the demo.

:func:`open_run` is the door for a notebook, and :func:`numbers` gives what a paper's figure shows; ``python -m figures
compare``, ``contact-sheet`` and ``demo`` are the commands; ``figures.demo.demo`` is the demo's function.
"""

from typing import TYPE_CHECKING

import landscape.terminal.starting  # noqa: F401 - first: Ctrl-C is quiet from here on
from landscape.lazy import lazily

if TYPE_CHECKING:
    from figures.commands.numbers import numbers
    from figures.comparison import Comparison, compare
    from figures.images import contact_sheet
    from figures.labels.results import labelled
    from figures.runs import OpenedRun, open_run
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Comparison": "figures.comparison",
            "OpenedRun": "figures.runs",
            "compare": "figures.comparison",
            "contact_sheet": "figures.images",
            "labelled": "figures.labels.results",
            "numbers": "figures.commands.numbers",
            "open_run": "figures.runs",
        },
    )

__all__ = ["Comparison", "OpenedRun", "compare", "contact_sheet", "labelled", "numbers", "open_run"]
