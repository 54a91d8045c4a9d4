"""Locks: one process at a time writes a file or works in a folder, and says which process it is."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from landscape.errors import FedscapeError

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""How a file system says that it has no locks."""


class LockedError(FedscapeError):
    """Another process is writing; the work itself is not at fault."""


@dataclass(frozen=True)
class Owner:
    """The process that a lock file names.

    Attributes:
        process: its number.
        host: the machine it runs on.
        started: when it started, in clock ticks since the machine did; empty where the system does not tell. A process
            of the same number that started at another time is another one.
    """

    process: int
    host: str
    started: str

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        return cls(os.getpid(), socket.gethostname(), _started(os.getpid()))

    @classmethod
    def of(cls, text: str) -> Owner | None:
        """The one that a lock file's contents name; ``None`` where they name none."""
        words = text.split(" ")
        if len(words) != 3 or not words[0].isdigit():
            return None
        return cls(int(words[0]), words[1], words[2].strip())

    def __str__(self) -> str:
        return f"process {self.process} on host {self.host}"

    def runs(self) -> bool:
        """Whether it still runs; of another machine's it is not known, and taken for granted."""
        if self.host != socket.gethostname():
            return True
        return process_runs(self.process) and self.started == _started(self.process)


def process_runs(number: int) -> bool:
    """Whether there is a process of this number on this machine.

    Example:
        >>> import os
        >>> from landscape.storage.lock import process_runs
        >>> process_runs(os.getpid())
        True
    """
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user's
        return True
    return True


@contextmanager
def sole_writer(path: Path, work: str = "", way_out: str = "give another file") -> Iterator[None]:
    """Inside, no other process can be in ``sole_writer`` for ``path``.

    The system releases the lock of a killed process.  The lock is on ``.NAME.lock`` in the same folder (that of the
    file a symbolic link leads to), because the file itself is replaced by each write; it holds the number of the
    process, its host and when it started.  On a file system without locks these alone decide, so that two processes
    that begin in the same instant are not told apart.

    Args:
        path: what is written, there or not.
        work: what the process does, for the message to another one; that it is writing ``path`` unless given.
        way_out: what somebody else can do instead of waiting.

    Raises:
        LockedError: another process has the lock.
        FedscapeError: the folder cannot be written.
    """
    path = Path(os.path.realpath(path))
    lock = path.with_name(f".{path.name}.lock")
    claim = _claimed(path, lock, work or f"is writing {path}", way_out)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        claim.close()


def _claimed(path: Path, lock: Path, work: str, way_out: str) -> TextIO:
    """The lock file, locked and with this process's name in it."""
    while True:
        try:
            claim = open(lock, "a+", encoding="utf-8")  # noqa: SIM115 - held while the caller works
        except OSError as error:
            raise FedscapeError(f"cannot write {path}: {error.strerror or error}") from error
        claim.seek(0)
        owner = Owner.of(claim.read())
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
            raise LockedError(f"{owner or 'another process'} {work}: wait until it has ended, or {way_out}") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                claim.close()
                raise FedscapeError(f"cannot lock {path}: {error.strerror}") from error
            if owner is not None and owner.runs():
                claim.close()
                raise LockedError(
                    f"{owner} {work}, as {lock} says: wait until it has ended, or {way_out}; if it has ended, remove "
                    "that file, as this file system has no locks that would tell"
                ) from None
        # A process that ended in the meantime may have removed the locked file.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(lock), os.fstat(claim.fileno())):
                break
        claim.close()
    here = Owner.here()
    claim.truncate(0)
    claim.write(f"{here.process} {here.host} {here.started}\n")
    claim.flush()
    return claim


def _started(process: int) -> str:
    """When a process started, in clock ticks since the machine did; empty where the system has no ``/proc``."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]  # the name before it may have blanks
    except (OSError, IndexError):
        return ""
