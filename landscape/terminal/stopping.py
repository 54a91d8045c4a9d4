"""Stopping a command: Ctrl-C, SIGTERM and SIGUSR1 (schedulers that need the machine), and what continues.

Inside :func:`listening`, which :func:`landscape.terminal.command.run` enters, SIGTERM and SIGUSR1 end the command as
Ctrl-C does, by an exception that cleans up on its way.  Work that keeps a state says how it goes on
(:func:`continuing`): the command then exits with :data:`EXIT_STOPPED`, which a job script can test.  Work that may only
stop between two steps waits for that (:func:`deferring`).  A second signal ends the process at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from landscape.terminal import starting

EXIT_INTERRUPTED = 130
EXIT_STOPPED = 75
"""A scheduler's signal stopped the command, and the same command goes on where it was: EX_TEMPFAIL of sysexits.h."""

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_AGAIN = 0.02
"""Seconds after which a signal is sent again that Python dropped."""


class StoppedError(KeyboardInterrupt):
    """A signal ended the work; as for Ctrl-C, what catches errors does not catch it.

    Attributes:
        signal: which.
        hint: how the work goes on; empty where nothing is kept.
        where: how far it was, such as ``after round 12``.
    """

    def __init__(self, number: int, hint: str = "", where: str = "") -> None:
        super().__init__()
        self.signal, self.hint, self.where = signal.Signals(number), hint, where

    def __str__(self) -> str:
        stopped = "interrupted" if self.signal == signal.SIGINT else f"stopped by {self.signal.name}"
        told = f"{stopped} {self.where}".rstrip()
        return f"{told}: {self.hint}" if self.hint else told

    @property
    def code(self) -> int:
        """The command's exit code: 130 after Ctrl-C; :data:`EXIT_STOPPED` where the same command goes on; else 128 and
        the signal's number, as a shell has it.

        Example:
            >>> import signal
            >>> from landscape.terminal.stopping import StoppedError
            >>> StoppedError(signal.SIGTERM).code, StoppedError(signal.SIGTERM, "the same command continues").code
            (143, 75)
        """
        if self.signal == signal.SIGINT:
            return EXIT_INTERRUPTED
        return EXIT_STOPPED if self.hint else 128 + self.signal


class Stop:
    """What was asked for while the work could not stop.

    Attributes:
        asked: the signal; ``None`` while there was none.
    """

    asked: int | None = None

    def now(self, where: str = "", hint: str = "") -> None:
        """Stop, if it was asked for.

        Args:
            where: how far the work is.
            hint: how it goes on.

        Raises:
            StoppedError: it was.
        """
        if self.asked is not None:
            raise StoppedError(self.asked, hint, where)


_waiting: list[Stop] = []
"""Those who wait for a moment in which they can stop, the innermost last."""


def ask_to_stop(number: int) -> bool:
    """Ask work that waits for a moment to stop in, as a signal of this number does; whether there is such work."""
    for stop in _waiting:
        stop.asked = number
    return bool(_waiting)


@contextmanager
def deferring() -> Iterator[Stop]:
    """Inside, SIGTERM and SIGUSR1 are noted, and the work looks at :attr:`Stop.asked` where it can stop."""
    stop = Stop()
    _waiting.append(stop)
    try:
        yield stop
    finally:
        _waiting.remove(stop)


@contextmanager
def continuing(hint: str) -> Iterator[None]:
    """Inside, a state is kept: whatever stops the work is told together with how it goes on.

    Raises:
        StoppedError: in place of the KeyboardInterrupt that ends the work.
    """
    try:
        yield
    except StoppedError as stopped:
        raise StoppedError(stopped.signal, stopped.hint or hint, stopped.where) from None
    except KeyboardInterrupt:
        raise StoppedError(signal.SIGINT, hint) from None


@contextmanager
def listening() -> Iterator[None]:
    """Inside, SIGTERM and SIGUSR1 stop the work in this process; one that the caller has ignored stays so.

    Outside of the main thread, where Python hears no signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    again: list[threading.Timer] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if heard:  # the second one: whoever sends it does not want to wait
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        heard.append(number)
        if not ask_to_stop(number):
            raise StoppedError(number)

    def ignored(unraisable: sys.UnraisableHookArgs) -> None:
        # Python drops what is raised in a destructor or a weak reference's callback, and the work would go on.
        if not isinstance(stopped := unraisable.exc_value, KeyboardInterrupt):
            unraisable_before(unraisable)
            return
        heard.clear()
        number = stopped.signal if isinstance(stopped, StoppedError) else signal.SIGINT
        again.append(threading.Timer(_AGAIN, os.kill, (os.getpid(), number)))
        again[-1].daemon = True
        again[-1].start()

    unraisable_before, sys.unraisablehook = sys.unraisablehook, ignored
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    for number in ours:
        signal.signal(number, hear)
    if signal.getsignal(signal.SIGINT) is starting.end:  # the libraries are loaded
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for timer in again:
            timer.cancel()
        for number in ours:
            signal.signal(number, before[number] or signal.SIG_DFL)
        sys.unraisablehook = unraisable_before


def deaf() -> None:
    """In a process of a pool: its parent hears the signals, and ends it."""
    for number in (signal.SIGINT, *_SIGNALS):
        signal.signal(number, signal.SIG_IGN)


def told(stopped: KeyboardInterrupt) -> int:
    """Print why the work ended, in one sentence (of torchrun's ranks the first alone); the exit code."""
    if not isinstance(stopped, StoppedError):
        stopped = StoppedError(signal.SIGINT)
    if os.environ.get("RANK", "0") == "0":
        print(stopped, file=sys.stderr)
    return stopped.code
