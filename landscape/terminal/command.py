"""Parse command lines with tyro, print errors in one sentence, return exit codes."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from landscape.compute.distributed import RanksLostError, report_failure
from landscape.errors import FedscapeError
from landscape.storage.schema import printable

T = TypeVar("T")

EXIT_BAD_INPUT = 2
EXIT_DIVERGED = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
"""As a shell reports a program that SIGPIPE ended."""


def _sentence(box: str) -> str:
    """The first paragraph below the title of tyro's error box, as one line.

    The box is drawn with ``│`` and ``─``, or with blanks and ``-`` if stdout is not UTF-8.
    """
    words: list[str] = []
    for line in box.strip("\n").splitlines()[1:]:
        text = line.strip("│ ")
        if text.strip("─-╰╯"):
            words.append(text)
        elif words:
            break
    return _in_plain_words(re.sub(r"\s+", " ", " ".join(words)))


def _in_plain_words(sentence: str) -> str:
    """Tyro's sentence about an option that may have values of several types, without its notation for them."""
    found = re.fullmatch(r"Error parsing (\S+): no type matching (.+) could be instantiated from \[(.*)\]\.?", sentence)
    if found is None:
        return sentence
    option, types, given = found.groups()
    bare = [kind.strip("{}") for kind in types.split("|") if kind != "{None}"]
    wanted = [kind[1:-1] if kind.startswith("[") else kind for kind in bare]
    return f"{option} cannot be {given}: give {' or '.join(wanted)}"


def parse(parser: Callable[[], T], program: str) -> T:
    """Run a tyro parser; its error box becomes a :class:`FedscapeError` of one sentence."""
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            return parser()
    except SystemExit as exit_:
        message = stderr.getvalue()
        if exit_.code in (0, None) or not message:
            sys.stderr.write(message)
            raise
        sentence = _sentence(message) or message.strip()
        # The message of a dataclass that refused its own values (no --option, no POSITIONAL) is complete.
        own = re.sub(r"^Error parsing (?!-|[A-Z]+: )\S+: ", "", sentence)
        raise FedscapeError(own if own != sentence else f"{sentence} (see {program} --help)") from None


def run(main: Callable[[], Any]) -> int:
    """Run a command and return its exit code: 2, and one sentence on stderr, for an error of input or environment.

    Under ``torchrun`` a sentence that all ranks have in common is printed once
    (:func:`landscape.compute.distributed.report_failure`).
    """
    try:
        return main() or 0
    except FedscapeError as error:
        report_failure(
            "\n".join(printable(line, 10_000) for line in str(error).split("\n")),
            consequence=isinstance(error, RanksLostError),
        )
        return EXIT_BAD_INPUT
    except torch.OutOfMemoryError as error:
        report_failure(f"out of device memory, give a smaller --batch-size or --device cpu ({error})")
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        # Whoever read our output has ended, such as ``| head``; what is left in the buffer must not be written later.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
