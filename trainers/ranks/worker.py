"""What the other ranks do: what the first one asks for, until the run is finished."""

from __future__ import annotations

from typing import Any

from landscape.errors import FedscapeError
from landscape.terminal.stopping import deferring
from trainers.federation.federation import Federation
from trainers.ranks.executor import RankedExecutor
from trainers.ranks.messages import Message
from trainers.ranks.session import Ranks
from trainers.ranks.store import RankedStore

FINISHED = "finished"


def serve(ranks: Ranks, federation: Federation) -> dict[str, Any]:
    """Compute this rank's share until the first one is finished; how the run ended, as that one told it.

    Raises:
        FedscapeError: the run cannot go on, here or on another rank.
        StoppedError: another rank was stopped.
    """
    executor, store = federation.executor, federation.store
    assert isinstance(executor, RankedExecutor) and isinstance(store, RankedStore)  # noqa: PT018
    with deferring() as stop:
        while (message := ranks.receive()).kind != FINISHED:
            if message.kind in ("ask", "work"):
                executor.serve(message, store, lambda: stop.asked)
            else:
                store.serve(message)
    return message.facts


def finish(ranks: Ranks, facts: dict[str, Any]) -> None:
    """On the first rank: the run has ended, as these facts say."""
    ranks.send_all(Message(FINISHED, facts))


def require_groups(federation: Federation, executor: str, together: int) -> None:
    """Refuse clients at once whose states live on several ranks, and recorded steps.

    Raises:
        FedscapeError: what clients keep decides their rank, and so who would be computed at once; an executor that is
            for one process.
    """
    if executor == "graphs":
        raise FedscapeError("--executor graphs is for one process: give --executor sequential, or one rank")
    if together > 1 and federation.store.keeps:
        raise FedscapeError(
            f"--executor {executor} on several ranks would compute other clients at once on each number of ranks, as "
            "clients of this run keep a state and each is computed where that is: give --executor sequential, or one "
            "rank"
        )
