"""Pictures and tables from measured results: checkpoints compared on one sheet, images of a data set, the demo.

``python -m figures compare``, ``contact-sheet`` and ``demo`` are the commands; ``figures.demo.demo`` is the demo's
function.
"""

from typing import TYPE_CHECKING

import landscape.starting  # noqa: F401 - first: Ctrl-C is quiet from here on
from landscape.lazy import lazily

if TYPE_CHECKING:
    from figures.comparison import Comparison, compare
    from figures.images import contact_sheet
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Comparison": "figures.comparison",
            "compare": "figures.comparison",
            "contact_sheet": "figures.images",
        },
    )

__all__ = ["Comparison", "compare", "contact_sheet"]
