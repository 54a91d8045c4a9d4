"""The exception for errors that the user can correct."""

import traceback

_PACKAGES = ("landscape", "trainers", "analysis", "figures")


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
