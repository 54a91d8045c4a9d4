"""``fedscape COMMAND ...``: every command by one name, the same as the ``python -m`` forms.

Nothing but the command that is chosen is loaded, and a user's own ``analysis.py`` or ``trainers.py`` in the current
folder does not stand in for ours.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

HOME = Path(__file__).resolve().parent


def _ours_first() -> None:
    """Look for modules in the current folder after all others, so that algorithms and models there are found, too.

    Our own folder is before it: an editable installation has it in a finder alone, which is asked after the path.
    """
    here = os.path.realpath(os.getcwd())
    if here != str(HOME):
        sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != here]
        sys.path += [folder for folder in (str(HOME), here) if folder not in sys.path]


_OTHER_NAMES = {"list": "algorithms"}
_SHOWN = {"completion": "Print what a shell's start-up file reads to complete fedscape: completion bash, or zsh."}


def overview() -> str:
    """What ``fedscape --help`` says."""
    from landscape.terminal.guides import GUIDES
    from landscape.terminal.program import COMMANDS

    does = {name: GUIDES[f"python -m {words}"].does for name, words in COMMANDS.items()} | _SHOWN
    lines = [f"  {name:12} {told}" for name, told in does.items()]
    examples = """
  fedscape train fedavg --out runs/fedavg      train on the embedded digits
  fedscape hessian runs/fedavg --top 10        the Hessian's eigenvalues at its last model
  fedscape compare runs/fedavg runs/fedasam    two runs on one sheet"""
    return "\n".join(
        [
            "usage: fedscape COMMAND [...]",
            "",
            "Train with federated algorithms, measure how flat the minima are, draw the comparison.",
            examples,
            "",
            "commands:",
            *lines,
            "",
            "fedscape COMMAND --help has more, fedscape --version the version",
        ]
    )


def complete(shell: str) -> str:
    """The completion script of a shell.

    Raises:
        FedscapeError: a shell that there is none for.
    """
    from landscape.terminal.completion import script
    from landscape.terminal.options import options
    from landscape.terminal.program import COMMANDS

    words = {"": [*COMMANDS, *_SHOWN, "--help", "--version"], "completion": ["bash", "zsh"]}
    for name, other in COMMANDS.items():
        module = other.split()[0]
        begun = f"python -m {other}"
        for program, (kind, config) in importlib.import_module(f"{module}.__main__").kinds().items():
            if f"{program} ".startswith(f"{begun} "):
                given = [option for each in options(kind, config) for option in each.names]
                words[f"{name}{program[len(begun) :]}"] = [*given, "--help", "--help-all"]
                if program != begun:
                    words.setdefault(name, []).append(program[len(begun) + 1 :])
    return script(shell, words)


def main(arguments: Sequence[str]) -> int:
    """Do what a command line asks for; the exit code.

    Raises:
        FedscapeError: there is no such command, or its own errors.
    """
    from landscape.errors import FedscapeError
    from landscape.registry import unknown_name
    from landscape.terminal.command import EXIT_BAD_INPUT, alone
    from landscape.terminal.guides import GUIDES
    from landscape.terminal.program import COMMANDS

    if not arguments:
        print(overview(), file=sys.stderr)
        return EXIT_BAD_INPUT
    name, rest = _OTHER_NAMES.get(arguments[0], arguments[0]), list(arguments[1:])
    if name in ("-h", "--help", "--help-all"):
        print(overview())
    elif name == "--version":
        from landscape.version import __version__

        print(f"fedscape {__version__}")
    elif name == "completion":
        if len(rest) != 1:
            raise FedscapeError("give completion the shell: fedscape completion bash, or zsh")
        print(complete(rest[0]), end="")
    elif name not in COMMANDS:
        raise unknown_name("command", name, [*COMMANDS, *_SHOWN])
    else:
        module, *words = COMMANDS[name].split()
        guide = GUIDES[f"python -m {COMMANDS[name]}"]
        if not rest and guide.needs_arguments:
            alone(guide)  # without loading what would do it
        return int(importlib.import_module(f"{module}.__main__").command_line([*words, *rest]))
    return 0


def command_line(arguments: Sequence[str] | None = None) -> int:
    """The console script."""
    _ours_first()
    from landscape.terminal.starting import quiet_start

    quiet_start()
    from landscape.terminal.command import run
    from landscape.terminal.program import started_as_fedscape

    started_as_fedscape()
    return run(lambda: main(sys.argv[1:] if arguments is None else arguments))


if __name__ == "__main__":
    sys.exit(command_line())
