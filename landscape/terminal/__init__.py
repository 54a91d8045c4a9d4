"""The terminal: parsing of command lines, error messages, progress, tables."""

from landscape.terminal.command import EXIT_BAD_INPUT, EXIT_DIVERGED, EXIT_INTERRUPTED, parse, run
from landscape.terminal.progress import Progress
from landscape.terminal.table import Table

__all__ = [
    "EXIT_BAD_INPUT",
    "EXIT_DIVERGED",
    "EXIT_INTERRUPTED",
    "Progress",
    "Table",
    "parse",
    "run",
]
