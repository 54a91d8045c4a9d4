"""Points measured by several processes: forked or spawned ones on one machine, or the ranks of ``torchrun``."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Protocol

import torch

from landscape import FedscapeError
from landscape.compute.devices import cpu_threads
from landscape.compute.distributed import apart, rank_and_world, sum_over_ranks
from landscape.compute.memory import keep_freed_memory
from landscape.terminal.pools import begin_no_pool_in_a_pool, not_begun
from landscape.terminal.stopping import deaf, deferring

Place = tuple[float, float]
Values = dict[str, float]

_AT_A_TIME = 0.3
"""Seconds of work that a process is given at once, if a point takes less."""
_PR_SET_PDEATHSIG = 1  # of Linux's prctl.h


class Measuring(Protocol):
    """An object that measures quantities at a point, such as :class:`analysis.surface.points.Points`."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the quantities."""
        ...

    @property
    def device(self) -> torch.device:
        """The device it computes on."""
        ...

    def measure(self, x: float, y: float) -> Values:
        """The quantities at (x, y), by name."""
        ...


def workers_for(device: torch.device, wanted: int | None = None, *, gradients: bool = False) -> int:
    """How many processes measure: unless given, as many as PyTorch has threads; one on a GPU and on a rank.

    On a system that cannot fork safely (Windows, macOS) there is one unless given: spawned ones take seconds to start,
    and each has a copy of the data.

    With ``gradients`` there is one on any machine with a GPU, whatever the device: PyTorch's autograd, once used, has
    threads for the GPU there, which a forked process lacks.

    Raises:
        FedscapeError: fewer than one, or several on a GPU or under ``torchrun``.
    """
    alone = device.type == "cuda" or rank_and_world()[1] > 1
    threads = gradients and torch.cuda.is_available()
    if wanted is None:
        return 1 if alone or threads or not _can_fork() else torch.get_num_threads()
    if wanted < 1:
        raise FedscapeError(f"{wanted} workers are asked for: give 1 or more")
    if wanted > 1 and alone:
        raise FedscapeError(
            f"{wanted} workers are asked for: on a GPU, and under torchrun, each process measures by itself; "
            "start as many processes as there are GPUs with torchrun"
        )
    if wanted > 1 and threads:
        raise FedscapeError(
            f"{wanted} workers are asked for: forked processes cannot measure λ_max on a machine with a GPU, leave out "
            "--workers"
        )
    return wanted


class Workers:
    """Measures points one after the other, or several at a time.

    Several processes are forked from this one, so that all share the data's memory, or spawned where the system cannot
    fork; each computes with one thread, so that a point's values do not depend on how many there are.  The ranks of a
    process group take turns at the points, each over all samples, and all get all values.

    Args:
        points: what is measured.
        processes: how many (:func:`workers_for`).
    """

    def __init__(self, points: Measuring, processes: int = 1) -> None:
        self._points, self._processes = points, processes

    @contextmanager
    def started(self) -> Iterator[Workers]:
        """Inside, points can be measured.

        Raises:
            FedscapeError: processes are to be spawned, and what is measured cannot be sent to them, or a script asks
                for them outside of ``if __name__ == "__main__":``.
        """
        if self._processes == 1:
            yield self
            return
        before = set(multiprocessing.active_children())
        if _can_fork():
            fork = multiprocessing.get_context("fork")
            self._pool = ProcessPoolExecutor(self._processes, fork, _begin_forked, (self._points, os.getpid()))
        else:
            begin_no_pool_in_a_pool()
            spawn, sent = multiprocessing.get_context("spawn"), _pickled(self._points, self._processes)
            self._pool = ProcessPoolExecutor(self._processes, spawn, _begin_spawned, (sent,))
        try:
            try:
                with deferring() as stop:  # a pool that is half started can be neither used nor shut down
                    self._pool.submit(_nothing).result()  # forks, before a progress bar has its thread
                stop.now()
            except BrokenProcessPool:
                raise not_begun("workers") from None
            yield self
        except BaseException:
            for child in set(multiprocessing.active_children()) - before:
                child.kill()  # nobody waits for the points it is at, and it does not hear SIGTERM
            raise
        finally:
            self._pool.shutdown(cancel_futures=True)

    def measure(self, places: Sequence[Place]) -> Iterator[tuple[int, Values]]:
        """Measure places; yield the number of each and its quantities, in the order in which they are finished.

        Raises:
            FedscapeError: a process was killed, or what measuring a point raises.
        """
        if rank_and_world()[1] > 1:
            yield from self._over_ranks(places)
        elif self._processes == 1 or len(places) == 1:
            yield from self._here(places)
        else:
            try:
                yield from self._over_processes(places)
            except BrokenProcessPool:
                raise FedscapeError(
                    "a worker process was killed, as the system does where memory runs out: what was measured is kept; "
                    "give fewer --workers"
                ) from None

    def _here(self, places: Sequence[Place]) -> Iterator[tuple[int, Values]]:
        # With one thread where processes have one: the values are the same.
        with cpu_threads(1 if self._processes > 1 else None):
            for k, place in enumerate(places):
                yield k, self._points.measure(*place)

    def _over_processes(self, places: Sequence[Place]) -> Iterator[tuple[int, Values]]:
        running: dict[Future[tuple[list[Values], float]], int] = {}
        start, each = 0, 1
        while start < len(places) or running:
            while start < len(places) and len(running) < 2 * self._processes:
                running[self._pool.submit(_measure, places[start : start + each])] = start
                start += each
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                first = running.pop(future)
                found, seconds = future.result()
                for k, values in enumerate(found):
                    yield first + k, values
                fair = (len(places) - start) // (2 * self._processes)
                each = max(1, min(int(_AT_A_TIME * len(found) / max(seconds, 1e-6)), fair))

    def _over_ranks(self, places: Sequence[Place]) -> Iterator[tuple[int, Values]]:
        (rank, world), names = rank_and_world(), self._points.names
        start, each = 0, 1
        while start < len(places):
            stop = min(start + each * world, len(places))
            # The last row has the seconds: all ranks must choose the same number of points next.
            table = torch.zeros(stop - start + 1, len(names), dtype=torch.float64)
            before = time.perf_counter()
            with apart():
                for k in range(start + rank, stop, world):
                    values = self._points.measure(*places[k])
                    table[k - start] = torch.tensor([values[name] for name in names], dtype=torch.float64)
            table[-1, 0] = time.perf_counter() - before
            table = sum_over_ranks(table.to(self._points.device)).cpu()
            for k, row in enumerate(table[:-1].tolist()):
                yield start + k, dict(zip(names, row, strict=True))
            each = max(1, int(_AT_A_TIME * (stop - start) / max(float(table[-1, 0]), 1e-6)))
            start = stop


_mine: Measuring
"""In a process of the pool: the measuring object of its parent."""


def _begin_forked(points: Measuring, parent: int) -> None:
    # A parent that is killed takes its processes, and the files they have open, with it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    _begin(points)


def _begin_spawned(points: bytes) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _begin(pickle.loads(points))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _pickled(points: Measuring, processes: int) -> bytes:
    """Pickle by the standard library: as PyTorch does it, all processes would share and move the same module."""
    try:
        return pickle.dumps(points)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise FedscapeError(
            f"{processes} workers are asked for, and what is measured cannot be sent to them ({error}): leave out "
            "--workers"
        ) from error


def _begin(points: Measuring) -> None:
    global _mine
    _mine = points
    deaf()
    torch.set_num_threads(1)
    keep_freed_memory()


def _nothing() -> None:
    pass


def _measure(places: Sequence[Place]) -> tuple[list[Values], float]:
    start = time.perf_counter()
    found = [_mine.measure(*place) for place in places]
    return found, time.perf_counter() - start


def _can_fork() -> bool:
    # On macOS, forked processes may not use the system's frameworks, on which its linear algebra rests.
    return sys.platform.startswith("linux")
