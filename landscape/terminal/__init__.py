"""The terminal: parsing of command lines, error messages, progress, tables."""

from landscape.terminal.command import EXIT_BAD_INPUT, EXIT_DIVERGED, parse, run
from landscape.terminal.progress import Progress
from landscape.terminal.stopping import EXIT_INTERRUPTED, EXIT_STOPPED
from landscape.terminal.table import Table

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
