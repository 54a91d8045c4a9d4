"""Several processes on one data set: who this one is, sums over all, and the start under ``torchrun``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from landscape.compute.devices import resolve_device
from landscape.errors import FedscapeError

PATIENCE = timedelta(seconds=10)
"""How long rank 0, when it fails, waits to hear whether the others fail alike; the others wait twice as long for it."""


class RanksLostError(FedscapeError):
    """The other ranks cannot be reached: most often the consequence of a failure that one of them tells of."""


_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


_apart = ContextVar("apart", default=False)


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of processes: (0, 1) without a process group, or :func:`apart` from it."""
    if not _apart.get() and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


@contextmanager
def apart() -> Iterator[None]:
    """Inside, this process works as if it were the only one: its quantities are over all samples, and of no others."""
    token = _apart.set(True)
    try:
        yield
    finally:
        _apart.reset(token)


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The tensor, now holding the sum of all ranks' tensors: one all-reduce, in place.

    Every rank must call it, in the same order; all get the same bits.  Without a group nothing happens.

    Raises:
        RanksLostError: the other ranks cannot be reached, as where one of them has stopped.
    """
    if rank_and_world()[1] > 1:
        try:
            dist.all_reduce(tensor)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            raise RanksLostError(f"the other processes cannot be reached, one may have stopped ({reason})") from error
    return tensor


def tell(message: str, *, consequence: bool = False) -> None:
    """Print what a process fails with on stderr: once where all ranks fail alike, else with the rank.

    Under ``torchrun`` the ranks hear of one another through its store, which is there before, in and after a group.

    Args:
        message: what has failed.
        consequence: of another rank's failure, which is told in its place (:class:`RanksLostError`).
    """
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if not (rank.isdigit() and world.isdigit()) or world == "1":
        print(f"error: {message}", file=sys.stderr)
    elif (store := _torchruns_store()) is None:
        print(f"error: rank {rank}: {message}", file=sys.stderr)
    else:
        tell_once(store, "" if consequence else message, int(rank), int(world), PATIENCE, message)


def tell_once(store: dist.Store, message: str, rank: int, world: int, patience: timedelta, otherwise: str = "") -> None:
    """As :func:`tell`, over any store that the ranks share; no rank waits for longer than three times ``patience``.

    Rank 0 hears the others and speaks for all where they fail alike.  A rank ends when it has been told of, because
    ``torchrun`` ends all processes with the first one that fails.

    Args:
        store: the ranks'.
        message: what has failed; empty for the consequence of another rank's failure.
        rank, world: this process's number, and how many there are.
        patience: how long rank 0 waits for the others.
        otherwise: a consequence's own message, for when no other rank tells of a failure.
    """
    store.set(f"failed/{rank}", message)
    alike = False
    if rank == 0:
        others = [f"failed/{other}" for other in range(1, world)]
        alike = bool(message) and _heard(store, others, patience) == [message] * (world - 1)
    elif message and _heard(store, ["said for all"], 2 * patience) == [message]:
        return
    if message:
        _say(message if alike else f"rank {rank}: {message}")
        store.set("told", message)
    if rank == 0:
        store.set("said for all", message if alike else "")
    if not message and _heard(store, ["told"], 3 * patience) is None:
        _say(f"rank {rank}: {otherwise}")


def _say(message: str) -> None:
    """As one piece: several ranks write at once, and print may write the line and its end in turn."""
    sys.stderr.write(f"error: {message}\n")
    sys.stderr.flush()


def _heard(store: dist.Store, keys: list[str], patience: timedelta) -> list[str] | None:
    """What is in the store under the keys; ``None`` where some stay empty for too long."""
    try:
        store.wait(keys, patience)
    except RuntimeError:
        return None
    return [store.get(key).decode() for key in keys]


def _torchruns_store() -> dist.Store | None:
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None  # rank 0's own store, which is gone when rank 0 has failed
    try:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(address, port, is_master=False, timeout=PATIENCE)
    except (KeyError, ValueError, RuntimeError):
        return None
    return dist.PrefixStore(f"fedscape/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


@contextmanager
def joined(device: str | torch.device = "auto") -> Iterator[torch.device]:
    """Inside, this process is one of those that ``torchrun`` started; yields the device it is to use.

    Where nothing says so in the environment, or a group exists already, no group is made (or ended).

    Raises:
        FedscapeError: as :func:`start_from_environment`.
    """
    before = dist.is_available() and dist.is_initialized()
    place = start_from_environment(device)
    try:
        yield place
    finally:
        if not before and dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


def start_from_environment(device: str | torch.device = "auto") -> torch.device:
    """Join the group that ``torchrun``'s environment describes, if there is one, and say which device is this rank's.

    Tensors are summed by gloo on the CPU and by NCCL on CUDA, where a rank's device is ``cuda:LOCAL_RANK``.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``; without a group also ``cuda:N``.

    Raises:
        FedscapeError: the environment is incomplete or makes no sense, the device is not on this machine, one
            GPU is named for several ranks, or the group cannot be made.
    """
    if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        return resolve_device(device)
    missing = [name for name in _NEEDED if not os.environ.get(name)]
    if missing:
        raise FedscapeError(
            f"the environment describes a distributed run but lacks {', '.join(missing)}: start it with torchrun, or "
            "unset RANK and WORLD_SIZE"
        )
    rank, world, local = (_number(name) for name in _NEEDED[:3])
    if not (0 <= rank < world and local >= 0):
        raise FedscapeError(
            f"RANK is {rank}, LOCAL_RANK {local} and WORLD_SIZE {world}: ranks must be 0 to {max(world - 1, 0)}"
        )
    place = resolve_device(device)
    if place.type == "cuda":
        if world > 1 and device != "auto" and torch.device(device).index is not None:
            raise FedscapeError(f"{world} ranks cannot share '{device}': give cuda, and each takes a GPU of its own")
        place = resolve_device(f"cuda:{local}") if device == "auto" or torch.device(device).index is None else place
        torch.cuda.set_device(place)
    if not dist.is_available():
        raise FedscapeError("this PyTorch was built without torch.distributed: leave out torchrun")
    if not dist.is_initialized():
        # With gloo beside NCCL, sums of CPU tensors work too.
        backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
        try:
            dist.init_process_group(backend, rank=rank, world_size=world)
        except (RuntimeError, ValueError) as error:
            where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
            raise FedscapeError(f"rank {rank} cannot join the {world} processes at {where}: {error}") from error
    return place


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise FedscapeError(f"{name} is '{os.environ[name]}' in the environment: it must be a whole number") from None
