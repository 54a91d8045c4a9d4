"""Processes that a function starts from a script: each of them reads the script again, before its first task."""

from __future__ import annotations

import multiprocessing
import sys

from landscape.errors import FedscapeError


def begin_no_pool_in_a_pool() -> None:
    """Call this before processes are started: one that is only reading the script again ends here, without a word.

    Python would refuse to let it start processes of its own, with a long traceback; its parent, which waits for its
    first task, says what is wrong (:func:`not_begun`).
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself asks
        sys.exit(1)


def not_begun(option: str) -> FedscapeError:
    """The error of a pool none of whose processes came to a first task.

    Args:
        option: what asked for processes, as in "leave out ...".
    """
    return FedscapeError(
        "the worker processes could not start: each reads the script that asks for them again, so that what it does "
        f"must stand below `if __name__ == '__main__':`; put it there, or leave out {option}"
    )
