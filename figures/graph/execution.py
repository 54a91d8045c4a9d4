"""Make nodes: in this process, in several, or on Ray. Engines that exist are used; nothing here schedules."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial

import torch

from figures.graph.nodes import Node, runs_of, with_runs
from figures.graph.store import DIED, Place, Store, attempt
from landscape.errors import FedscapeError
from landscape.terminal.progress import Progress


@dataclass
class Outcome:
    """How the nodes of an execution ended.

    Attributes:
        done: those that are there now.
        made: how many of them were made here.
        failed: the reason of each that failed.
        blocked: those that were not begun, each with the failed run it needs.
    """

    done: list[Node] = field(default_factory=list)
    made: int = 0
    failed: dict[Node, str] = field(default_factory=dict)
    blocked: dict[Node, Node] = field(default_factory=dict)


Finished = Iterator[tuple[Node, str | None]]
"""Nodes as they end, each with the reason where it failed."""


def execute(
    nodes: Iterable[Node],
    store: Store,
    place: Place | None = None,
    *,
    jobs: int = 1,
    ray: str | None = None,
    progress: bool = False,
) -> Outcome:
    """Make nodes with the runs they need; a failed one blocks only what depends on it.

    Args:
        nodes: which.
        store: where their results are kept; nodes that are done are not made again.
        place: the device and the data's folder.
        jobs: processes side by side, each with its share of the threads; 1: this one.
        ray: the address of a Ray cluster, or ``local`` to start one here.
        progress: show progress on stderr.

    Raises:
        FedscapeError: fewer than one job, Ray is asked for and not installed or not there.
    """
    if jobs < 1:
        raise FedscapeError(f"--jobs is {jobs}: give the number of processes side by side, at least 1")
    place, outcome = place or Place(), Outcome()
    ordered = with_runs(nodes)
    outcome.done = [node for node in ordered if store.state(node) == "done"]
    waiting = [node for node in ordered if node not in set(outcome.done)]
    engine: Callable[[list[Node]], Finished]
    runs, measures = [n for n in waiting if not runs_of(n)], [n for n in waiting if runs_of(n)]
    if ray is not None:
        from figures.graph.on_ray import run_on_ray

        engine = partial(run_on_ray, store=store, place=place, address=ray)
    elif jobs > 1:
        engine = partial(_in_processes, store=store, place=place, jobs=jobs)
    else:
        engine = partial(_here, store=store, place=place)
    with Progress("make", len(waiting), unit="nodes", enabled=progress) as bar:
        for stage in (runs, measures):
            ready = []
            for node in stage:
                broken = next((run for run in runs_of(node) if run in outcome.failed), None)
                if broken is None:
                    ready.append(node)
                else:
                    outcome.blocked[node] = broken
            for node, reason in engine(ready):
                if reason is None:
                    outcome.done.append(node)
                    outcome.made += 1
                else:
                    outcome.failed[node] = reason
                bar.update(outcome.made + len(outcome.failed), failed=len(outcome.failed) or None, last=node.name)
    return outcome


def _here(nodes: list[Node], store: Store, place: Place) -> Finished:
    for node in nodes:
        yield node, attempt(node, store, place)


def _in_processes(nodes: list[Node], store: Store, place: Place, jobs: int) -> Finished:
    """As many at a time as there are jobs, so that those in flight are known when a process dies: each of them is tried
    once more, alone, and fails if its process dies again."""
    queue = list(reversed(nodes))
    suspects: list[Node] = []
    while queue:
        in_flight: dict[Future[str | None], Node] = {}
        with _pool(jobs) as pool:
            try:
                while queue or in_flight:
                    while queue and len(in_flight) < jobs:
                        in_flight[pool.submit(attempt, queue[-1], store, place)] = queue[-1]
                        queue.pop()
                    for future in wait(in_flight, return_when=FIRST_COMPLETED).done:
                        reason = future.result()
                        yield in_flight.pop(future), reason
            except BrokenProcessPool:
                suspects += in_flight.values()
    for node in suspects:
        with _pool(1) as pool:
            try:
                reason = pool.submit(attempt, node, store, place).result()
            except BrokenProcessPool:
                reason = DIED
        yield node, reason


def _pool(jobs: int) -> ProcessPoolExecutor:
    """Processes that share nothing with this one, each with its share of the threads."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), torch.set_num_threads, (threads,))
