"""Pictures and tables from measured results: checkpoints compared on one sheet, images of a data set, the demo.

``python -m figures compare``, ``contact-sheet`` and ``demo`` are the commands; ``figures.demo.demo`` is the demo's
function.
"""

import landscape.starting  # noqa: F401 - first: Ctrl-C is quiet from here on
from figures.comparison import Comparison, compare
from figures.images import contact_sheet

__all__ = ["Comparison", "compare", "contact_sheet"]
