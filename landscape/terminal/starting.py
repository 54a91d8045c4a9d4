"""Ctrl-C while the libraries are being loaded: ends ``python -m ...`` without a traceback.

Each of our packages imports this first.  Loading PyTorch takes seconds, in which nothing has to be cleaned up.
"""

import os
import signal
import sys
import threading
from types import FrameType


def end(number: int, frame: FrameType | None) -> None:
    """What Ctrl-C does until a command listens to it."""
    os.write(2, b"interrupted\n")
    os._exit(130)


def quiet_start() -> None:
    """Until :func:`landscape.terminal.stopping.listening` is entered, Ctrl-C ends the process with one word.

    Only in the main thread of a process that handles Ctrl-C as Python does by itself.
    """
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, end)


if sys.argv[:1] == ["-m"]:  # Python is looking for the module that it was started with
    quiet_start()
