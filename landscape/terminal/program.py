"""What a command is called: ``fedscape hessian`` or ``python -m analysis.hessian``, as the user started it."""

from __future__ import annotations

import re

COMMANDS = {
    "train": "trainers",
    "runs": "trainers report",
    "algorithms": "trainers list",
    "partition": "trainers partition",
    "hessian": "analysis.hessian",
    "surface": "analysis.surface",
    "corruptions": "analysis.corruptions",
    "compare": "figures compare",
    "report": "figures report",
    "sweep": "figures sweep",
    "figures": "figures",
    "demo": "figures demo",
    "data": "landscape.data",
}
"""The commands of ``fedscape``, and what follows ``python -m`` in their other form."""

_BY_MODULE = sorted(((f"python -m {words}", f"fedscape {name}") for name, words in COMMANDS.items()), reverse=True)
_started_as_fedscape = False


def started_as_fedscape(yes: bool = True) -> None:
    """Say that the user typed ``fedscape``: help and messages then speak of it."""
    global _started_as_fedscape
    _started_as_fedscape = yes


def spoken(text: str) -> str:
    """A text that names commands as ``python -m ...``, with the names that the user has typed.

    Example:
        >>> from landscape.terminal.program import spoken, started_as_fedscape
        >>> spoken("see python -m trainers report --help")
        'see python -m trainers report --help'
        >>> started_as_fedscape()
        >>> spoken("see python -m trainers report --help"), spoken("python -m trainers fedavg")
        ('see fedscape runs --help', 'fedscape train fedavg')
        >>> started_as_fedscape(False)
    """
    if _started_as_fedscape:
        for module, ours in _BY_MODULE:
            text = re.sub(rf"{re.escape(module)}(?![\w.])", ours, text)
    return text
