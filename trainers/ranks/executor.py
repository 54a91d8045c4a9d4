"""The executor that shares the local work of the sampled clients among ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TypeVar

import torch
from torch import Tensor

from landscape.compute.regions import region
from landscape.terminal.stopping import ask_to_stop
from trainers.algorithm import Round, State
from trainers.federation.client_store import ClientStore
from trainers.federation.execution import ClientResult, Executor, ResultRows, States, Told
from trainers.ranks.messages import Message, as_bytes
from trainers.ranks.session import Ranks

R = TypeVar("R", ResultRows, Told)

Deal = list[list[int]]
"""The clients of each rank."""


def dealt_by_owner(clients: Sequence[int], world: int) -> Deal:
    """Each client to its owner, rank ``client mod world``, where its state lives.

    Example:
        >>> from trainers.ranks import dealt_by_owner
        >>> dealt_by_owner([3, 4, 8], 2)
        [[4, 8], [3]]
    """
    return [[client for client in clients if client % world == rank] for rank in range(world)]


def dealt_by_size(clients: Sequence[int], sizes: Sequence[int], world: int, together: int = 1) -> Deal:
    """The clients by their numbers of samples, the longest first, each to the rank with the least to do so far.

    Ties go by the client's id, and to the lowest rank, so that the deal follows from the sizes alone.  The longest rank
    has at most 4/3 − 1/(3 world) times the least possible (Graham, SIAM J. Appl. Math. 1969).

    Args:
        clients: in ascending order.
        sizes: number of samples of each client, [N].
        world: number of ranks.
        together: so many clients in a row stay on one rank, as they are computed at once.

    Example:
        >>> from trainers.ranks import dealt_by_size
        >>> dealt_by_size([0, 1, 2, 3], [5, 9, 4, 5], 2)  # 9; 5 and 5; 4 to the first, which has less
        [[1, 2], [0, 3]]
    """
    groups = [list(clients[first : first + together]) for first in range(0, len(clients), together)]
    loads, deal = [0] * world, [list[int]() for _ in range(world)]
    size = {group[0]: sum(sizes[client] for client in group) for group in groups}
    for group in sorted(groups, key=lambda group: (-size[group[0]], group[0])):
        rank = loads.index(min(loads))
        loads[rank] += size[group[0]]
        deal[rank] += group
    return [sorted(mine) for mine in deal]


class RankedExecutor:
    """On the first rank, an executor whose work is that of all ranks; the others :meth:`serve` it.

    The results come in the order of the clients whatever rank computed them, so that the federation's sums, and with
    them all later rounds, are the same on any number of ranks.  What a client sends is not sent twice: where the change
    it uploads is its model minus the one it received, to the last bit, the first rank subtracts.  Where clients keep
    something their owner computes; else they are dealt by size.

    Args:
        inner: computes this rank's share.
        ranks: of the run.
        together: so many clients in a row are computed at once by ``inner``.
    """

    def __init__(self, inner: Executor, ranks: Ranks, together: int = 1) -> None:
        self._inner, self._ranks, self._together = inner, ranks, together
        self._told: dict[str, Tensor] = {}

    @property
    def sizes(self) -> Sequence[int]:
        """Number of samples of each client, [N]."""
        return self._inner.sizes

    def ask(self, clients: Sequence[int], received: State, store: States, round: Round) -> Iterator[Told]:
        """What they send before their local work, in the order of ``clients``."""
        deal = self._announce("ask", clients, received, store, round)
        own = ((1, told) for told in self._inner.ask(deal[0], received, store, round))
        return self._in_order(clients, deal, own, lambda message: (1, _told(message, received.w)))

    def work(self, clients: Sequence[int], received: State, store: States, round: Round) -> Iterator[ResultRows]:
        """The results, in the order of ``clients``, in rows of as many as are computed at once."""
        deal = self._announce("work", clients, received, store, round)
        own = _counted(self._inner.work(deal[0], received, store, round))
        return self._in_order(clients, deal, own, lambda message: _counted_rows(message, received.w))

    def _announce(self, kind: str, clients: Sequence[int], received: State, store: States, round: Round) -> Deal:
        """Tell the others what to compute, and what the clients receive; in a second phase what is new of that."""
        world = self._ranks.world
        assert isinstance(store, ClientStore), "ranks keep states in the stores that they share"
        if store.keeps:
            deal = dealt_by_owner(clients, world)
        else:
            deal = dealt_by_size(clients, self.sizes, world, self._together)
        tensors = received.tensors()
        new = {name: tensor for name, tensor in tensors.items() if self._told.get(name) is not tensor}
        self._told = tensors if kind == "ask" else {}
        self._ranks.send_all(Message(kind, {"deal": deal, "round": asdict(round)}, new))
        return deal

    def _in_order(
        self,
        clients: Sequence[int],
        deal: Deal,
        own: Iterator[tuple[int, R]],
        read: Callable[[Message], tuple[int, R]],
    ) -> Iterator[R]:
        """What comes from all ranks, each with the number of clients in a row that it is of, in the clients' order."""
        computer = {client: rank for rank, mine in enumerate(deal) for client in mine}
        held: deque[tuple[int, R]] = deque()
        place = 0
        while place < len(clients):
            rank = computer[clients[place]]
            # While another rank computes what comes next, this one goes on with its own share.
            while not held if rank == 0 else not self._ranks.ready(rank):
                found = next(own, None)
                if found is None:
                    break
                held.append(found)
            count, result = held.popleft() if rank == 0 else read(self._received(rank))
            place += count
            yield result
        for rank in self._ranks.others:
            self._received(rank)  # that its share is done

    def _received(self, rank: int) -> Message:
        with region("waiting for other ranks"):
            message = self._ranks.receive(rank)
        if (asked := message.facts.get("asked")) is not None:
            ask_to_stop(asked)
        return message

    # On the other ranks.

    def serve(self, message: Message, store: ClientStore, asked: Callable[[], int | None]) -> None:
        """Compute this rank's share of what the first rank asks for, and send it.

        Args:
            message: of :meth:`ask` or :meth:`work`.
            store: of this rank.
            asked: the signal that asks this rank to stop.
        """
        device = self._ranks.device
        tensors = {name: tensor.to(device) for name, tensor in message.tensors.items()}
        received = State.of({**self._told, **tensors})
        self._told = received.tensors() if message.kind == "ask" else {}
        round, mine = Round(**message.facts["round"]), message.facts["deal"][self._ranks.rank]
        if message.kind == "ask":
            for told in self._inner.ask(mine, received, store, round):
                store.put(told.client, told.state)
                self._ranks.send(0, Message("told", {"client": told.client}, told.upload))
        else:
            for _, result in _counted(self._inner.work(mine, received, store, round)):
                for row, client in enumerate(result.clients):
                    store.put(client, result.state(row))
                self._ranks.send(0, _message(result, received.w))
        self._ranks.send(0, Message("share done", {"asked": asked()}))


def _counted(results: Iterator[ClientResult | ResultRows]) -> Iterator[tuple[int, ResultRows]]:
    """Results in rows, each with its number of clients."""
    for found in results:
        result = ResultRows.of(found) if isinstance(found, ClientResult) else found
        yield len(result.clients), result


def _message(result: ResultRows, w: Tensor) -> Message:
    """Clients' results without their states, which stay here."""
    facts = {"clients": result.clients, "seen": result.seen, "steps": result.steps, "gradients": result.gradients}
    derived = {name: how for name, tensor in result.uploads.items() if (how := _derived(tensor, result.models, w))}
    sent = {f"upload {name}": tensor for name, tensor in result.uploads.items() if name not in derived}
    tensors = {"models": result.models, "losses": result.losses, **sent}
    kept = {"starts": result.starts, "perturbations": result.perturbations}
    tensors |= {name: tensor for name, tensor in kept.items() if tensor is not None}
    return Message("result", {**facts, "derived": derived, "names": list(result.uploads)}, tensors)


def _derived(tensor: Tensor, models: Tensor, w: Tensor) -> str:
    """What the first rank can make the tensor of, bit for bit; empty: nothing."""
    if tensor.shape != models.shape or tensor.dtype != models.dtype:
        return ""
    for how, other in (("change", models - w), ("model", models)):
        if torch.equal(as_bytes(tensor), as_bytes(other)):
            return how
    return ""


def _counted_rows(message: Message, w: Tensor) -> tuple[int, ResultRows]:
    """How many clients a message of results is of, and their results."""
    facts, tensors = message.facts, {name: tensor.to(w.device) for name, tensor in message.tensors.items()}
    models = tensors["models"]
    made = {"change": lambda: models - w, "model": lambda: models}
    uploads = {
        name: made[facts["derived"][name]]() if name in facts["derived"] else tensors[f"upload {name}"]
        for name in facts["names"]
    }
    clients, nothing = facts["clients"], State()
    return len(clients), ResultRows(
        clients, models, uploads, nothing, tensors["losses"], facts["seen"], facts["steps"], facts["gradients"],
        tensors.get("starts"), tensors.get("perturbations"),
    )  # fmt: skip


def _told(message: Message, w: Tensor) -> Told:
    """What a client of another rank sent, on the device of ``w``."""
    return Told(message.facts["client"], {name: t.to(w.device) for name, t in message.tensors.items()}, State())
