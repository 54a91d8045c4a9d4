"""Completion of ``fedscape`` by the shell: a script that knows every command and option, and starts no Python."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from landscape.errors import FedscapeError

SHELLS = ("bash", "zsh")

_SCRIPT = """\
# Completion of fedscape by {shell}, made by: fedscape completion {shell}
{before}_fedscape() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words="" before="${{COMP_WORDS[*]:1:COMP_CWORD-1}}"
    case "$before " in
{cases}
    esac
    case "$COMP_CWORD $word" in
        1*|*" -"*|"2 "*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
        *) COMPREPLY=() ;;
    esac
}}
complete -o default -F _fedscape fedscape
"""
_BEFORE = {"bash": "", "zsh": "autoload -U +X bashcompinit && bashcompinit\n"}


def script(shell: str, words: Mapping[str, Sequence[str]]) -> str:
    """What a shell's start-up file reads.

    Args:
        shell: bash or zsh.
        words: what may follow each beginning of a command line, such as ``hessian`` or ``train fedavg``; the empty one
            has the commands.  Where no word fits, the shell offers files.

    Raises:
        FedscapeError: another shell.

    Example:
        >>> from landscape.terminal.completion import script
        >>> "complete -o default -F _fedscape fedscape" in script("bash", {"": ["hessian"], "hessian": ["--top"]})
        True
    """
    if shell not in SHELLS:
        raise FedscapeError(f"there is no completion for '{shell}': give {' or '.join(SHELLS)}")
    # The longest beginning first, as the first that fits is taken.
    beginnings = sorted(words, key=lambda beginning: (-len(beginning.split()), beginning))
    cases = [
        f"        {shlex.quote(f'{beginning} '.lstrip())}*) words={shlex.quote(' '.join(words[beginning]))} ;;"
        for beginning in beginnings
    ]
    return _SCRIPT.format(shell=shell, before=_BEFORE[shell], cases="\n".join(cases))
