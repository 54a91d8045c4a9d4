"""Storage of clients' states between rounds: on the device, in host memory or on disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from landscape.compute.devices import free_memory
from landscape.errors import FedscapeError
from landscape.storage.files import load_torch, make_directory, save_torch
from landscape.storage.plain import Numbers
from landscape.storage.schema import Record, require
from trainers.algorithm import State
from trainers.settings import Where

Tensors = dict[str, Tensor]

_SHARE = 4
"""``auto`` takes the first place where the states need less than this part (1/4) of the free memory."""
_INLINE = 16 << 20
"""Bytes of all clients' states up to which an export holds those in memory themselves: a file each costs more."""
_FILE = re.compile(r"(\d{6,})-(\d+)\.pt")


class ClientStore:
    """The states of all clients; a client that was never sampled takes no memory.

    On disk each state is a file of its own, ``folder/CLIENT-VERSION.pt``, written whole or not at all and mapped into
    memory when it is read.  :meth:`export` then returns version numbers only.  Where states in memory may take more
    than 16 MB in all, it does so too, and writes the files of the clients whose states have changed since the last one.
    Versions named by the last saved export are never overwritten; newer versions count only after the next export was
    saved, which the owner reports with :meth:`settle`.  So a run that is killed at any moment continues from its last
    ``state.pt``.

    Attributes:
        schema: what the state of a client is, in a file too.

    Args:
        initial: returns the initial tensors of a client.
        device: of the tensors that :meth:`fetch` returns.
        where: ``device``, ``host`` or ``disk``; ``auto`` takes the first of them where the states of all clients need
            less than a quarter of the free memory, and host memory if no folder is given.
        folder: for the files of ``disk``; created with the first file.
        clients: N, number of clients.
        share: (rank, world) of a store that has the states of clients ``rank``, ``rank + world``, ... alone; all unless
            given.

    Raises:
        FedscapeError: ``disk`` without a folder.

    Example:
        >>> import torch
        >>> from trainers import State
        >>> from trainers.federation import ClientStore
        >>> store = ClientStore(lambda: {"c": torch.zeros(2)}, torch.device("cpu"), where="host", clients=1000)
        >>> store.put(7, State(c=torch.tensor([1.0, 2.0])))
        >>> store.fetch(7).c, store.fetch(8).c
        (tensor([1., 2.]), tensor([0., 0.]))
        >>> store.export()
        {7: {'c': tensor([1., 2.])}}
        >>> store.describe()
        'client states: 1,000 × 8 B = 8 kB in host memory, at most 8 kB of memory'
    """

    def __init__(
        self,
        initial: Callable[[], Tensors],
        device: torch.device,
        *,
        where: Where = "auto",
        folder: str | Path | None = None,
        clients: int = 1,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        if where == "disk" and folder is None:
            raise FedscapeError("client states on disk need a folder for their files")
        self._initial, self._device, self._clients = initial, device, clients
        self._share = share
        self._folder = None if folder is None else Path(folder)
        example = initial()
        self._names = tuple(example)
        self.schema = Record({name: Numbers.like(tensor) for name, tensor in example.items()}, extra=False)
        self._bytes = sum(tensor.nbytes for tensor in example.values())
        self._where = self._choose(where)
        self._kept: dict[int, Tensors] = {}
        self._versions: dict[int, int] = {}  # of what is on disk alone
        self._written: dict[int, int] = {}  # of what was in memory at the last export
        self._changed: set[int] = set()  # in memory, since the last export
        self._exported: dict[int, int] = {}
        self._settled: dict[int, int] = {}

    @property
    def where(self) -> Where:
        """Where the states are stored: ``device``, ``host`` or ``disk``."""
        return self._where

    @property
    def peak_memory(self) -> int:
        """Most bytes of memory that the states take: of all clients; on disk, of one client before and after work."""
        held = len(range(self._share[0], self._clients, self._share[1]))
        return 2 * self._bytes if self._where == "disk" else held * self._bytes

    @property
    def keeps(self) -> bool:
        """Whether clients keep anything."""
        return bool(self._names)

    def owns(self, client: int) -> bool:
        """Whether the state of this client is here, and not in another rank's store."""
        return client % self._share[1] == self._share[0]

    def describe(self) -> str:
        """One line: size of the states, where they are stored, and the most memory they take."""
        if not self._names:
            return "client states: none"
        place = {"device": f"on {self._device}", "host": "in host memory", "disk": f"on disk in {self._folder}"}
        each = " a rank" if self._share[1] > 1 else ""
        return (
            f"client states: {self._clients:,} × {_size(self._bytes)} = {_size(self._clients * self._bytes)} "
            f"{place[self._where]}, at most {_size(self.peak_memory)} of memory{each}"
        )

    def fetch(self, client: int) -> State:
        """The state of one client, on the device.

        Raises:
            FedscapeError: its file is missing or damaged.
        """
        if client in self._versions:
            kept = self._read(client, self._versions[client])
        elif client in self._kept:
            kept = self._kept[client]
        else:
            return State.of(self._initial())
        return State.of({name: tensor.to(self._device) for name, tensor in kept.items()})

    def put(self, client: int, state: State) -> None:
        """Store the state of one client: only the tensors that the initial state has, no temporary ones.

        Nothing is done for a client of another rank.

        Raises:
            FedscapeError: its file cannot be written; the earlier file is unchanged.
        """
        if self._names and self.owns(client):
            self._keep(client, {name: getattr(state, name) for name in self._names})

    def export(self) -> dict[int, Tensors] | dict[int, int]:
        """The states of all clients sampled so far, to be saved: tensors on the host, or versions of their files."""
        if self._where == "disk":
            self._exported = dict(self._versions)
            return dict(self._versions)
        if self._folder is not None and self._clients * self._bytes > _INLINE:
            for client in sorted(self._changed):
                self._written[client] = self._write(client, self._kept[client], self._written.get(client))
            self._changed = set()
            self._exported = dict(self._written)
            return dict(self._written)
        self._exported, self._written = {}, {}
        self._changed = set(self._kept)
        return {client: {name: t.cpu() for name, t in kept.items()} for client, kept in self._kept.items()}

    def settle(self) -> None:
        """Remove the files that the last export does not need, after that export was saved."""
        self._settled = self._exported
        self._remove_all_but(self._settled, self._versions, self._written)

    def restore(self, kept: Mapping[int, Tensors] | Mapping[int, int]) -> None:
        """Continue from a result of :meth:`export`, of this kind of store or another; remove files written since.

        Clients of another rank are passed over.

        Raises:
            FedscapeError: a file that it names is missing, or damaged where it is read now.
        """
        own = {client: state for client, state in kept.items() if self.owns(client)}
        versions = {client: version for client, version in own.items() if isinstance(version, int)}
        for client, version in versions.items():
            file = self._file(client, version)
            if not file.exists():
                raise FedscapeError(
                    f"the state of client {client} is missing: there is no file {file}, so the run cannot go on from "
                    "where it was; start it anew in another folder"
                )
        self._remove_all_but(versions)
        self._kept, self._versions, self._written, self._changed = {}, {}, {}, set()
        self._exported = self._settled = versions
        if self._where == "disk":
            self._versions = dict(versions)
        for client, state in own.items():
            if not isinstance(state, int):
                self._keep(client, dict(state))
            elif self._where != "disk":
                self._keep(client, {name: tensor.clone() for name, tensor in self._read(client, state).items()})
                self._written[client] = state
                self._changed.discard(client)

    def _keep(self, client: int, tensors: Tensors) -> None:
        if self._where != "disk":
            place = self._device if self._where == "device" else torch.device("cpu")
            self._kept[client] = {name: _alone(tensor, place) for name, tensor in tensors.items()}
            self._changed.add(client)
            return
        self._versions[client] = self._write(client, tensors, self._versions.get(client))

    def _write(self, client: int, tensors: Tensors, before: int | None) -> int:
        """Write a new version, the number of which is returned; the one ``before`` goes, unless a state.pt names it."""
        version = max(before or 0, self._exported.get(client, 0), self._settled.get(client, 0)) + 1
        file = self._file(client, version)
        if before is None:
            make_directory(file.parent)
        save_torch(file, {name: _alone(tensor, torch.device("cpu")) for name, tensor in tensors.items()})
        if before is not None and before not in (self._exported.get(client), self._settled.get(client)):
            _remove(self._file(client, before))
        return version

    def _read(self, client: int, version: int) -> Tensors:
        file = self._file(client, version)
        try:
            tensors: Tensors = load_torch(file, mapped=True)
            require(tensors, self.schema, file)
        except FedscapeError as error:
            raise FedscapeError(f"the state of client {client} cannot be read: {error}") from error
        return tensors

    def _file(self, client: int, version: int) -> Path:
        if self._folder is None:
            raise FedscapeError(f"the state of client {client} is in a file, and this store was given no folder")
        return self._folder / f"{client:06d}-{version}.pt"

    def _remove_all_but(self, *needed: Mapping[int, int]) -> None:
        if self._folder is None or not self._folder.is_dir():
            return
        names: Collection[tuple[int, int]] = {pair for versions in needed for pair in versions.items()}
        for file in list(self._folder.iterdir()):
            parts = _FILE.fullmatch(file.name)
            if parts and self.owns(int(parts[1])) and (int(parts[1]), int(parts[2])) not in names:
                _remove(file)

    def _choose(self, where: Where) -> Where:
        if where == "device" and self._device.type == "cpu":
            return "host"
        if where != "auto":
            return where
        total = _SHARE * self._clients * self._bytes
        if self._device.type != "cpu" and total < free_memory(self._device):
            return "device"
        if self._folder is None or total < free_memory(torch.device("cpu")):
            return "host"
        return "disk"


def _alone(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device, without the rest of the storage that it may be a view of."""
    tensor = tensor.detach().to(device)
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _remove(file: Path) -> None:
    with suppress(OSError):  # some systems cannot remove a file that is still mapped: the next settle() tries again
        file.unlink(missing_ok=True)


def _size(size: int) -> str:
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"
