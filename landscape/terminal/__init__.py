"""The terminal: parsing of command lines, error messages, progress, tables."""

from typing import TYPE_CHECKING

from landscape.lazy import lazily

if TYPE_CHECKING:
    from landscape.terminal.command import EXIT_BAD_INPUT, EXIT_DIVERGED, parse, run
    from landscape.terminal.progress import Progress
    from landscape.terminal.stopping import EXIT_INTERRUPTED, EXIT_STOPPED
    from landscape.terminal.table import Table
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "EXIT_BAD_INPUT": "landscape.terminal.command",
            "EXIT_DIVERGED": "landscape.terminal.command",
            "EXIT_INTERRUPTED": "landscape.terminal.stopping",
            "EXIT_STOPPED": "landscape.terminal.stopping",
            "Progress": "landscape.terminal.progress",
            "Table": "landscape.terminal.table",
            "parse": "landscape.terminal.command",
            "run": "landscape.terminal.command",
        },
    )

__all__ = [
    "EXIT_BAD_INPUT",
    "EXIT_DIVERGED",
    "EXIT_INTERRUPTED",
    "EXIT_STOPPED",
    "Progress",
    "Table",
    "parse",
    "run",
]
