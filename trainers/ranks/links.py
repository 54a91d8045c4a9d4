"""Links between the first rank and each of the others, which are heard at any moment, whatever the program does."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from trainers.ranks.messages import Message, packed, unpacked

FOREVER = timedelta(days=3650)
"""A rank waits as long as another one works; whether that one still lives is told by its connection."""
GRACE = 5.0
"""Seconds that a rank has to end by itself once the run cannot go on; then it is ended where it stands."""
END = "end"
"""The last message of either side; its facts say why: ``done``, ``stopped`` or ``failed``."""
_HEAD = 8
"""Bytes that tell a message's length."""
ROOM = 1 << 28
"""Bytes of messages that wait to be read: with so few it is heard at once that a rank has ended."""


class Link:
    """The connection of this rank to another one: a thread that sends, and one that always listens.

    So neither side waits for the other's arithmetic, and a rank whose process ends without a word is missed at once.

    Args:
        group: of gloo; its tensors are in host memory.
        peer: the other rank.
        broken: called in the listening thread when the connection ends before the other side's last message, or that
            message says that the run cannot go on; with that message or ``None``.

    Attributes:
        sent, received: bytes so far, counted from the tensors that gloo was given.
        said: the other side's last message; ``None`` before it.
    """

    def __init__(self, group: dist.ProcessGroup, peer: int, broken: Callable[[int, Message | None], None]) -> None:
        self._group, self._peer, self._broken = group, peer, broken
        self.sent = self.received = 0
        self.said: Message | None = None
        self._inbox = Inbox()
        self._outbox: queue.Queue[Tensor | None] = queue.Queue()
        self._threads = [threading.Thread(target=act, daemon=True) for act in (self._listen, self._talk)]
        for thread in self._threads:
            thread.start()

    def send(self, message: Message) -> None:
        """Send a message; returns at once."""
        self.send_row(packed(message), last=message.kind == END)

    def send_row(self, row: Tensor, *, last: bool = False) -> None:
        """Send a message that is packed already (for several ranks once)."""
        self.sent += _HEAD + row.numel()
        self._outbox.put(row)
        if last:
            self._outbox.put(None)

    def ready(self) -> bool:
        """Whether :meth:`receive` would not wait."""
        return self._inbox.ready()

    def receive(self) -> Message | None:
        """The next message; ``None`` where there will be none."""
        return self._inbox.take()

    def interrupt(self) -> None:
        """Whoever waits for a message, or comes to, gets none."""
        self._inbox.close()

    def close(self) -> bool:
        """Wait until both sides have said their last, for :data:`GRACE` seconds; whether they have."""
        self._inbox.close()
        until = time.monotonic() + GRACE
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _talk(self) -> None:
        while (row := self._outbox.get()) is not None:
            try:
                dist.send(torch.tensor([row.numel()]), self._peer, self._group)
                dist.send(row, self._peer, self._group)
            except RuntimeError:
                return  # the listening thread misses the other side, too

    def _listen(self) -> None:
        size = torch.zeros(1, dtype=torch.int64)
        while self.said is None:
            try:
                dist.recv(size, self._peer, self._group)
                row = torch.empty(int(size), dtype=torch.uint8)
                dist.recv(row, self._peer, self._group)
            except RuntimeError:
                self._outbox.put(None)
                self._broken(self._peer, None)
                break
            self.received += _HEAD + row.numel()
            message = unpacked(row)
            if message.kind == END:
                self.said = message
                if message.facts["why"] != "done":
                    self._broken(self._peer, message)
            else:
                self._inbox.put(message, row.numel())
        self._inbox.close()


class Inbox:
    """Messages that have come, up to :data:`ROOM` bytes: what is sent beyond stays with its sender."""

    def __init__(self) -> None:
        self._messages: deque[tuple[Message, int]] = deque()
        self._bytes, self._closed = 0, False
        self._changed = threading.Condition()

    def put(self, message: Message, size: int) -> None:
        """Add a message, once there is room."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._messages or self._bytes + size <= ROOM)
            self._messages.append((message, size))
            self._bytes += size
            self._changed.notify_all()

    def take(self) -> Message | None:
        """The first message; ``None`` once it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._messages))
            if not self._messages:
                return None
            message, size = self._messages.popleft()
            self._bytes -= size
            self._changed.notify_all()
            return message

    def ready(self) -> bool:
        """Whether :meth:`take` would not wait."""
        return self._closed or bool(self._messages)

    def close(self) -> None:
        """No more messages come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def this_process() -> str:
    """The process and its machine, for a sentence that names a rank."""
    return f"process {os.getpid()} on host {socket.gethostname()}"


def end_at_once(code: int) -> None:
    """End the process where it stands: what it writes is written whole or not at all."""
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")  # a progress bar hides the cursor
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
