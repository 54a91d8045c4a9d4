"""Pictures and tables from measured results: a run opened and shown, checkpoints compared, images of data, the demo.

:func:`open_run` is the door for a notebook; ``python -m figures compare``, ``contact-sheet`` and ``demo`` are the
commands; ``figures.demo.demo`` is the demo's function.
"""

from figures.comparison import Comparison, compare
from figures.images import contact_sheet
from figures.runs import OpenedRun, open_run

__all__ = ["Comparison", "OpenedRun", "compare", "contact_sheet", "open_run"]
