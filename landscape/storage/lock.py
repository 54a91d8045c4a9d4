"""Locks: one process at a time writes a file."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from landscape.errors import FedscapeError


class LockedError(FedscapeError):
    """Another process is writing; the work itself is not at fault."""


@contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Inside, no other process can be in ``sole_writer`` for ``path``.

    The system releases the lock of a killed process.  The lock is on ``.NAME.lock`` in the same folder, because the
    file itself is replaced by each write.  On file systems without locks nothing is locked.

    Raises:
        LockedError: another process has the lock.
        FedscapeError: the folder cannot be written.
    """
    lock = path.with_name(f".{path.name}.lock")
    while True:
        try:
            claim = open(lock, "w")  # noqa: SIM115 - held while the caller works
        except OSError as error:
            raise FedscapeError(f"cannot write {path}: {error.strerror or error}") from error
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
            raise LockedError(
                f"another process is writing {path}: wait until it has ended, or give another file"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):
                claim.close()
                raise FedscapeError(f"cannot lock {path}: {error.strerror}") from error
        # A process that ended in the meantime may have removed the locked file.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(lock), os.fstat(claim.fileno())):
                break
        claim.close()
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        claim.close()
