"""Nodes as Ray's tasks."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from dataclasses import replace
from typing import Any

from figures.graph.nodes import Node
from figures.graph.store import DIED, Place, Store, Unmade, attempt
from landscape.errors import FedscapeError

RETRIES = 2
"""How often Ray starts a task again whose worker died."""
_SECONDS = 5.0
"""How long a cluster's address may take to answer."""


def run_on_ray(
    nodes: list[Node], store: Store, place: Place, address: str
) -> Generator[tuple[Node, Unmade | None], None, None]:
    """Make nodes as Ray's tasks, each with one CPU, and with the share of a GPU that ``place`` says.

    Yields:
        Each node as it ends, with the reason where it was not made.

    Raises:
        FedscapeError: Ray is not installed, or there is no cluster at the address.
    """
    try:
        import ray
    except ImportError:
        raise FedscapeError("--ray needs the package ray: pip install 'fedscape[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
        _join(ray, address)
    try:
        task = ray.remote(num_cpus=1, num_gpus=place.gpus, max_retries=RETRIES)(attempt)
        # The workers of a cluster have a current folder of their own.
        data_dir = None if place.data_dir is None else place.data_dir.resolve()
        kept, at = ray.put(Store(store.folder.resolve())), ray.put(replace(place, data_dir=data_dir))
        pending = {task.remote(node, kept, at): node for node in nodes}
        while pending:
            (finished,), _ = ray.wait(list(pending), num_returns=1)
            node = pending.pop(finished)
            try:
                unmade = ray.get(finished)
            except ray.exceptions.RayError as error:
                died = _died(error)
                unmade = Unmade(f"{DIED}, {RETRIES + 1} times" if died else str(error).splitlines()[0])
            yield node, unmade
    finally:
        if ours:
            ray.shutdown()


def _join(ray: Any, address: str) -> None:
    """Connect to the cluster, or start one here.

    Raises:
        FedscapeError: there is none at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to Ray's authors unless it is wanted
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdigit():  # Ray itself would wait for a minute
            socket.create_connection((host.removeprefix("ray://"), int(port)), _SECONDS).close()
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:  # ConnectionError is an OSError
        reason = str(error).splitlines()[0]
        raise FedscapeError(
            f"there is no Ray cluster at '{address}' ({reason}): give HOST:PORT of one, or local to start one here"
        ) from error


def _died(error: Exception) -> bool:
    return type(error).__name__ in ("WorkerCrashedError", "OutOfMemoryError", "NodeDiedError", "LocalRayletDiedError")
