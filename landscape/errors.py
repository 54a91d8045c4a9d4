"""The exception for errors that the user can correct."""

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PACKAGES = ("landscape", "trainers", "analysis", "figures")
_BETWEEN = (*_PACKAGES, "torch", "importlib", "contextlib")
"""Packages whose lines say nothing of a user's own code."""
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
"""Where Python's own modules and installed packages lie, which a user's code may call."""


class FedscapeError(ValueError):
    """Bad input or an unusable environment; one sentence says what is wrong and what would be right.

    Command lines print the sentence and exit with code 2 (see :mod:`landscape.terminal.command`); notebooks show it
    below the user's own lines.
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of the traceback: the lines that led into these packages, and the sentence."""
        own = []
        for frame, line in traceback.walk_tb(self.__traceback__):
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if package in _PACKAGES:
                break
            if package != "IPython":
                own.append((frame, line))
        return [*traceback.StackSummary.extract(own).format(), f"{type(self).__name__}: {self}"]


def said_by(error: BaseException) -> str:
    """An error's kind and first line, and the line of the user's own code that it came from, where there is one.

    Example:
        >>> from landscape.errors import said_by
        >>> said_by(KeyError("images"))
        "KeyError: 'images'"
    """
    text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    lines = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _BETWEEN
    ]
    if not lines:
        return text
    file, line = ([each for each in lines if not each[0].startswith(_INSTALLED)] or lines)[-1]
    return f"{text} ({Path(file).name}, line {line})"


def comes_through(error: BaseException, kind: type) -> bool:
    """Whether an error came out of a user's own class: out of a module of it, or of one that it is made from."""
    own = {each.__module__ for each in kind.__mro__ if each.__module__.partition(".")[0] not in (*_BETWEEN, "builtins")}
    return any(frame.f_globals.get("__name__") in own for frame, _ in traceback.walk_tb(error.__traceback__))


@contextmanager
def running(what: str) -> Iterator[None]:
    """Inside, the user's own code runs: what it raises becomes one sentence.

    Args:
        what: who fails, such as ``the loader 'my:data'``.

    Raises:
        FedscapeError: what the code raises, of whatever kind.
    """
    try:
        yield
    except (FedscapeError, MemoryError):
        raise
    except Exception as error:  # the user's code may raise anything
        raise FedscapeError(f"{what} fails: {said_by(error)}") from error
