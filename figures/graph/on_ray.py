"""Nodes as Ray's tasks."""

from __future__ import annotations

from collections.abc import Iterator

from figures.graph.nodes import Node
from figures.graph.store import DIED, Place, Store, attempt
from landscape.errors import FedscapeError

RETRIES = 2
"""How often Ray starts a task again whose worker died."""


def run_on_ray(nodes: list[Node], store: Store, place: Place, address: str) -> Iterator[tuple[Node, str | None]]:
    """Make nodes as Ray's tasks, each with one CPU, and with the share of a GPU that ``place`` says.

    Yields:
        Each node as it ends, with the reason where it failed.

    Raises:
        FedscapeError: Ray is not installed, or there is no cluster at the address.
    """
    try:
        import ray
    except ImportError:
        raise FedscapeError("--ray needs the package ray: pip install 'fedscape[ray]'") from None
    if not ray.is_initialized():
        try:
            ray.init(address=None if address == "local" else address, log_to_driver=False, logging_level="error")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise FedscapeError(f"there is no Ray cluster at {address}: {error}") from error
    task = ray.remote(num_cpus=1, num_gpus=place.gpus, max_retries=RETRIES)(attempt)
    kept, at = ray.put(store), ray.put(place)
    pending = {task.remote(node, kept, at): node for node in nodes}
    while pending:
        (finished,), _ = ray.wait(list(pending), num_returns=1)
        node = pending.pop(finished)
        try:
            yield node, ray.get(finished)
        except ray.exceptions.RayError as error:
            yield node, f"{DIED}, {RETRIES + 1} times" if _died(error) else str(error).splitlines()[0]


def _died(error: Exception) -> bool:
    return type(error).__name__ in ("WorkerCrashedError", "OutOfMemoryError", "NodeDiedError", "LocalRayletDiedError")
