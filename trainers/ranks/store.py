"""The states of clients, each in the store of the rank that owns it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.federation.client_store import ClientStore, Tensors
from trainers.ranks.messages import Message
from trainers.ranks.session import Ranks


class RankedStore(ClientStore):
    """A store of this rank's clients; that of the first rank gathers what the others export.

    Each rank writes the files of its own clients, and the first one's export names them all, as that of a run in one
    process does: it can be continued on another number of ranks.
    """

    def __init__(self, ranks: Ranks, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options, share=(ranks.rank, ranks.world))
        self._ranks = ranks

    def export(self) -> dict[int, Tensors] | dict[int, int]:
        """The states of all ranks' clients sampled so far, as :meth:`ClientStore.export`."""
        own = super().export()
        if not self.keeps:
            return own
        self._ranks.send_all(Message("export"))
        found: dict[int, Any] = dict(own)
        for rank in self._ranks.others:
            found |= _read(self._ranks.receive(rank))
        return dict(sorted(found.items()))

    def settle(self) -> None:
        """Remove the files that the last export does not need, after that export was saved."""
        super().settle()
        if self.keeps:
            self._ranks.send_all(Message("settle"))

    def restore(self, kept: Mapping[int, Tensors] | Mapping[int, int]) -> None:
        """Continue from a result of :meth:`export`, of any number of ranks."""
        super().restore(kept)
        if not self.keeps:
            return
        for rank in self._ranks.others:
            theirs = {client: state for client, state in kept.items() if client % self._ranks.world == rank}
            self._ranks.send(rank, _message("restore", theirs))
        for rank in self._ranks.others:
            self._ranks.receive(rank)

    # On the other ranks.

    def serve(self, message: Message) -> None:
        """Do what the first rank asks for: ``export``, ``settle`` or ``restore``."""
        if message.kind == "export":
            self._ranks.send(0, _message("exported", super().export()))
        elif message.kind == "settle":
            super().settle()
        else:
            super().restore(_read(message))
            self._ranks.send(0, Message("restored"))


def _message(kind: str, kept: Mapping[int, Any]) -> Message:
    """States as tensors, or the numbers of their files."""
    versions = {str(client): state for client, state in kept.items() if isinstance(state, int)}
    tensors = {
        f"{client} {name}": tensor
        for client, state in kept.items()
        if not isinstance(state, int)
        for name, tensor in state.items()
    }
    return Message(kind, {"versions": versions}, tensors)


def _read(message: Message) -> dict[int, Any]:
    found: dict[int, Any] = {int(client): version for client, version in message.facts["versions"].items()}
    for name, tensor in message.tensors.items():
        client, _, own = name.partition(" ")
        found.setdefault(int(client), {})[own] = tensor.clone()
    return found
