"""Make nodes: in this process, in several, or on Ray. Engines that exist are used; nothing here schedules."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Thread

import torch

from figures.graph.nodes import Node, runs_of, with_runs
from figures.graph.store import DIED, Place, Store, Unmade, attempt
from landscape.errors import FedscapeError
from landscape.terminal.pools import begin_no_pool_in_a_pool, not_begun
from landscape.terminal.progress import Progress
from landscape.terminal.stopping import deaf


@dataclass
class Outcome:
    """How the nodes of an execution ended.

    Attributes:
        done: those that are there now.
        made: how many of them were made here.
        failed: the reason of each that failed.
        busy: those that another process is making.
        blocked: those that were not begun, each with the run it needs that failed or is being made elsewhere.
    """

    done: list[Node] = field(default_factory=list)
    made: int = 0
    failed: dict[Node, str] = field(default_factory=dict)
    busy: dict[Node, str] = field(default_factory=dict)
    blocked: dict[Node, Node] = field(default_factory=dict)


_COLUMNS = 80
"""Of a line of progress."""
Finished = Generator[tuple[Node, Unmade | None], None, None]
"""Nodes as they end, each with the reason where it was not made."""


def execute(
    nodes: Iterable[Node],
    store: Store,
    place: Place | None = None,
    *,
    jobs: int = 1,
    ray: str | None = None,
    progress: bool = False,
    ended: Callable[[Node, str | None], None] = lambda node, reason: None,
) -> Outcome:
    """Make nodes with the runs they need; a failed one blocks only what depends on it.

    In this process they are made in their order, each measurement after the runs it needs; else all runs come first.

    Args:
        nodes: which.
        store: where their results are kept; nodes that are done are not made again.
        place: the device and the data's folder.
        jobs: processes side by side, each with its share of the threads; 1: this one.
        ray: the address of a Ray cluster, or ``local`` to start one here.
        progress: show progress on stderr.
        ended: called for each node as soon as it is known to be there, or why it will not be.

    Raises:
        FedscapeError: fewer than one job, or several together with Ray; no process can start, as where a script asks
            for several outside of ``if __name__ == "__main__":``; Ray is asked for and not installed or not
            there; a share of a GPU without Ray, which alone deals them out.
    """
    if jobs < 1:
        raise FedscapeError(f"--jobs is {jobs}: give the number of processes side by side, at least 1")
    place, outcome = place or Place(), Outcome()
    if ray is not None and jobs > 1:
        raise FedscapeError("--jobs and --ray are both given: Ray itself runs as many tasks as it has CPUs; give one")
    if ray is None and place.gpus:
        raise FedscapeError("--gpus is a share for Ray's tasks: give --ray too, or leave it out")
    ordered = with_runs(nodes)
    outcome.done = [node for node in ordered if store.state(node) == "done"]
    done = set(outcome.done)
    waiting = [node for node in ordered if node not in done]
    engine: Callable[[list[Node]], Finished]
    stages = [[n for n in waiting if not runs_of(n)], [n for n in waiting if runs_of(n)]]
    if ray is not None:
        from figures.graph.on_ray import run_on_ray

        engine = partial(run_on_ray, store=store, place=place, address=ray)
    elif jobs > 1:
        engine = partial(_in_processes, store=store, place=place, jobs=jobs)
    else:
        engine, stages = partial(_here, store=store, place=place), [[node] for node in waiting]
    for node in outcome.done:
        ended(node, None)
    unit = "nodes" if any(runs_of(node) for node in waiting) else "runs"
    with Progress("make", len(waiting), unit=unit, enabled=progress, width=_COLUMNS) as bar:
        for stage in stages:
            ready = []
            for node in stage:
                broken = next((run for run in runs_of(node) if run in outcome.failed or run in outcome.busy), None)
                if broken is None:
                    ready.append(node)
                else:
                    outcome.blocked[node] = broken
                    ended(node, f"it needs {broken.name}, which was not made")
            if not ready:
                continue
            with closing(engine(ready)) as results:  # where this process is stopped here, so are those of its pool
                for node, unmade in results:
                    if unmade is None:
                        outcome.done.append(node)
                        outcome.made += 1
                    else:
                        (outcome.busy if unmade.busy else outcome.failed)[node] = unmade.reason
                    count = outcome.made + len(outcome.failed) + len(outcome.busy)
                    bar.update(count, failed=len(outcome.failed) or None, last=node.name)
                    ended(node, None if unmade is None else unmade.reason)
    return outcome


def _here(nodes: list[Node], store: Store, place: Place) -> Finished:
    for node in nodes:
        yield node, attempt(node, store, place)


def _in_processes(nodes: list[Node], store: Store, place: Place, jobs: int) -> Finished:
    """As many at a time as there are jobs, so that those in flight are known when a process dies: each of them is tried
    once more, alone, and fails if its process dies again."""
    queue = list(reversed(nodes))
    suspects: list[Node] = []
    begun: Future[None] | None = None
    while queue:
        in_flight: dict[Future[Unmade | None], Node] = {}
        with _pool(jobs) as pool, _ended_with_us():
            begun = begun or pool.submit(_nothing)
            try:
                while queue or in_flight:
                    while queue and len(in_flight) < jobs:
                        in_flight[pool.submit(attempt, queue[-1], store, place)] = queue[-1]
                        queue.pop()
                    for future in wait(in_flight, return_when=FIRST_COMPLETED).done:
                        unmade = future.result()
                        yield in_flight.pop(future), unmade
            except BrokenProcessPool:
                if begun.exception() is not None:
                    raise not_begun("jobs") from None
                suspects += in_flight.values()
    for node in suspects:
        with _pool(1) as pool, _ended_with_us():
            try:
                unmade = pool.submit(attempt, node, store, place).result()
            except BrokenProcessPool:
                unmade = Unmade(DIED)
        yield node, unmade


def _pool(jobs: int) -> ProcessPoolExecutor:
    """Processes that share nothing with this one, each with its share of the threads.

    They are forked from a server that has loaded the libraries once, which takes seconds.
    """
    begin_no_pool_in_a_pool()
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["figures.graph.kinds", "trainers.runs"])
    return ProcessPoolExecutor(jobs, context, _begin, (threads,))


@contextmanager
def _ended_with_us() -> Iterator[None]:
    """Inside, what stops this process ends those of the pool; the next command goes on from what they have saved."""
    before = set(multiprocessing.active_children())
    try:
        yield
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.kill()  # they do not hear SIGTERM
        raise


def _nothing() -> None:
    pass


def _begin(threads: int) -> None:
    """Of each process of a pool: it must not outlive the command, whose successor makes the same nodes."""
    deaf()
    torch.set_num_threads(min(threads, torch.get_num_threads()))
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "it runs in the processes of a pool"
    parent.join()
    os._exit(1)
