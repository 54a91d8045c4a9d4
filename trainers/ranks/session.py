"""The ranks of one run: who they are, what they agree on, and how they end together."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from landscape.compute.distributed import (
    RanksLostError,
    apart,
    joined,
    leave_reports_to_first,
    may_tell,
    rank_and_world,
)
from landscape.errors import FedscapeError, said_by
from landscape.terminal.stopping import EXIT_INTERRUPTED, StoppedError
from trainers.ranks.links import END, FOREVER, GRACE, Link, end_at_once, this_process
from trainers.ranks.messages import Message, packed

EXIT_LOST = 2
_SWITCH = 5e-4
"""Seconds after which a thread that computes lets one go on that has received something; Python's 5 ms are a round."""
_RESUME = "the last checkpoint is whole, and the same command with --resume goes on from it"


class Ranks:
    """The processes that train one run: the first decides and writes, the others compute what it asks for.

    Args:
        rank, world: the number of this process, and how many there are; a single one sends nothing.
        device: of this process.

    Example:
        >>> import torch
        >>> from trainers.ranks import Ranks
        >>> alone = Ranks(0, 1, torch.device("cpu"))
        >>> alone.agreed(lambda: "what the first rank finds"), alone.bytes
        ('what the first rank finds', 0)
    """

    def __init__(self, rank: int, world: int, device: torch.device) -> None:
        self.rank, self.world, self.device = rank, world, device
        self._links: dict[int, Link] = {}
        self._processes: dict[int, str] = {}
        self._group: dist.ProcessGroup | None = None
        self._ending: tuple[int, Message | None] | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._switch = sys.getswitchinterval()

    @property
    def others(self) -> range:
        """The ranks that this one is linked with: all others for the first, the first alone for the others."""
        return range(1, self.world) if self.rank == 0 else range(1)

    @property
    def bytes(self) -> int:
        """What this rank has sent and received, in bytes; for the first, all that the ranks have exchanged."""
        return sum(link.sent + link.received for link in self._links.values())

    def open(self) -> None:
        """Link the ranks; every rank must call it."""
        leave_reports_to_first(None)
        self._switch = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH)
        self._group = dist.new_group(backend="gloo", timeout=FOREVER)
        self._links = {other: Link(self._group, other, self._broken) for other in self.others}
        self.send_all(Message("hello", {"process": this_process()}))
        for other in self.others:
            self._processes[other] = self.receive(other).facts["process"]

    def send(self, other: int, message: Message) -> None:
        """Send a message to a rank; returns at once.

        Raises:
            FedscapeError: the run cannot go on, as another rank has failed or is gone.
            StoppedError: another rank was stopped.
        """
        self._check()
        self._links[other].send(message)

    def send_all(self, message: Message) -> None:
        """Send a message to all others; raises as :meth:`send`."""
        self._check()
        row = packed(message)
        for link in self._links.values():
            link.send_row(row)

    def ready(self, other: int) -> bool:
        """Whether a message of a rank is there; raises as :meth:`send`."""
        self._check()
        return self._links[other].ready()

    def receive(self, other: int = 0) -> Message:
        """The next message of a rank; raises as :meth:`send`."""
        self._check()
        message = self._links[other].receive()
        self._check()
        if message is None:
            raise RanksLostError(f"rank {other} has ended before the run did")
        return message

    def agreed(self, make: Callable[[], Any]) -> Any:
        """What ``make`` gives on the first rank, on all ranks; every rank must call it; raises as :meth:`send`."""
        if self.rank:
            return self.receive().facts["agreed"]
        found = make()
        if self.world > 1:
            self.send_all(Message("agreed", {"agreed": found}))
        return found

    def require_same(self, what: str, value: str) -> None:
        """Refuse ranks that differ in something; every rank must call it.

        Raises:
            FedscapeError: on the first rank, another one has a value of its own; else as :meth:`send`.
        """
        if self.rank:
            self.send(0, Message("same", {"value": value}))
            return
        for other in self.others if self.world > 1 else ():
            if (theirs := self.receive(other).facts["value"]) != value:
                raise FedscapeError(
                    f"rank {other} ({self._processes[other]}) has {what} {theirs} and rank 0 {value}: give all ranks "
                    "the same data, code and versions"
                )

    def leave(self, error: BaseException | None) -> None:
        """Say this rank's last word, and wait for the others'.

        Args:
            error: why the run cannot go on; ``None`` at its end.

        Raises:
            FedscapeError, StoppedError: the reason of another rank, in place of ``error`` that follows from it.
        """
        with self._lock:
            ending = self._ending
            self._ending = self._ending or (self.rank, None)  # what comes from now on is no reason any more
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if ending is not None and ending[1] is not None and str(error) == ending[1].facts.get("told"):
            ending = None  # what all ranks fail with is no rank's own
        word = Message(END, _why(error) if error is not None and ending is None else {"why": "done"})
        for link in self._links.values():
            link.send(word)
        closed = [link.close() for link in self._links.values()]
        sys.setswitchinterval(self._switch)
        if self._group is not None and all(closed):
            dist.destroy_process_group(self._group)
        if self._links and (error is not None or ending is not None):
            gone = ending is not None and ending[1] is None
            leave_reports_to_first(self.rank == 0 and not gone)
        # The links hold this object: in that cycle a group's connections and threads would outlive the run.
        self._links, self._group = {}, None
        if ending is not None:
            raise self._reason(*ending) from error

    def _check(self) -> None:
        if self._ending is not None:
            raise self._reason(*self._ending)

    def _reason(self, other: int, word: Message | None) -> FedscapeError | StoppedError:
        """Why the run cannot go on."""
        if word is None:
            return RanksLostError(self._lost(other))
        if word.facts["why"] == "stopped":
            return StoppedError(word.facts["signal"], word.facts["hint"], word.facts["where"])
        told = word.facts["told"]
        return RanksLostError(told) if self.rank else FedscapeError(f"rank {other}: {told}")

    def _lost(self, other: int) -> str:
        named = f" ({self._processes[other]})" if other in self._processes else ""
        return f"rank {other} of {self.world}{named} has ended without a word, as if it was killed: {_RESUME}"

    def _broken(self, other: int, word: Message | None) -> None:
        """In a listening thread: a rank is gone, or says that the run cannot go on."""
        with self._lock:
            if self._ending is not None:
                return
            self._ending = (other, word)
            code = _code(word)
            self._timer = threading.Timer(GRACE, self._end, (other, word, code))
            self._timer.daemon = True
            self._timer.start()
        if word is None and may_tell(self.rank):
            _print(self._lost(other))
        for rank, link in self._links.items():
            if self.rank == 0 and rank != other:
                link.send(Message(END, _why(self._reason(other, word))))
            link.interrupt()

    def _end(self, other: int, word: Message | None, code: int) -> None:
        """The program had its time to end by itself."""
        if self.rank == 0 and word is not None:
            _print(str(self._reason(other, word)))
        end_at_once(code)


@contextmanager
def joined_ranks(device: str | torch.device = "auto") -> Iterator[Ranks]:
    """Inside, this process is one of the ranks that ``torchrun`` (or what sets its variables) started, or alone.

    Where one rank fails, is stopped or is gone, all end: within :data:`trainers.ranks.links.GRACE` seconds.

    Raises:
        FedscapeError: as :func:`landscape.compute.distributed.start_from_environment`; another rank has failed.
        StoppedError: another rank was stopped.
    """
    with joined(device) as place:
        ranks = Ranks(*rank_and_world(), place)
        try:
            if ranks.world > 1:
                ranks.open()
            with apart():  # the landscape of the test data is the first rank's alone
                yield ranks
        except BaseException as error:
            ranks.leave(error)
            raise
        ranks.leave(None)


def _why(error: BaseException) -> dict[str, Any]:
    """The facts of a last message: why this rank ends."""
    if isinstance(error, KeyboardInterrupt):
        stopped = error if isinstance(error, StoppedError) else StoppedError(signal.SIGINT)
        return {"why": "stopped", "signal": int(stopped.signal), "hint": stopped.hint, "where": stopped.where}
    told = str(error) if isinstance(error, FedscapeError) else said_by(error)
    return {"why": "failed", "told": told}


def _code(word: Message | None) -> int:
    if word is None or word.facts["why"] != "stopped":
        return EXIT_LOST
    return StoppedError(word.facts["signal"], word.facts["hint"] or _RESUME).code or EXIT_INTERRUPTED


def _print(sentence: str) -> None:
    sys.stderr.write(f"error: {sentence}\n")
    sys.stderr.flush()
