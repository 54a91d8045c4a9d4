"""Processes of their own that start at once: forked from a server that has loaded the libraries.

A new Python takes two seconds to load PyTorch; these take a few hundredths.  They share nothing with the tests' own
process, nor with each other.  Where the start itself is tested, a new Python is started nevertheless.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        *("torch.distributed", "scipy.interpolate", "sklearn.datasets"),
        *("analysis.surface", "analysis.hessian", "trainers.__main__"),
    ]
)

PATIENCE = timedelta(seconds=600)
"""Of tests for what must come: a loaded machine may take minutes over it."""


@dataclass
class Forked:
    """A process that was started.

    Attributes:
        lines: what it prints, on standard output and standard error.
    """

    process: Any
    lines: TextIO

    def kill(self) -> int:
        """End it with SIGKILL; returns how it ended, as :meth:`wait`."""
        self.process.kill()
        return self.wait()

    def wait(self) -> int:
        """Its exit status; the number of the signal that ended it, negative."""
        self.process.join()
        self.lines.close()
        return int(self.process.exitcode)


def start_process(action: Callable[..., Any], *arguments: Any) -> Forked:
    """Call a module's function in a process of its own."""
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_act, args=(theirs, action, arguments))
    process.start()
    theirs.close()
    return Forked(process, os.fdopen(os.dup(ours.fileno()), encoding="utf-8"))


def run_process(action: Callable[..., Any], *arguments: Any) -> tuple[int, str]:
    """The same, waiting for its end: the exit status and what it printed."""
    forked = start_process(action, *arguments)
    printed = forked.lines.read()
    return forked.wait(), printed


def python(text: str, *arguments: object) -> None:
    """For :func:`start_process` and :func:`run_process`: what ``python -c TEXT ARGUMENTS`` does."""
    sys.argv = ["-c", *map(str, arguments)]
    exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})


def run_ranks(target: Callable[..., None], world: int, *arguments: Any, seconds: float) -> None:
    """Call ``target(rank, world, *arguments)`` in so many processes; their errors are raised here."""
    started = mp.start_processes(target, (world, *arguments), nprocs=world, join=False, start_method="forkserver")
    ended = any(started.join(seconds) for _ in range(world))
    for process in started.processes:
        process.kill()
    assert ended, "ranks wait for one another"


@contextmanager
def group_of(rank: int, world: int, file: str | Path) -> Iterator[None]:
    """Inside, this process is a rank of a group of gloo's, which meets in a file.

    Its processes leave together: one that closes its connections while another has not yet come out of the start, or of
    a last sum, ends that one's with "Connection closed by peer", and a busy machine makes that likely.  The file is
    left to whoever made its folder: with a number of ranks PyTorch would remove it when so many had let go of it.
    """
    store = dist.FileStore(str(file))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=PATIENCE)
    yield
    store.set(f"done/{rank}", "")
    store.wait([f"done/{other}" for other in range(world)], PATIENCE)
    dist.destroy_process_group()


def as_rank(rank: int, world: int, port: int, action: Callable[..., Any], *arguments: Any) -> None:
    """For :func:`start_process`: call the action with the variables that torchrun sets."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    action(*arguments)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _act(output: Connection, action: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    output.close()
    torch.set_num_threads(1)
    action(*arguments)
