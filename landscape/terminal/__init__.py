"""The terminal: parsing of command lines, error messages, progress, tables."""

from landscape.terminal.command import parse, run
from landscape.terminal.progress import Progress
from landscape.terminal.table import Table

__all__ = [
    "Progress",
    "Table",
    "parse",
    "run",
]
